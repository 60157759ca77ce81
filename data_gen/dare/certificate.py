"""What a build says of itself: the certificate, and why tables gave nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from assay.record import TABLES, installed
from assay.tables.settings import Doubt, count
from assay.task import Task, TaskError
from data_gen.dare.database import Built
from data_gen.dare.proof import counts
from data_gen.tally import Input


def inputs_of(found: Sequence[Built], rows: Sequence[Mapping[str, Any]]) -> list[Input]:
    """One input a table: how many tasks of the question list it gave, why there are no more, and
    its doubts."""
    tasks, why = Counter[str](), dict[str, list[str]]()
    licences: dict[str, str] = {}
    doubts: dict[str, list[Doubt]] = {}
    for row in rows:
        tasks[str(row["source"])] += sum(bool(row[f"question_v{n}"]) for n in (1, 2))
    built_of = {built.source for built in found if built.rows}
    for built in found:
        why.setdefault(built.source, []).extend(map(str, built.refused))
        doubts.setdefault(built.source, []).extend(built.doubts)
        licences[built.source] = built.licence
    for name, said in why.items():
        if name in built_of and not tasks[name]:
            said.append("there were enough without it, or it asks nearly the same as another")
        elif not (said or doubts[name] or tasks[name]):
            said.append("no column can be a target")
    return [
        Input(n, tasks[n], tuple(why[n]), licences[n], doubts=tuple(doubts[n])) for n in sorted(why)
    ]


def certificate(
    found: Sequence[Built],
    rows: Sequence[dict[str, Any]],
    tasks: Sequence[Task],
    seed: int,
    repeats: int,
) -> dict[str, Any]:
    """What was built, from what, what was refused and why, and that the splits share no table."""
    groups = Counter(g for _, g in {(t.split, t.meta["table_group"]) for t in tasks})
    shared = [group for group, splits in groups.items() if splits > 1]
    if shared:
        raise TaskError(f"{len(shared)} tables are in two splits; nothing was certified")
    once = {b.source for b in found if b.once}
    reasons = Counter(r.code for b in found for r in b.refused)
    return {
        "seed": seed,
        "versions": installed(TABLES),
        "databases": len(rows),
        "tasks": len(tasks),
        "tables": len({row["table_group"] for row in rows}),
        "sources": len({row["source"] for row in rows}),
        "tracks": dict(sorted(Counter(t.track for t in tasks).items())),
        "splits": dict(Counter(t.split for t in tasks)),
        "shared_tables": len(shared),
        "tables_looked_at": len({b.source for b in found}),
        "gold_proved_twice": counts(
            [str(row["source"]) not in once for row in rows],
            (r.said for b in found for r in b.refused),
        ),
        "refused": dict(reasons.most_common()),
        "doubts": count(dict.fromkeys(d for b in found for d in b.doubts)),
        "several_targets": sum(len(row["target"]) > 1 for row in rows),
        "nearly_the_same": repeats,
        "licences": dict(Counter(str(r["licence"]) for r in rows).most_common()),
        "domains": dict(Counter(str(r["domain"]) for r in rows).most_common()),
    }
