"""Where the KramaBench notes and lakes are, for the tests that need them."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from places import SHARED

KRAMA = SHARED / "krama"
needs_krama = pytest.mark.skipif(
    not (KRAMA / "spec.md").is_file(), reason="the KramaBench folder ../shared/krama is not here"
)


def cases(level: str) -> list[dict[str, Any]]:
    """Conformance cases of one level; empty where the folder is absent."""
    path = KRAMA / "conformance.jsonl.gz"
    if not path.is_file():
        return []
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [row for row in rows if row["level"] == level]


def workload() -> list[dict[str, Any]]:
    """Every visible task, verified and other."""
    rows: list[dict[str, Any]] = []
    for name in ("verified", "other"):
        path = KRAMA / "data" / f"workload_{name}.json"
        if path.is_file():
            rows += json.loads(path.read_text(encoding="utf-8"))
    return rows
