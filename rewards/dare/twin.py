# pandas ships no types for what is used here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""A table task's isomorphic twin: the same keys, other labels and numbers.

The twin is for scoring: it shows whether remembered predictions pay. Its files are not written, so
that it has none. Columns keep their names, or remembered predictions would fail by their header.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from assay.seeds import derive_seed
from assay.task import Task, TaskError
from rewards.dare.prediction import read_gold
from rewards.dare.read import read_truth


def table_twin(task: Task, seed: int) -> Task | None:
    """The task with its labels exchanged in a circle and its numbers scaled and mirrored.

    None where the truth stands in a folder of its own, cannot be read, or holds one label only.
    """
    if "truth_csv" not in task.gold:
        return None
    try:
        gold = read_gold(task.gold)
    except TaskError:
        return None
    rng = Random(derive_seed(seed, "twin", task.id))
    truth = read_truth(gold.truth_csv).copy()
    for name in gold.targets:
        changed = _changed(truth[name], gold.task_type, rng)
        if changed is None:
            return None
        truth[name] = changed
    return replace(
        task,
        id=f"{task.id}-twin",
        gold={**task.gold, "truth_csv": truth.to_csv(index=False)},
        files={},
        meta={**task.meta, "plain": task.id},
    )


def _changed(column: Any, task_type: str, rng: Random) -> Any:
    """Labels each by the next one; numbers a - b·x, so that their order is turned around."""
    if task_type.startswith("class") or column.dtype.kind not in "iuf":
        labels = sorted(column.dropna().unique().tolist(), key=str)
        if len(labels) < 2:
            return None
        turned = dict(zip(labels, [*labels[1:], labels[0]], strict=True))
        return column.replace(turned)
    return rng.randrange(3, 99) * 10 - column * rng.randrange(2, 9)
