"""The conformance vectors of documents in ../shared, never fewer than were made.

A renamed file or kind must fail, and not pass on no rows at all.
"""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from places import SHARED

VECTORS = SHARED / "cdr" / "conformance"
needs_vectors = pytest.mark.skipif(
    not VECTORS.is_dir(), reason="the shared conformance vectors are not beside this checkout"
)
# rows of (file, kind); "" stands for the whole file
LEAST = {
    ("scorer", "metric"): 496,
    ("scorer", "normalise"): 70,
    ("scorer", "parse"): 128,
    ("scorer", "json_compare"): 30,
    ("scorer", "score_file"): 6,
    ("keys", ""): 297,
    ("mining", ""): 34,
    ("thresholds", ""): 349,
    ("pipeline_expected", ""): 14_172,
}


def at_least(least: int, rows: list[dict[str, Any]], what: str) -> list[dict[str, Any]]:
    """The rows; fails when there are fewer than `least`."""
    assert len(rows) >= least, f"{what}: {len(rows)} rows, wanted {least} or more"
    return rows


def vectors(file: str, kind: str = "") -> list[dict[str, Any]]:
    """The rows of one file, of one kind where it holds several."""
    with gzip.open(VECTORS / f"{file}.jsonl.gz", "rt", encoding="utf-8", newline="\n") as lines:
        rows = [row for row in map(json.loads, lines) if kind in ("", row["kind"])]
    return at_least(LEAST[file, kind], rows, f"{file}.jsonl.gz {kind}".strip())
