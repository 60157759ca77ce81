"""Where the KramaBench notes and lakes are, for the tests that need them."""

from __future__ import annotations

from typing import Any

import pytest
from places import SHARED
from vectors import read

KRAMA = SHARED / "krama"
needs_krama = pytest.mark.skipif(
    not (KRAMA / "spec.md").is_file(), reason="needs ASSAY_VECTORS=DIR with a folder krama"
)


def cases(level: str) -> list[dict[str, Any]]:
    """Conformance cases of one level, of the full set or of the sample that ships."""
    found = [row for row in read("krama/conformance.jsonl.gz") if row["level"] == level]
    assert found, level
    return found
