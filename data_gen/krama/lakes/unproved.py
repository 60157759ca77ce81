"""What the second way says where it cannot decide."""

from __future__ import annotations


class NotProvable(ValueError):
    """The second way cannot read this, or not with certainty; the message says why."""
