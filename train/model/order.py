# torch and transformers ship partial types: what is unknown there cannot be known here.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false
"""Which rows an optimiser step sees: a function of (seed, step) alone, so a resumed run agrees."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rewards.seeds import derive_seed
from rewards.task import Task, TaskError


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

    `none`: all rows together; `status`: by `gold["status"]`; `track`: by track; `group`: by order
    group, tasks without one each alone (for `grouped_batch`).
    """
    groups: dict[str, list[int]] = {}
    for row, task in enumerate(tasks):
        alone = f"\x00{row:09d}"
        key = {
            "none": "",
            "status": str(task.gold.get("status")),
            "track": task.track,
            "group": task.group or alone,
        }[balance]
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


def rows_of_step(
    step: int, groups: Sequence[Sequence[int]], size: int, seed: int, balance: str
) -> list[int]:
    """The rows of a step under a balance; `groups` are its `strata`."""
    if balance == "group":
        return grouped_batch(step, groups, size, seed)
    return balanced_batch(step, groups, size, seed)


def grouped_batch(step: int, groups: Sequence[Sequence[int]], size: int, seed: int) -> list[int]:
    """At most `size` rows of step `step`, whole groups only, so that siblings meet in a batch.

    The groups are shuffled by epochs and taken in turn; a batch ends before the group that would
    not fit. Raises `TaskError` when one group alone is larger than a batch.
    """
    large = max(map(len, groups))
    if large > size:
        raise TaskError(
            f"an order group has {large} tasks, more than rl.prompts_per_step={size}; raise it"
        )
    at, rows = 0, list[int]()
    for _ in range(step + 1):
        rows = []
        while True:
            epoch, place = divmod(at, len(groups))
            group = groups[epoch_order(len(groups), seed, epoch)[place]]
            if len(rows) + len(group) > size or (rows and rows[0] in group):
                break
            rows += group
            at += 1
    return rows
