"""How many calls fit: processors and memory, with limits of control groups of both versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollouts.sandbox.model import Limits, fitting, free_bytes, worker_count

GIB = 1 << 30
CALL = Limits(total_mb=2048, work_mb=1024, tmp_mb=512, shm_mb=512)  # 4 GiB together


@pytest.mark.parametrize(
    ("cores", "free", "wanted"), [(8, 64, 8), (64, 64, 16), (64, 15, 3), (4, 1, 1), (1, 999, 1)]
)
def test_the_scarcer_of_the_two_decides(cores: int, free: int, wanted: int) -> None:
    assert fitting(cores, free * GIB, CALL) == wanted


def machine(top: Path, files: dict[str, str]) -> Path:
    for name, text in {
        "proc/meminfo": "MemTotal: 1 kB\nMemAvailable: 67108864 kB\n",
        **files,
    }.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    return top


@pytest.mark.parametrize(
    ("files", "gib"),
    [
        ({}, 64),
        ({"proc/self/cgroup": "0::/job/step\n"}, 64),
        (
            {
                "proc/self/cgroup": "0::/job/step\n",
                "sys/fs/cgroup/job/step/memory.max": "max\n",
                "sys/fs/cgroup/job/memory.max": f"{20 * GIB}\n",
                "sys/fs/cgroup/job/memory.current": f"{8 * GIB}\n",
            },
            12,
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/slurm/job\n3:cpu:/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
                "sys/fs/cgroup/memory/slurm/job/memory.limit_in_bytes": f"{10 * GIB}\n",
                "sys/fs/cgroup/memory/slurm/job/memory.usage_in_bytes": f"{5 * GIB}\n",
                "sys/fs/cgroup/memory/slurm/job/memory.stat": (
                    f"cache 1\ninactive_file 7\ntotal_inactive_file {4 * GIB}\n"
                ),
            },
            9,
        ),
        (
            {
                "proc/self/cgroup": "0::/job\n",
                "sys/fs/cgroup/job/memory.max": f"{GIB}\n",
                "sys/fs/cgroup/job/memory.current": f"{2 * GIB}\n",
            },
            0,
        ),
    ],
)
def test_memory_is_what_the_job_has_left(tmp_path: Path, files: dict[str, str], gib: int) -> None:
    assert free_bytes(machine(tmp_path, files)) == gib * GIB


def test_this_machine_has_room_for_one() -> None:
    assert worker_count() >= 1
    assert worker_count(Limits(total_mb=10**8)) == 1
