"""Where the KramaBench notes and lakes are, for the tests that need them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from places import SHARED
from vectors import at_least, read, source

KRAMA = SHARED / "krama"
needs_krama = pytest.mark.skipif(
    not (KRAMA / "spec.md").is_file(), reason="needs ASSAY_VECTORS=DIR with a folder krama"
)


LEAST = {"task": 406, "aggregate": 18, "helper": 10, "contract": 16}  # conformance cases of a level
SAMPLED = {"task": 60, "aggregate": 10, "helper": 10, "contract": 10}
TASKS = 72


def cases(level: str) -> list[dict[str, Any]]:
    """Conformance cases of one level, of the full set or of the sample that ships."""
    path = "krama/conformance.jsonl.gz"
    found = [row for row in read(path) if row["level"] == level]
    least = LEAST[level] if source(path)[1] else SAMPLED[level]
    return at_least(least, found, f"{path} {level}")


def workload() -> list[dict[str, Any]]:
    """Every visible task, verified and other."""
    if not KRAMA.is_dir():
        return []
    rows: list[dict[str, Any]] = []
    for name in ("verified", "other"):
        path = KRAMA / "data" / f"workload_{name}.json"
        if path.is_file():
            rows += json.loads(path.read_text(encoding="utf-8"))
    return at_least(TASKS, rows, "published tasks")
