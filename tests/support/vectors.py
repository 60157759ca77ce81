"""The conformance vectors: the full sets where they are, else the sample in tests/conformance.

Never fewer rows than were made: a renamed file or kind must fail, and not pass on no rows at all.
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
# rows of (file, kind) of the full refinement set; "" stands for the whole file
LEAST = {
    ("scorer", "metric"): 496,
    ("scorer", "normalise"): 70,
    ("scorer", "parse"): 128,
    ("scorer", "json_compare"): 30,
    ("scorer", "score_file"): 6,
    ("recipes", ""): 1131,
    ("order_m", ""): 147,
    ("keys", ""): 297,
    ("mining", ""): 34,
    ("thresholds", ""): 349,
    ("pipeline_expected", ""): 14_172,
}
OPERATOR = 239  # rows of the shortest file of one operator
# the same of the sample
SAMPLED = {
    ("scorer", "metric"): 32,
    ("scorer", "normalise"): 15,
    ("scorer", "parse"): 24,
    ("scorer", "json_compare"): 12,
}


def at_least(least: int, rows: list[dict[str, Any]], what: str) -> list[dict[str, Any]]:
    """The rows; fails when there are fewer than `least`."""
    assert len(rows) >= least, f"{what}: {len(rows)} rows, wanted {least} or more"
    return rows


def source(path: str) -> tuple[Path, bool]:
    """(a file of vectors, whether it is of the full set). `path` starts with the room."""
    full = SHARED / path
    return (full, True) if full.is_file() else (SAMPLE / path, False)


def read(path: str) -> list[dict[str, Any]]:
    """Every row of a file; of the sample as many as rows.json says."""
    file, full = source(path)
    with gzip.open(file, "rt", encoding="utf-8", newline="\n") as lines:
        rows = [json.loads(line) for line in lines]
    if full:
        return rows
    listed = json.loads((SAMPLE / "rows.json").read_text(encoding="utf-8"))
    return at_least(max(1, listed[path]), rows, path)


def vectors(file: str, kind: str = "") -> list[dict[str, Any]]:
    """The rows of one refinement file, of one kind where it holds several."""
    path = f"cdr/conformance/{file}.jsonl.gz"
    rows = [row for row in read(path) if kind in ("", row["kind"])]
    if not source(path)[1]:
        return at_least(SAMPLED.get((file, kind), 1), rows, f"{path} {kind} of the sample")
    return at_least(LEAST.get((file, kind), OPERATOR), rows, f"{path} {kind}".strip())
