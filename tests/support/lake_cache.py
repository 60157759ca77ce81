"""A fixture for every test of data lakes: the cache of their indexes is the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the cache of lakes out of the user's home."""
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))
