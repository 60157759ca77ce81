"""Processor time: that of all processes counts, and of those that have ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from harness import Runner

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


def test_who_takes_more_than_its_share_goes_to_the_back() -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)  # which the child starts with
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        proc = os.open("/proc", os.O_RDONLY)
        looks = ProcessorWatch(proc, limit_s=1e9, share=0.001)
        while os.getpriority(os.PRIO_PROCESS, child.pid) == own:
            assert not looks.exceeded([child.pid])
            time.sleep(0.1)
        assert os.getpriority(os.PRIO_PROCESS, child.pid) == 19
        assert os.getpriority(os.PRIO_PROCESS, 0) == own
        assert ProcessorWatch(proc, limit_s=0.01, share=1).exceeded([child.pid])
    finally:
        child.kill()
        child.wait()
        os.close(proc)


def test_processor_time_of_the_dead_is_kept() -> None:
    proc = os.open("/proc", os.O_RDONLY)
    looks = ProcessorWatch(proc, limit_s=1e9, share=1e9)
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    while looks.spent_s < 0.2:
        looks.exceeded([child.pid])
        time.sleep(0.02)
    spent = looks.spent_s
    child.kill()
    child.wait()
    looks.exceeded([])
    os.close(proc)
    assert looks.spent_s >= spent
