"""Text whose suffix does not say what keeps its fields apart: signs, spaces, or fixed places."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from assay.tables.calls import Opened, namespace
from assay.tables.doubts import Doubt
from assay.tables.encoding import read_text
from assay.tables.plan import ReadPlan, Unreadable
from assay.tables.settings import FileSettings, TableSettings

LOOSE = frozenset((".txt", ".data", ".fwf"))
_SEPARATORS = ",;\t|"
_LOOKED = 200  # lines that tell how fields are kept apart
_SHARE = 0.9  # of the lines that must have as many separators as most have
_SIZE = 200 << 20


def by_content(path: Path, rule: FileSettings) -> tuple[str, FileSettings]:
    """(`csv` or `fixed`, the rule) of a text of fields. Raises `Unreadable` with the doubt
    `layout` for one whose fields cannot be told, such as prose."""
    if path.suffix.lower() not in LOOSE or rule.sep:
        return "csv", rule
    text = read_text(path, rule.encoding)
    lines = [line for line in text.start.splitlines()[: _LOOKED + 1] if line.strip()]
    lines = lines[rule.skip or 0 :]
    if any(_even([line.count(mark) for line in lines]) for mark in _SEPARATORS):
        return "csv", rule
    if spans_of(lines):
        return "fixed", rule
    counts = {len(line.split()) for line in lines}
    if len(lines) > 2 and len(counts) == 1 and counts != {1}:
        return "csv", replace(rule, sep=r"\s+")
    said = "no sign stands between fields in every line, nor do fields stand at fixed places"
    raise Unreadable(said, (Doubt("layout", said, 'sep: ";"  # or the sign that is meant'),))


def _even(counts: Sequence[int]) -> bool:
    usual = max(set(counts), key=counts.count) if counts else 0
    return usual > 0 and counts.count(usual) >= _SHARE * len(counts)


def spans_of(lines: Sequence[str]) -> list[tuple[int, int]]:
    """(first, end) of the columns of characters that blanks in every line keep apart; none where
    the names of the first line do not stand one in each."""
    if len(lines) < 3 or any("\t" in line for line in lines):
        return []
    wide = max(map(len, lines))
    used = [False] * wide
    for line in lines:
        for place, letter in enumerate(line):
            used[place] = used[place] or letter != " "
    edges = [i for i in range(wide + 1) if (i < wide and used[i]) != (i > 0 and used[i - 1])]
    spans: list[tuple[int, int]] = []
    for first, end in zip(edges[::2], edges[1::2], strict=True):
        words = spans and first - spans[-1][1] == 1 and not lines[0][first:end].strip()
        spans[-1:] = [(spans[-1][0], end)] if words else [*spans[-1:], (first, end)]
    names = re.split(r" {2,}", lines[0].strip())
    words = lines[0].split()
    heads = [lines[0][a:b].strip() for a, b in spans]
    clear = len(spans) > 1 and all(heads) and heads in (names, words)
    return spans if clear else []


def plans(
    path: Path, name: str, rules: TableSettings
) -> Iterator[tuple[ReadPlan, list[list[str]]]]:
    """The table of a text of fixed places, and the cells of its columns. Raises `Unreadable` where
    a line of it has letters between the places."""
    rule = rules.of(name)
    if path.stat().st_size > _SIZE:
        raise Unreadable(f"larger than {_SIZE >> 20} MiB of fixed places; store it as csv")
    encoding = read_text(path, rule.encoding).encoding
    with Opened(str(path), encoding).value(namespace()) as file:
        lines = [line.rstrip("\r\n") for line in islice(file, rule.skip or 0, None)]
    gone = {n for first, last in rule.drop_rows or () for n in range(first, last + 1)}
    first = (rule.skip or 0) + 1
    filled = [line for n, line in enumerate(lines, first) if line.strip() and n not in gone]
    spans = spans_of(filled)
    if not spans:
        odd = next((n for n in range(3, len(filled)) if not spans_of(filled[:n])), len(filled))
        said = (
            f"fields do not stand at the same places in all lines, as in {filled[odd - 1][:40]!r}"
        )
        raise Unreadable(said, (Doubt("layout", said, r"sep: \s+"),))
    columns = tuple(filled[0][a:b].strip() for a, b in spans)
    if len(set(columns)) < len(columns):
        raise Unreadable("two columns have the same name; name them in tables.yaml")
    cells = [[line[a:b].strip() for line in filled[1:]] for a, b in spans]
    plan = ReadPlan(name, "fixed", encoding=encoding, skip=rule.skip or 0, places=tuple(spans))
    yield plan, cells
