"""Work shared by processes: in order, few jobs ahead, and one sentence when a process is killed."""

from __future__ import annotations

import operator
from pathlib import Path

import pytest
from pickled_jobs import killed_at_three, noted, slow_when_even

from data_gen.chunks import AHEAD, Crew, in_order, in_turn, processes
from rewards.progress import Progress
from rewards.task import TaskError


def quiet() -> Progress:
    return Progress("jobs", "jobs")


@pytest.mark.parametrize("workers", [1, 2])
def test_findings_come_in_the_order_of_the_jobs(workers: int) -> None:
    found = in_order(slow_when_even, range(8), workers, quiet())
    assert found == [n for job in range(8) for n in (job, -job)]


def test_a_killed_process_ends_the_work_with_one_sentence() -> None:
    with pytest.raises(TaskError, match=r"a worker process was killed .* fewer workers") as caught:
        in_order(killed_at_three, range(9), 2, quiet())
    assert "\n" not in str(caught.value)


def test_who_stops_early_leaves_most_jobs_undone(tmp_path: Path) -> None:
    jobs = [(str(tmp_path), n) for n in range(200)]
    with processes(2) as pool:
        assert next(iter(in_turn(pool, 2, noted, jobs))) == 0
    assert 1 <= len(list(tmp_path.iterdir())) <= 2 * AHEAD


@pytest.mark.parametrize("workers", [1, 2])
def test_a_crew_keeps_the_order_over_several_maps(workers: int) -> None:
    with Crew(workers) as crew:
        for count in (0, 3, 40, 5):
            jobs = (number for number in range(count))
            assert list(crew.map(operator.neg, jobs)) == [-number for number in range(count)]
