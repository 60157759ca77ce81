"""Work shared by processes."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from job_functions import die, start, work

from rewards.processes import AHEAD, in_turn
from rewards.task import TaskError


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_the_order_of_the_jobs(workers: int) -> None:
    found = list(in_turn(work, range(40), workers, start, ("begun",)))
    assert [square for square, _, _ in found] == [n * n for n in range(40)]
    assert {word for _, word, _ in found} == {"begun"}
    assert (os.getpid() in {pid for *_, pid in found}) == (workers == 1)


def test_jobs_are_taken_as_they_are_needed() -> None:
    taken = 0

    def jobs() -> Iterator[int]:
        nonlocal taken
        while True:
            taken += 1
            yield taken

    found = in_turn(work, jobs(), 2, start, ("begun",))
    for _ in range(5):
        next(found)
    assert taken < 5 + 2 * AHEAD + 2
    found.close()


def test_a_process_that_is_killed_is_one_sentence() -> None:
    with pytest.raises(TaskError, match="a worker process was killed before its work was done"):
        list(in_turn(die, range(40), 2))
