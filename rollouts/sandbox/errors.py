"""The sandbox's own failure, in a file that whoever only catches it can import."""

from __future__ import annotations


class SandboxError(RuntimeError):
    """The sandbox could not be started or asked; never the fault of the code that was to run."""
