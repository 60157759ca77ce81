"""What gold is made of: parameters, operators, recipe steps, the error they raise, and what the
operators share of texts."""

from __future__ import annotations

import difflib
import functools
import math
import re
import string
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import regex

from assay.task import TaskError

Profile = Literal["bench", "dj"]
Kind = Literal["mapper", "filter"]
PROFILES: tuple[Profile, ...] = ("bench", "dj")
# Data-Juicer's stand-in for "no upper bound"; kept because it appears in published parameters.
INF = 9223372036854775807


class GoldError(TaskError):
    """A recipe or row that cannot be executed; the message says what to change."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Write `"; did you mean 'x'?"` for the closest known name, or an empty string."""
    close = difflib.get_close_matches(name, list(known), 1, 0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_bound(value: object) -> bool:
    # NaN compares false with everything, so a NaN bound would silently drop every text.
    return value is None or _is_int(value) or (isinstance(value, float) and not math.isnan(value))


def _is_words(value: object) -> bool:
    if not isinstance(value, list | tuple | set | frozenset):
        return False
    return all(isinstance(v, str) for v in cast("Iterable[object]", value))


Count = int  # of 1 or more
# type of a parameter: (check, how to say it in a message, how signatures write it, …)
TYPES: dict[str, tuple[Callable[[Any], bool], str, *tuple[str, ...]]] = {
    "text": (lambda v: isinstance(v, str), "a string", "str"),
    "bool": (lambda v: isinstance(v, bool), "true or false", "bool"),
    "int": (_is_int, "a whole number", "int"),
    "count": (lambda v: _is_int(v) and v >= 1, "a whole number of 1 or more", "Count"),
    "number or none": (_is_bound, "a number or null"),
    "list of text": (_is_words, "a list of strings", "Sequence[str]", "Collection[str]"),
    "text or list of text": (
        lambda v: isinstance(v, str) or _is_words(v),
        "a string or a list of strings",
        "str | Sequence[str]",
    ),
}


@dataclass(frozen=True)
class Param:
    """One parameter of an operator. `type` is a key of `TYPES`; `required` has no default. What it
    means stands in `operators.yaml` (`catalog.meaning`)."""

    name: str
    type: str
    default: Any
    choices: tuple[Any, ...] = ()
    required: bool = False

    def check(self, value: object, owner: str) -> None:
        """Raises `GoldError` naming the operator, the parameter, the value and the wanted type."""
        accepts, wanted, *_ = TYPES[self.type]
        if not accepts(value):
            raise GoldError(f"{owner}: parameter {self.name}={value!r} is not {wanted}")
        if self.choices and value not in self.choices:
            names = ", ".join(repr(c) for c in self.choices)
            raise GoldError(f"{owner}: parameter {self.name}={value!r}; choose one of {names}")


@dataclass(frozen=True)
class Operator:
    """A named pure function of a text.

    A mapper's function returns the new text, a filter's the statistic that its bounds are
    compared with. `dj` is set only where the `dj` profile behaves differently. What each one does
    in words stands in `operators.yaml` (`catalog.described`).
    """

    name: str
    kind: Kind
    domain: str
    bench: Callable[..., Any]
    params: tuple[Param, ...] = ()
    dj: Callable[..., Any] | None = None
    stat_key: str = ""
    bounds: tuple[str, str] = ("", "")

    def function(self, profile: Profile = "bench") -> Callable[..., Any]:
        """Return the operator's function of a profile."""
        return self.dj if profile == "dj" and self.dj is not None else self.bench

    def defaults(self) -> dict[str, Any]:
        """Return the defaults of the parameters that have one, by name."""
        return {p.name: p.default for p in self.params if not p.required}


@dataclass(frozen=True)
class Step:
    """One operator of a recipe with the parameters that differ from its defaults."""

    operator: str
    params: dict[str, Any] = field(default_factory=dict[str, Any])


# ---- what operators share of texts
# What the operators share: patterns, character sets, words, and the sub-sentence split.
#
# The two engines disagree on `\s`, `\w` and `\b` outside ASCII, so every operator names its own:
# `rx` compiles with `regex`, `std` with `re`. Both compile on first use.


@functools.lru_cache(maxsize=256)
def rx(pattern: str, flags: int = 0) -> Any:
    """Compile a pattern of `regex` (version 0 behaviour), cached."""
    return regex.compile(pattern, flags | regex.V0)


@functools.lru_cache(maxsize=256)
def std(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Compile a pattern of the standard library, cached."""
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


SYMBOLS = "◆●■►▼▲▴∆▻▷❖♡□"
SPECIAL_BENCH = frozenset(string.punctuation + string.digits + string.whitespace + SYMBOLS)
# Above this length the benchmark pipeline returns the text untouched for its two slowest mappers.
MAX_GUARDED_LENGTH = 80_000


@functools.lru_cache(maxsize=4)
def _refined(special: frozenset[str]) -> re.Pattern[str]:
    """One refined word: from a character that is not special to the last such before a break."""
    inside = "[^" + "".join(map(re.escape, sorted(special))) + "]"
    return re.compile(rf"{inside}(?:[^ \n\t]*{inside})?")


def refined_words(text: str, special: frozenset[str]) -> list[str]:
    """Words between spaces, newlines and tabs, with special characters stripped from both ends.

    Emptied words are dropped, so `special` must hold the three separators. For lower-cased words
    pass a lower-cased text: case rules never look across white space.
    """
    return _refined(special).findall(text)


def split_cells(text: str) -> list[list[list[str]]]:
    """Lines, their tab-separated cells, and the space-separated words of each cell."""
    return [[cell.split(" ") for cell in line.split("\t")] for line in text.split("\n")]


def merge_cells(lines: list[list[list[str]]]) -> str:
    """The inverse of `split_cells`, except that empty words, cells and lines disappear."""
    merged: list[str] = []
    for line in lines:
        cells = [" ".join(w for w in cell if w) for cell in line]
        merged.append("\t".join(c for c in cells if c))
    return "\n".join(m for m in merged if m)


# The special characters of profile `dj`, as ranges of code points. Frozen here rather than read
# from the emoji package: the set is that of emoji 2.2.0, and a newer package would quietly move
# statistics that gold was made with.
LISTED = """
0020 0081-0085 0091-0093 0095-0099 009C 009D 00A1-00AB 00AD-00B4 00B7-00BF 00D7 00F7 00F8 0131 026A
02BA-02BC 02C8 02CC 02D0 02D8 02DA 02DC 03C0 0413 060C 0647 066A 066C 06E9 093E 0940 0947 094D 097D
09BE 0E51 2002 2003 2005 2008-200B 2010 2011 2013-2016 2018-201A 201C-2020 2022 2024 2026 202F 2030
2032 2033 2039 203A 203F 2043 2044 20A8 20AA 20AC 2103 2122 2190-2193 21D3 2206 2208 2212 221A 221E
221F 223C 2248 2256 2264 2265 2295 22C5 2550 25A0 25AC 25B2 25B4 25B7 25BA-25BC 25C6 25CF 25E6 2605
2606 261B 263B 2661 2665 266B 2713 2726 2731 2756 27A4 27A9 2800 3000-3002 300A-300D 3010 3011 309C
30B7 30C3 30C4 30F3 30FB 30FC 4E00 4E0A 58EB FD3E FD3F FEFF FF01 FF08 FF09 FF0C FF0E FF11 FF1A FF1B
FF1F FF3E FF5E FFFC FFFD
"""

EMOJI = """
00A9 00AE 203C 2049 2122 2139 2194-2199 21A9-21AA 231A-231B 2328 23CF 23E9-23F3 23F8-23FA 24C2
25AA-25AB 25B6 25C0 25FB-25FE 2600-2604 260E 2611 2614-2615 2618 261D 2620 2622-2623 2626 262A
262E-262F 2638-263A 2640 2642 2648-2653 265F-2660 2663 2665-2666 2668 267B 267E-267F 2692-2697 2699
269B-269C 26A0-26A1 26A7 26AA-26AB 26B0-26B1 26BD-26BE 26C4-26C5 26C8 26CE-26CF 26D1 26D3-26D4
26E9-26EA 26F0-26F5 26F7-26FA 26FD 2702 2705 2708-270D 270F 2712 2714 2716 271D 2721 2728 2733-2734
2744 2747 274C 274E 2753-2755 2757 2763-2764 2795-2797 27A1 27B0 27BF 2934-2935 2B05-2B07 2B1B-2B1C
2B50 2B55 3030 303D 3297 3299 1F004 1F0CF 1F170-1F171 1F17E-1F17F 1F18E 1F191-1F19A 1F201-1F202
1F21A 1F22F 1F232-1F23A 1F250-1F251 1F300-1F321 1F324-1F393 1F396-1F397 1F399-1F39B 1F39E-1F3F0
1F3F3-1F3F5 1F3F7-1F4FD 1F4FF-1F53D 1F549-1F54E 1F550-1F567 1F56F-1F570 1F573-1F57A 1F587
1F58A-1F58D 1F590 1F595-1F596 1F5A4-1F5A5 1F5A8 1F5B1-1F5B2 1F5BC 1F5C2-1F5C4 1F5D1-1F5D3
1F5DC-1F5DE 1F5E1 1F5E3 1F5E8 1F5EF 1F5F3 1F5FA-1F64F 1F680-1F6C5 1F6CB-1F6D2 1F6D5-1F6D7
1F6DC-1F6E5 1F6E9 1F6EB-1F6EC 1F6F0 1F6F3-1F6FC 1F7E0-1F7EB 1F7F0 1F90C-1F93A 1F93C-1F945
1F947-1F9FF 1FA70-1FA7C 1FA80-1FA88 1FA90-1FABD 1FABF-1FAC5 1FACE-1FADB 1FAE0-1FAE8 1FAF0-1FAF8
"""


def _characters(ranges: str) -> set[str]:
    found: set[str] = set()
    for item in ranges.split():
        first, _, last = item.partition("-")
        found.update(map(chr, range(int(first, 16), int(last or first, 16) + 1)))
    return found


_ASCII = string.punctuation + string.digits + string.whitespace
SPECIAL_DJ = frozenset(_characters(LISTED) | _characters(EMOJI) | set(_ASCII))
