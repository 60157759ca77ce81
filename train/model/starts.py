# torch and transformers ship partial types: what is unknown there cannot be known here.
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false
"""From which of a task's exact states a step asks it (`rl.gold_state`): by a schedule, or by what
was reached from there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from assay.seeds import derive_seed
from assay.task import Task
from configs.training import GrpoConfig

GOLD_STEPS = "gold_steps"  # in a task's meta: steps that were done for the model
FORGET = 0.97  # of an observation's weight is left a step later; half of it after 23 steps
States = Callable[[Task], Sequence[Task]]
Key = TypeVar("Key")
Count = tuple[float, float, int]  # (passed, failed, step they are counted for)


def whole(task: Task) -> Sequence[Task]:
    """A task without states."""
    return ()


def begins(task: Task, step: int, config: GrpoConfig, seed: int) -> bool:
    """Whether a step may ask the task from one of its states (`rl.gold_state_share`)."""
    drawn = derive_seed(seed, "gold state", step, task.id)
    return config.gold_state != "off" and drawn < config.gold_state_share * 2**63


def posed(task: Task, step: int, config: GrpoConfig, seed: int, states: States) -> Task:
    """The task as a step asks it: under `rl.gold_state=anneal` from the exact state after k of its
    n steps, k falling from n − 1 at the first step to 0 at the last.

    A reverse curriculum (Xi et al. 2024, arXiv 2402.05808), with states that are executed and not
    demonstrated. Whether a prompt begins so depends on (seed, step, task).
    """
    if not begins(task, step, config, seed):
        return task
    begun = states(task)
    left = 1 - step / max(config.steps - 1, 1)
    done = round(left * len(begun))
    return begun[done - 1] if done else task


def kind_of(task: Task) -> str:
    """What pass rates are shared over."""
    return f"{task.family} {task.track} {task.meta.get('difficulty')}"


def faded(seen: Mapping[Key, Count], key: Key, step: int) -> tuple[float, float]:
    """(passed, failed), as they count at a step."""
    passed, failed, when = seen.get(key, (0.0, 0.0, step))
    left = FORGET ** (step - when)
    return passed * left, failed * left


def count(seen: dict[Key, Count], key: Key, outcomes: Sequence[float], step: int) -> None:
    """Count the outcomes (0 to 1) of one prompt's rollouts at a step."""
    passed, failed = faded(seen, key, step)
    total = sum(outcomes)
    seen[key] = (passed + total, failed + len(outcomes) - total, step)


@dataclass
class Starts:
    """What asks a task whole or from one of its states. Under `rl.gold_state=thompson` it counts
    how often tasks of a kind (family, track, difficulty) are solved once k of their steps are done:
    a Beta distribution for each kind and k, at first Beta(1, 1). Older outcomes count less."""

    config: GrpoConfig
    seed: int
    seen: dict[tuple[str, int], Count] = field(default_factory=dict[tuple[str, int], Count])

    @property
    def counts(self) -> bool:
        """Whether outcomes decide."""
        return self.config.gold_state == "thompson"

    def pose(self, task: Task, step: int, states: States) -> Task:
        """The task as a step asks it: whole, or begun at one of its states.

        Thompson sampling: for every k a success rate p is drawn from its distribution, and the k
        with the highest p(1 − p) is asked, whose group likely has both better and worse answers.
        The same seed, step, task and outcomes so far give the same k.
        """
        if not self.counts:
            return posed(task, step, self.config, self.seed, states)
        choices = [task, *states(task)] if begins(task, step, self.config, self.seed) else [task]
        if len(choices) == 1:
            return task
        key = derive_seed(self.seed, "start", step, task.id)
        generator = np.random.Generator(np.random.Philox(key))
        counts = [faded(self.seen, _key(one), step) for one in choices]
        rates = generator.beta([1 + p for p, _ in counts], [1 + f for _, f in counts])
        return choices[int(np.argmax(rates * (1 - rates)))]

    def learn(self, step: int, tasks: Sequence[Task], outcomes: Sequence[Sequence[float]]) -> None:
        """Count what the rollouts of a step's tasks reached, tasks as they were asked."""
        if not self.counts:
            return
        for task, reached in zip(tasks, outcomes, strict=True):
            count(self.seen, _key(task), reached, step)

    def state(self) -> dict[str, Any]:
        """JSON data for a checkpoint; {} before anything was counted."""
        rows = [[kind, k, *seen] for (kind, k), seen in sorted(self.seen.items())]
        return {"starts": rows} if rows else {}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint's `state`."""
        rows: list[Any] = state.get("starts") or []
        self.seen = {(str(n), int(k)): (float(p), float(f), int(s)) for n, k, p, f, s in rows}


def _key(task: Task) -> tuple[str, int]:
    """Its kind, and how many of its steps were done for the model."""
    return kind_of(task), int(task.meta.get(GOLD_STEPS, 0))
