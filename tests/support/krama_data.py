"""Where the KramaBench notes and lakes are, for the tests that need them."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from places import SHARED
from vectors import at_least

KRAMA = SHARED / "krama"
needs_krama = pytest.mark.skipif(
    not (KRAMA / "spec.md").is_file(), reason="the KramaBench folder ../shared/krama is not here"
)


LEAST = {"task": 406, "aggregate": 18, "helper": 10, "contract": 16}  # conformance cases of a level
TASKS = 72


def cases(level: str) -> list[dict[str, Any]]:
    """Conformance cases of one level; empty where the folder is absent."""
    path = KRAMA / "conformance.jsonl.gz"
    if not path.is_file():
        return []
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    found = [row for row in rows if row["level"] == level]
    return at_least(LEAST[level], found, f"{path.name} {level}")


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
