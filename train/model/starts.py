# torch and transformers ship partial types: what is unknown there cannot be known here.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false
"""From which of a task's exact states a step asks it, by what was reached from there
(`rl.gold_state=thompson`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from configs.training import GrpoConfig
from rewards.seeds import derive_seed
from rewards.task import Task
from train.model.batch import GOLD_STEPS
from train.model.order import FORGET, States, begins, kind_of


@dataclass
class Starts:
    """How often tasks of a kind (family, track, difficulty) are solved once k of their steps are
    done: a Beta distribution for each kind and k, from 1, 1. Older outcomes count less."""

    seen: dict[tuple[str, int], tuple[float, float, int]] = field(
        default_factory=dict[tuple[str, int], tuple[float, float, int]]
    )  # (kind, k) -> (passed, failed, step they are counted for)

    def pose(self, task: Task, step: int, config: GrpoConfig, seed: int, states: States) -> Task:
        """The task as a step asks it: whole, or begun at one of its states.

        Thompson sampling: for every k a success rate p is drawn from its distribution, and the k
        with the highest p(1 − p) is asked, whose group likely has both better and worse answers.
        The same seed, step, task and outcomes so far give the same k.
        """
        choices = [task, *states(task)] if begins(task, step, config, seed) else [task]
        if len(choices) == 1:
            return task
        key = derive_seed(seed, "start", step, task.id)
        generator = np.random.Generator(np.random.Philox(key))
        counts = [self._at((kind_of(one), _done(one)), step) for one in choices]
        rates = generator.beta([1 + p for p, _ in counts], [1 + f for _, f in counts])
        return choices[int(np.argmax(rates * (1 - rates)))]

    def _at(self, key: tuple[str, int], step: int) -> tuple[float, float]:
        passed, failed, when = self.seen.get(key, (0.0, 0.0, step))
        left = FORGET ** (step - when)
        return passed * left, failed * left

    def learn(self, step: int, tasks: Sequence[Task], outcomes: Sequence[Sequence[float]]) -> None:
        """Count what the rollouts of a step's tasks reached, tasks as they were asked."""
        for task, reached in zip(tasks, outcomes, strict=True):
            key = (kind_of(task), _done(task))
            passed, failed = self._at(key, step)
            total = sum(reached)
            self.seen[key] = (passed + total, failed + len(reached) - total, step)

    def state(self) -> dict[str, Any]:
        """JSON data for a checkpoint; {} before anything was counted."""
        rows = [[kind, k, *seen] for (kind, k), seen in sorted(self.seen.items())]
        return {"starts": rows} if rows else {}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint's `state`."""
        rows: list[Any] = state.get("starts") or []
        self.seen = {(str(n), int(k)): (float(p), float(f), int(s)) for n, k, p, f, s in rows}


def _done(task: Task) -> int:
    return int(task.meta.get(GOLD_STEPS, 0))
