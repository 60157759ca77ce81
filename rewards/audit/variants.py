"""Gold in other clothes: respellings of a task's gold, and twins of the task.

A respelling changes spaces, the form of a number, quotes, the order of keys and the like. Where the
benchmark's own reading takes one, training must not reject its content. A twin is the same problem
with other names and numbers, its gold computed again: whoever works solves both, whoever remembers
the plain task's answer fails on the twin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from assay import scorer_timeout as guard
from assay.family import Family, as_answer
from assay.task import RIGHT, Task, TaskError
from rewards.audit.laws import Broken, Weights, gold_law, gold_of, scored
from rewards.audit.policies import LEAST, Earned, sample

SAMPLED = 20  # tasks of a family that twins are made of


@dataclass(frozen=True)
class Respelled:
    """How many of `tasks` score 1 in the training reading, and in the benchmark's own (None: the
    family has no other)."""

    name: str
    tasks: int
    training: int
    benchmark: int | None


def respelled(family: Family, tasks: Sequence[Task]) -> dict[str, list[Respelled]]:
    """By kind, every respelling of the family; empty where it has none."""
    audit = family.audited
    if audit.spellings is None:
        return {}
    found: dict[str, dict[str, list[tuple[bool, bool | None]]]] = {}
    for task in tasks:
        kind = found.setdefault(audit.kind(task), {})
        for name, said in audit.spellings(task).items():
            answer = as_answer(said)
            training = scored(task, answer).outcome
            own = None
            if audit.benchmark is not None:
                own = (audit.benchmark(task, answer) or 0.0) >= RIGHT
            kind.setdefault(name, []).append(((training or 0.0) >= RIGHT, own))
    return {
        kind: [_respelled(name, pairs) for name, pairs in r.items()] for kind, r in found.items()
    }


def _respelled(name: str, pairs: Sequence[tuple[bool, bool | None]]) -> Respelled:
    own = None if pairs[0][1] is None else sum(bool(b) for _, b in pairs)
    return Respelled(name, len(pairs), sum(t for t, _ in pairs), own)


def respelled_lines(found: Mapping[str, Sequence[Respelled]]) -> list[str]:
    """One line a kind: how many respellings score 1, and which do not."""
    said: list[str] = []
    for kind, rows in sorted(found.items()):
        whole = [r for r in rows if r.training == r.tasks]
        failed = [f"{r.name} ({_whose(r)})" for r in rows if r.training < r.tasks]
        line = f"  gold respelled, {kind}: {len(whole)} of {len(rows)} score 1"
        said.append(line + (f"; not: {', '.join(failed)}" if failed else ""))
    return said


def _whose(row: Respelled) -> str:
    """Who rejects it."""
    if row.benchmark is None:
        return "rejected"
    if row.benchmark < row.tasks and row.training <= row.benchmark:
        return "the benchmark's own reading too"
    return "training only"


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
    `Audit.twin` makes of a sample. Raises `TaskError` where that function raises."""
    known = {task.id: task for task in tasks}
    for task in tasks:
        if (plain := known.get(str(task.meta.get("plain")))) is not None:
            yield plain, task
    if (twin := family.audited.twin) is None:
        return
    for task in sample(tasks, most, seed, "twins"):
        if "plain" in task.meta:
            continue
        try:
            made = twin(task, seed)
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
                pairs.setdefault(family.audited.kind(plain), []).append(
                    (again.outcome, again.reward or 0.0)
                )
            step()
    except TaskError as error:
        broken.append(Broken("twin", f"family {family.name}", str(error)))
    recalled = [Earned("gold of the plain task", kind, tuple(p)) for kind, p in pairs.items()]
    broken += _recall_laws(family, recalled)
    return Twinned(count, tuple(recalled), tuple(broken))


def _recall_laws(family: Family, recalled: Sequence[Earned]) -> Iterator[Broken]:
    for one in recalled:
        floor = family.audited.floor(one.kind)
        if len(one.pairs) >= LEAST and one.surely(0) > floor.outcome + 1e-9:
            why = (
                f"remembered gold scores {one.mean(0):.3f} on {len(one.pairs)} twins; the floor is "
                f"{floor.outcome:g}"
            )
            yield Broken("twin", f"{one.policy} ({one.kind})", why)


def twins_as_data(found: Twinned) -> Mapping[str, object]:
    """For a JSON report."""
    return {
        "twins": found.twins,
        "recalled": [
            {"kind": e.kind, "tasks": len(e.pairs), "outcome": e.mean(0), "reward": e.mean(1)}
            for e in found.recalled
        ],
    }
