"""Watching a run, step by step, for signs of a farmed reward and of nothing learned: a warning
line, a field of the log.

The signs themselves are pure functions (`train.run.hacking`, `train.run.verdict`). They never stop
a run.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.family import family_of, gold_answer
from assay.task import Answer, Task
from rollouts.trajectory import Trajectory
from train.run.hacking import StepMeans, named_signs
from train.run.log import read_metrics
from train.run.verdict import FIRST, warnings_of

FIELD = "signs"  # in metrics.jsonl: kind of sign -> sentence; not there without a sign


def watch_of(folder: Path, tasks: Sequence[Task]) -> Callable[..., Mapping[str, Any]]:
    """What the loop of a run in `folder` over `tasks` calls after every step, before it logs it.

    The steps before a resume are read from the log. A sign is printed when it comes up, and not
    again while it lasts; the log names it in every step.
    """
    expected = commonest(tasks)
    rows: list[Mapping[str, Any]] | None = None
    before: list[StepMeans] = []
    lasting: set[str] = set()

    def watch(
        step: int,
        metrics: Mapping[str, float],
        asked: Sequence[Task],
        groups: Sequence[Sequence[Trajectory]],
    ) -> Mapping[str, Any]:
        nonlocal rows, lasting
        if rows is None:
            rows, lasting = logged(folder, step)
            before.extend(map(means_of, rows))
        rows.append(metrics)
        before.append(means_of(metrics))
        answers = [
            (task.id, said(rollout.answer()))
            for task, group in zip(asked, groups, strict=True)
            for rollout in group
            if rollout.failure is None
        ]
        found = named_signs(before, answers, expected)
        if len(rows) >= FIRST:
            found |= warnings_of(rows, "rl")
        for kind in found.keys() - lasting:
            print(f"warning: step {step}: {found[kind]}", flush=True)
        lasting = {*found}
        return {FIELD: found} if found else {}

    return watch


def logged(folder: Path, step: int) -> tuple[list[Mapping[str, Any]], set[str]]:
    """The steps before `step` in a folder's log, and the signs of the last of them."""
    rows = [r for r in read_metrics(folder) if r.get("stage") == "rl" and r["step"] < step]
    return [*rows], {*(rows[-1].get(FIELD) or {})} if rows else set()


def means_of(metrics: Mapping[str, Any]) -> StepMeans:
    """A step's means; what was not measured counts as 0."""
    names = ("reward/mean", "outcome/mean", "response_length/mean")
    reward, outcome, length = (float(metrics.get(name) or 0.0) for name in names)
    return StepMeans(reward, outcome, length)


def said(answer: Answer) -> str:
    """An answer in words: its files where it has any, which a last message does not tell apart."""
    if not answer.files:
        return answer.text
    return " ".join(
        f"{name} {hashlib.sha256(data).hexdigest()[:12]}"
        for name, data in sorted(answer.files.items())
    )


def commonest(tasks: Sequence[Task]) -> float:
    """The share of tasks whose gold is the commonest gold; 0 where no gold is known."""
    golds = Counter(gold for task in tasks if (gold := _gold(task)) is not None)
    return max(golds.values(), default=0) / max(len(tasks), 1)


def _gold(task: Task) -> str | None:
    try:
        gold = gold_answer(family_of(task), task)
    except Exception:  # gold is the audit's to judge
        return None
    return None if gold is None else " ".join(said(gold).split()).casefold()
