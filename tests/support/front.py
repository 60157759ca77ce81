"""Commands through the front door, where errors become exit statuses."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import assay


def command(*words: str) -> Callable[[Sequence[str]], int]:
    """`assay WORDS …` as a function of the words that follow."""
    return lambda argv: assay.main([*words, *argv])
