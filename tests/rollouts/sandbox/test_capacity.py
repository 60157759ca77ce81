"""How many calls fit: processors and memory."""

from __future__ import annotations

import pytest

from rollouts.sandbox.model import Limits, fitting, worker_count

GIB = 1 << 30
CALL = Limits(total_mb=2048, work_mb=1024, tmp_mb=512, shm_mb=512)  # 4 GiB together


@pytest.mark.parametrize(
    ("cores", "free", "wanted"), [(8, 64, 8), (64, 64, 16), (64, 15, 3), (4, 1, 1), (1, 999, 1)]
)
def test_the_scarcer_of_the_two_decides(cores: int, free: int, wanted: int) -> None:
    assert fitting(cores, free * GIB, CALL) == wanted
    assert fitting(cores, None, CALL) == cores


def test_this_machine_has_room_for_one() -> None:
    assert worker_count() >= 1
    assert worker_count(Limits(total_mb=10**8)) == 1
