"""Isomorphic twins: the same problem with other names and numbers, its gold computed again.

Whoever works solves both; whoever remembers the plain task's answer fails on the twin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from assay import scorer_timeout as guard
from assay.family import Family, floor_of
from assay.task import Score, Task, TaskError
from rewards.audit.laws import Broken, Weights, gold_law, gold_of, scored
from rewards.audit.policies import LEAST, Earned, sample

SAMPLED = 20  # tasks of a family that twins are made of


@dataclass(frozen=True)
class Twinned:
    """How many twins there are, and what remembered gold earns on them by kind."""

    twins: int
    recalled: tuple[Earned, ...]
    broken: tuple[Broken, ...]


def twins_of(
    family: Family, tasks: Sequence[Task], seed: int, most: int = SAMPLED
) -> Iterator[tuple[Task, Task]]:
    """(task, twin): tasks of the file that name another as `meta.plain`, then those that
    `Family.twin` makes of a sample. Raises `TaskError` where that function raises."""
    known = {task.id: task for task in tasks}
    for task in tasks:
        if (plain := known.get(str(task.meta.get("plain")))) is not None:
            yield plain, task
    if family.twin is None:
        return
    for task in sample(tasks, most, seed, "twins"):
        if "plain" in task.meta:
            continue
        try:
            made = family.twin(task, seed)
        except (Exception, SystemExit, guard.Overtime) as error:
            raise TaskError(
                f"task {task.id}: twin of family {family.name} raised "
                f"{type(error).__name__}: {error}"
            ) from None
        if made is not None:
            yield task, made


def twinned(
    family: Family,
    tasks: Sequence[Task],
    seed: int,
    step: Callable[[], object] = lambda: None,
    weights: Weights | None = None,
) -> Twinned:
    """Gold of every twin scores 1; gold of the plain task earns no more than its kind's floor."""
    pairs: dict[str, list[tuple[float, float]]] = {}
    broken: list[Broken] = []
    count = 0
    try:
        for plain, twin in twins_of(family, tasks, seed):
            count += 1
            remembered = gold_of(family, plain)
            score = scored(twin, gold_of(family, twin), weights)
            broken += [Broken("twin", b.where, b.why) for b in gold_law(twin, score)]
            again = scored(twin, remembered, weights)
            if again.outcome is not None:
                pairs.setdefault(family.kind(plain), []).append(_pair(again))
            step()
    except TaskError as error:
        broken.append(Broken("twin", f"family {family.name}", str(error)))
    recalled = [Earned("gold of the plain task", kind, tuple(p)) for kind, p in pairs.items()]
    broken += _recall_laws(family, recalled)
    return Twinned(count, tuple(recalled), tuple(broken))


def _pair(score: Score) -> tuple[float, float]:
    return score.outcome or 0.0, score.reward or 0.0


def _recall_laws(family: Family, recalled: Sequence[Earned]) -> Iterator[Broken]:
    for one in recalled:
        floor = floor_of(family, one.kind)
        if len(one.pairs) >= LEAST and one.surely(0) > floor.outcome + 1e-9:
            why = (
                f"remembered gold scores {one.mean(0):.3f} on {len(one.pairs)} twins; the floor is "
                f"{floor.outcome:g}"
            )
            yield Broken("twin", f"{one.policy} ({one.kind})", why)


def plain(found: Twinned) -> Mapping[str, object]:
    """For a JSON report."""
    return {
        "twins": found.twins,
        "recalled": [
            {"kind": e.kind, "tasks": len(e.pairs), "outcome": e.mean(0), "reward": e.mean(1)}
            for e in found.recalled
        ],
    }
