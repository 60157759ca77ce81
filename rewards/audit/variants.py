"""Gold in other clothes: respellings of a task's gold, and twins of the task.

A respelling changes spaces, the form of a number, quotes, the order of keys and the like. Where the
benchmark's own reading takes one, training must not reject its content. A twin is the same problem
with other names and numbers, its gold computed again: whoever works solves both, whoever remembers
the plain task's answer fails on the twin.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from assay.family import Family, as_answer, called
from assay.task import RIGHT, Score, Task, TaskError
from rewards.audit.laws import Broken, Earned, Weights, earned_by, gold_law, gold_of, scored
from rewards.audit.policies import LEAST, sample

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
    """Score every respelling of gold that the family gives, by kind; empty where it gives none."""
    audit = family.audited
    if audit.spellings is None:
        return {}
    found: defaultdict[tuple[str, str], list[tuple[bool, bool]]] = defaultdict(list)
    for task in tasks:
        for name, said in audit.spellings(task).items():
            answer = as_answer(said)
            own = audit.benchmark(task, answer) if audit.benchmark is not None else None
            pair = (scored(task, answer).outcome or 0.0) >= RIGHT, (own or 0.0) >= RIGHT
            found[audit.kind(task), name].append(pair)
    rows: defaultdict[str, list[Respelled]] = defaultdict(list)
    for (kind, name), pairs in found.items():
        training, own = (sum(column) for column in zip(*pairs, strict=True))
        own = own if audit.benchmark is not None else None
        rows[kind].append(Respelled(name, len(pairs), training, own))
    return rows


def respelled_lines(found: Mapping[str, Sequence[Respelled]]) -> list[str]:
    """Write one line a kind: how many respellings score 1, and which do not."""
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

    twins: int = 0
    recalled: tuple[Earned, ...] = ()
    broken: tuple[Broken, ...] = ()


def twins_of(
    family: Family, tasks: Sequence[Task], seed: int, most: int = SAMPLED
) -> Iterator[tuple[Task, Task]]:
    """Yield (task, twin): tasks of the file that name another as `meta.plain`, then those that
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
        with called(family, task, "twin"):
            made = twin(task, seed)
        if made is not None:
            yield task, made


def twinned(
    family: Family,
    tasks: Sequence[Task],
    seed: int,
    step: Callable[[], object] = lambda: None,
    weights: Weights | None = None,
) -> Twinned:
    """Check that gold of every twin scores 1, and that gold of the plain task earns no more on
    it than its kind's floor."""
    again: defaultdict[str, list[Score]] = defaultdict(list)
    broken: list[Broken] = []
    count = 0
    try:
        for plain, twin in twins_of(family, tasks, seed):
            count += 1
            remembered = gold_of(family, plain)
            score = scored(twin, gold_of(family, twin), weights)
            broken += [Broken("twin", b.where, b.why) for b in gold_law(twin, score)]
            again[family.audited.kind(plain)].append(scored(twin, remembered, weights))
            step()
    except TaskError as error:
        broken.append(Broken("twin", f"family {family.name}", str(error)))
    found = [earned_by("gold of the plain task", kind, scores) for kind, scores in again.items()]
    recalled = tuple(one for one in found if one.pairs)
    for one in recalled:
        most = family.audited.floor(one.kind).outcome
        if len(one.pairs) >= LEAST and one.surely(0) > most + 1e-9:
            why = f"remembered gold scores {one.mean(0):.3f} on {len(one.pairs)} twins; the floor"
            where = f"{one.policy} ({one.kind})"
            broken.append(Broken("twin", where, f"{why} is {most:g}"))
    return Twinned(count, recalled, tuple(broken))


def twins_as_data(found: Twinned) -> Mapping[str, object]:
    """Write twins for a JSON report."""
    return {
        "twins": found.twins,
        "recalled": [
            {"kind": e.kind, "tasks": len(e.pairs), "outcome": e.mean(0), "reward": e.mean(1)}
            for e in found.recalled
        ],
    }
