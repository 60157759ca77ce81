"""tests/data/messy: files as people have them, what is in doubt in each, and the right values.

`expected.json`: file → `doubts` ([code, column], the column empty for the whole table), `settle`
(keys of `tables.yaml` that settle them all) or `mend` (only the file can be mended), `kinds` of
columns that must be text, number or date, and the `part` that is meant.
"""

from __future__ import annotations

import csv
import json
import math
import shutil
from pathlib import Path
from typing import Any

import yaml
from places import ROOT

FOLDER = ROOT / "tests" / "data" / "messy"
EXPECTED: dict[str, dict[str, Any]] = json.loads((FOLDER / "expected.json").read_text("utf-8"))


def rights(name: str) -> tuple[list[str], list[list[str]]]:
    """The names and the rows of a file as a person reads them, each value as text."""
    with open(FOLDER / "right" / f"{name}.csv", encoding="utf-8", newline="") as file:
        head, *rows = list(csv.reader(file))
    return head, rows


def folder_of(names: list[str], to: Path, settle: bool = False) -> Path:
    """Copies of files in one folder, with the lines of `tables.yaml` that settle them."""
    to.mkdir(parents=True, exist_ok=True)
    rules: dict[str, Any] = {}
    for name in names:
        shutil.copy(FOLDER / name, to / name)
        if settle and EXPECTED[name].get("settle"):
            rules[name] = EXPECTED[name]["settle"]
    if rules:
        text = yaml.safe_dump(rules, allow_unicode=True, sort_keys=False)
        (to / "tables.yaml").write_text(text, encoding="utf-8")
    return to


def same_cell(got: Any, right: str) -> bool:
    """Whether a cell of a frame is the value of this text."""
    if got is None or got != got:
        return right == ""
    if hasattr(got, "isoformat"):
        text = got.isoformat(sep=" ")
        return text == right or text.removesuffix(" 00:00:00") == right
    if isinstance(got, str):
        return got == right
    try:
        return math.isclose(float(got), float(right), rel_tol=1e-12)
    except ValueError:
        return False


def wrong_cells(frame: Any, name: str, kinds: bool = True) -> list[str]:
    """What a frame holds that is not as a person reads it; columns may be left out."""
    head, rows = rights(name)
    listed = [str(c) for c in frame.columns]
    found = [f"no column {c!r} is right" for c in listed if c not in head]
    if len(frame) != len(rows):
        return [*found, f"{len(frame)} rows; right {len(rows)}"]
    for column in (c for c in listed if c in head):
        place = head.index(column)
        for number, (got, row) in enumerate(zip(frame[column].tolist(), rows, strict=True), 1):
            if not same_cell(got, row[place]):
                found.append(f"row {number}, {column!r}: {got!r}; right {row[place]!r}")
                break
    told = dict.fromkeys("iuf", "number") | {"M": "date"}
    for column, kind in EXPECTED[name].get("kinds", {}).items() if kinds else ():
        if column in listed and (got := told.get(frame[column].dtype.kind, "text")) != kind:
            found.append(f"{column!r} is {got}; right {kind}")
    return found
