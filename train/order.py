"""Which rows an optimiser step sees: a function of (seed, step) alone, so a resumed run agrees."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rewards.seeds import derive_seed
from rewards.task import Task


def epoch_order(count: int, seed: int, epoch: int) -> list[int]:
    """The order in which `count` rows are seen in an epoch; depends on (seed, epoch) alone."""
    generator = np.random.Generator(np.random.Philox(derive_seed(seed, "order", epoch)))
    return [int(i) for i in generator.permutation(count)]


def batch_of(step: int, count: int, size: int, seed: int) -> list[int]:
    """Rows of optimiser step `step`; the data is one endless sequence of shuffled epochs."""
    first = step * size
    return [epoch_order(count, seed, at // count)[at % count] for at in range(first, first + size)]


def strata(tasks: Sequence[Task], balance: str) -> list[list[int]]:
    """Rows grouped by what the batches are to be balanced over, in order of the value's name.

    `none`: all rows together; `status`: by `gold["status"]`; `track`: by track.
    """
    groups: dict[str, list[int]] = {}
    for row, task in enumerate(tasks):
        key = {"none": "", "status": str(task.gold.get("status")), "track": task.track}[balance]
        groups.setdefault(key, []).append(row)
    return [groups[key] for key in sorted(groups)]


def balanced_batch(step: int, groups: Sequence[Sequence[int]], size: int, seed: int) -> list[int]:
    """`size` rows of step `step`, the groups taking turns; each group is shuffled by epochs.

    With one group this is `batch_of`. A group smaller than the others is seen more often.
    """
    if len(groups) == 1:
        return [groups[0][i] for i in batch_of(step, len(groups[0]), size, seed)]
    rows: list[int] = []
    for at in range(step * size, (step + 1) * size):
        turn, which = divmod(at, len(groups))
        group = groups[which]
        key = derive_seed(seed, "stratum", which)
        rows.append(group[epoch_order(len(group), key, turn // len(group))[turn % len(group)]])
    return rows
