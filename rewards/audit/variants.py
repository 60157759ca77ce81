"""Gold in other clothes: respellings of a task's gold, and twins of the task.

A respelling changes spaces, the form of a number, quotes, the order of keys and the like. Where the
benchmark's own reading takes one, training must not reject its content. A twin is the same problem
with other names and numbers, its gold computed again: whoever works solves both, whoever remembers
the plain task's answer fails on the twin.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from assay.family import Family, as_answer, called
from assay.task import RIGHT, Score, Task, TaskError
from rewards.audit.policies import LEAST, sample
from rewards.audit_laws import Audited, Broken, Respelled, earned_by, gold_law, gold_of, scored

SAMPLED = 20  # tasks of a family that twins are made of


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
    """Write one line a kind: how many respellings score 1, and which do not, and who rejects
    them."""
    said: list[str] = []
    for kind, rows in sorted(found.items()):
        failed: list[str] = []
        for row in (r for r in rows if r.training < r.tasks):
            whose = "training only" if row.benchmark is not None else "rejected"
            if row.benchmark is not None and row.training <= row.benchmark < row.tasks:
                whose = "the benchmark's own reading too"
            failed.append(f"{row.name} ({whose})")
        line = f"  gold respelled, {kind}: {len(rows) - len(failed)} of {len(rows)} score 1"
        said.append(line + (f"; not: {', '.join(failed)}" if failed else ""))
    return said


def _twins_of(found: Audited, tasks: Sequence[Task]) -> Iterator[tuple[Task, Task]]:
    """(task, twin): tasks of the file that name another as `meta.plain`, then those that
    `Audit.twin` makes of a sample. Raises `TaskError` where that function raises."""
    known = {task.id: task for task in tasks}
    for task in tasks:
        if (plain := known.get(str(task.meta.get("plain")))) is not None:
            yield plain, task
    if (twin := found.family.audited.twin) is None:
        return
    for task in sample(tasks, SAMPLED, found.seed, "twins"):
        if "plain" not in task.meta:
            with called(found.family, task, "twin"):
                made = twin(task, found.seed)
            if made is not None:
                yield task, made


def find_twins(found: Audited, tasks: Sequence[Task]) -> None:
    """Check that gold of every twin scores 1, and that gold of the plain task earns no more on
    it than its kind's floor."""
    family, again = found.family, defaultdict[str, list[Score]](list)
    try:
        for plain, twin in _twins_of(found, tasks):
            found.twins += 1
            remembered = gold_of(family, plain)
            score = scored(twin, gold_of(family, twin), found.weights)
            found.broken += [Broken("twin", b.where, b.why) for b in gold_law(twin, score)]
            again[family.audited.kind(plain)].append(scored(twin, remembered, found.weights))
            found.step()
    except TaskError as error:
        found.broken.append(Broken("twin", f"family {family.name}", str(error)))
    earned = [earned_by("gold of the plain task", kind, scores) for kind, scores in again.items()]
    found.recalled = [one for one in earned if one.pairs]
    for one in found.recalled:
        most = family.audited.floor(one.kind).outcome
        if len(one.pairs) >= LEAST and one.surely(0) > most + 1e-9:
            why = f"remembered gold scores {one.mean(0):.3f} on {len(one.pairs)} twins; the floor"
            where = f"{one.policy} ({one.kind})"
            found.broken.append(Broken("twin", where, f"{why} is {most:g}"))
