"""Processor time: that of all processes counts, and of those that have ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from harness import Runner

from rollouts.sandbox import usage
from rollouts.sandbox.model import Limits
from rollouts.sandbox.usage import ProcessorWatch

SHORT = Limits(wall_s=60, cpu_s=2, memory_mb=128, total_mb=384, work_mb=8, tmp_mb=8, processes=64)
BUSY = """
import os
for _ in range(3):
    if os.fork() == 0:
        try: os.setsid()
        except OSError: pass
        while True: pass
import time
time.sleep(60)
"""


def test_processor_time_counts_over_all_processes(run: Runner) -> None:
    result = run(BUSY, limits=SHORT)
    assert result.status == "timeout" and "processor" in result.why


def test_who_is_too_busy_goes_to_the_back_and_the_dead_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(usage, "MOST_BUSY", 0.0015)
    own = os.getpriority(os.PRIO_PROCESS, 0)  # which the child starts with
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    proc = os.open("/proc", os.O_RDONLY)
    try:
        looks = ProcessorWatch(proc, limit_s=1e9)
        while looks.spent_s < 0.2 or os.getpriority(os.PRIO_PROCESS, child.pid) == own:
            assert not looks.exceeded([child.pid])
            time.sleep(0.05)
        assert os.getpriority(os.PRIO_PROCESS, child.pid) == 19
        assert os.getpriority(os.PRIO_PROCESS, 0) == own
        assert ProcessorWatch(proc, limit_s=0.01).exceeded([child.pid])
    finally:
        child.kill()
        child.wait()
    spent = looks.spent_s
    looks.exceeded([])
    os.close(proc)
    assert looks.spent_s >= spent
