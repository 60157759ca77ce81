"""Substitution by patterns that are compiled on first use, in the engine gold was made with.

The two engines disagree on `\\s`, `\\w` and `\\b` outside ASCII, so every operator names its own.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import Any

import regex


@functools.lru_cache(maxsize=256)
def rx(pattern: str, flags: int = 0) -> Any:
    """A `regex` pattern (version 0 behaviour)."""
    return regex.compile(pattern, flags | regex.V0)


@functools.lru_cache(maxsize=256)
def std(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """A standard library pattern."""
    return re.compile(pattern, flags)


def sub_within(pattern: Any, repl: str, text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Substitute, looking only inside `spans`: rising, disjoint, together holding every match.

    Matching sees the characters around a span, so look-behind and `\b` decide as they would in a
    search of the whole text.
    """
    out: list[str] = []
    last = 0
    plain = "\\" not in repl
    for start, end in spans:
        # One character more than the span: a look-ahead at its end must see what follows.
        for found in pattern.finditer(text, start, end + 1):
            out.append(text[last : found.start()])
            out.append(repl if plain else found.expand(repl))
            last = found.end()
    if not last and not out:
        return text
    out.append(text[last:])
    return "".join(out)
