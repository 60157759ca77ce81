"""The fixture: one real Slurm for each test process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from mini_slurm import MiniSlurm, missing


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniSlurm]:
    """Four idle nodes. Skips with a reason where Slurm is not to be had."""
    why = missing()
    if why:
        pytest.skip(why)
    cluster = MiniSlurm(tmp_path_factory.mktemp("slurm"))
    try:
        try:
            cluster.start()
        except (AssertionError, TimeoutError) as error:
            pytest.skip(f"Slurm is installed and does not start here: {error}")
        yield cluster
    finally:
        cluster.stop()
