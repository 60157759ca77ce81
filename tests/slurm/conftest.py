"""The fixture: one real Slurm for each test process, and the settings of a tiny CPU run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))
sys.path.insert(0, str(Path(__file__).parent))
from mini_slurm import MiniSlurm, missing

ROOT = Path(__file__).resolve().parent.parent.parent
TINY = ("engine.device=cpu", "engine.threads=1", "engine.dtype=float32")


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniSlurm]:
    """Four idle nodes. Skips with a reason where Slurm is not to be had."""
    why = missing()
    if why:
        pytest.skip(why)
    os.environ |= {
        "ASSAY_ROOT": str(ROOT), "ASSAY_PYTHON": sys.executable, "ASSAY_DOCTOR": "0",
        "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    cluster = MiniSlurm(tmp_path_factory.mktemp("slurm"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
