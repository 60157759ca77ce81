"""Work shared by processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from job_functions import die, start, wait, work
from mini_slurm import alive, wait_for
from places import ROOT

from assay.task import TaskError
from assay.workers import AHEAD, WorkerPool, map_ordered


def test_jobs_are_taken_as_they_are_needed() -> None:
    taken = 0

    def jobs() -> Iterator[int]:
        nonlocal taken
        while True:
            taken += 1
            yield taken

    found = map_ordered(work, jobs(), 2, start, ("begun",))
    for _ in range(5):
        next(found)
    assert taken < 5 + 2 * AHEAD + 2
    found.close()


def test_a_job_that_takes_long_keeps_no_other_process_waiting(tmp_path: Path) -> None:
    last = 20 * AHEAD
    job = partial(wait, last=last, there=str(tmp_path / "done"))
    with WorkerPool(2) as pool:
        found = pool.map(job, range(last + 1), ahead=last + 1)
        assert list(found) == list(range(last + 1))


def test_a_process_that_is_killed_is_one_sentence() -> None:
    with pytest.raises(TaskError, match="a worker process was killed before its work was done"):
        list(map_ordered(die, range(40), 2))


@pytest.mark.parametrize(("workers", "apart"), [(1, False), (2, False), (1, True)])
def test_a_crew_starts_processes_when_they_are_worth_it(workers: int, apart: bool) -> None:
    """Results keep the order of the jobs over several maps."""
    here = workers == 1 and not apart
    with WorkerPool(workers, start, ("begun",), few=4, apart=apart) as crew:
        found = [list(crew.map(work, (n for n in range(count)))) for count in (4, 0, 40, 4)]
    for number, made in enumerate(found):
        wanted = [(n * n, "begun") for n in range((4, 0, 40, 4)[number])]
        assert [(square, word) for square, word, _ in made] == wanted
        if made:
            assert (os.getpid() in {pid for *_, pid in made}) == (here or number == 0)


def test_processes_end_when_their_parent_is_killed() -> None:
    words = [sys.executable, "-c", "import job_functions as jobs; jobs.killed_parent()"]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests' / 'support'}"}
    done = subprocess.run(words, env=env, stdout=subprocess.PIPE, text=True)
    workers = [int(pid) for pid in done.stdout.split()]
    assert workers and done.returncode == -signal.SIGKILL
    wait_for("the workers to end", lambda: not any(map(alive, workers)))
