"""Substitution by patterns that are compiled on first use, in the engine gold was made with.

The two engines disagree on `\\s`, `\\w` and `\\b` outside ASCII, so every operator names its own.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import regex

Sub = Callable[[str, str], str]
NO_FLAGS = regex.V0


@functools.lru_cache(maxsize=256)
def rx(pattern: str, flags: int = 0) -> Any:
    """A `regex` pattern (version 0 behaviour)."""
    return regex.compile(pattern, flags | regex.V0)


@functools.lru_cache(maxsize=256)
def std(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """A standard library pattern."""
    return re.compile(pattern, flags)
