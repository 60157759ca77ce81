"""Work over many items: in order, and one sentence when a process is killed."""

from __future__ import annotations

import pytest
from pickled_jobs import killed_at_three, slow_when_even

from data_gen.chunks import in_order
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
