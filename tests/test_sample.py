"""The sample of conformance vectors that ships: large enough, and taken from the full sets."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path

import pytest
from places import SHARED
from vectors import SAMPLE

from rewards.gold import OPERATORS

FILES = sorted(SAMPLE.rglob("*.jsonl.gz"))
ROWS = json.loads((SAMPLE / "rows.json").read_text(encoding="utf-8"))
LEAST = 500


def lines(path: Path) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        return [json.dumps(json.loads(line), sort_keys=True) for line in file]


def test_no_file_lost_a_row() -> None:
    assert {str(p.relative_to(SAMPLE)): len(lines(p)) for p in FILES} == ROWS
    assert sum(ROWS.values()) >= LEAST


def test_every_operator_and_every_type_is_in_it() -> None:
    held = {Path(name).name.removesuffix(".jsonl.gz") for name in ROWS}
    assert held >= set(OPERATORS)
    tables = map(json.loads, lines(SAMPLE / "dare/conformance.jsonl.gz"))
    types = {row["task_type"] for row in tables if row["kind"] == "truth"}
    assert types == {"class-IF", "class-MM", "reg-IF", "reg-MM", "time-XF", "time-CF"}
    answers = [json.loads(row) for row in lines(SAMPLE / "krama/conformance.jsonl.gz")]
    assert len({row["answer_type"] for row in answers if row["level"] == "task"}) == 6
    assert not {"gold", "near"} & {row.get("category") for row in answers}  # of no published task


@pytest.mark.skipif(
    not (SHARED / "cdr" / "conformance").is_dir(), reason="needs the full conformance vectors"
)
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_every_row_is_a_row_of_the_full_set(path: Path) -> None:
    full = {hashlib.sha256(x.encode()).digest() for x in lines(SHARED / path.relative_to(SAMPLE))}
    assert all(hashlib.sha256(x.encode()).digest() in full for x in lines(path))
