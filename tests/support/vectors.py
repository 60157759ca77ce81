"""The conformance vectors: the full sets where they are, else the sample in tests/conformance.

A renamed file or kind must fail, and not pass on no rows; test_sample.py counts rows of the sample.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from places import ROOT, SHARED

SAMPLE = ROOT / "tests" / "conformance"
needs_full_vectors = pytest.mark.skipif(
    not (SHARED / "cdr" / "conformance").is_dir(),
    reason="needs the full conformance vectors (docs/checks.md); the sample has no such rows",
)


def source(path: str) -> tuple[Path, bool]:
    """(a file of vectors, whether it is of the full set). `path` starts with the room."""
    full = SHARED / path
    return (full, True) if full.is_file() else (SAMPLE / path, False)


def read(path: str) -> list[dict[str, Any]]:
    """Every row of a file; as many as rows.json says of the sample, or more of the full set."""
    with gzip.open(source(path)[0], "rt", encoding="utf-8", newline="\n") as lines:
        rows = [json.loads(line) for line in lines]
    listed = json.loads((SAMPLE / "rows.json").read_text(encoding="utf-8"))
    assert len(rows) >= listed.get(path, 1), f"{path}: {len(rows)} rows"
    return rows


def vectors(file: str, kind: str = "") -> list[dict[str, Any]]:
    """The rows of one refinement file, of one kind where it holds several."""
    path = f"cdr/conformance/{file}.jsonl.gz"
    rows = [row for row in read(path) if kind in ("", row["kind"])]
    assert rows, f"{path}: no row of the kind {kind}"
    return rows
