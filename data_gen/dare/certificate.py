"""What a build says of itself: the certificate, and why tables gave nothing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from data_gen.dare.database import Built
from data_gen.dare.proof import DIFFERS, UNPROVABLE, counts
from data_gen.inputs import Input
from rewards.task import Task, TaskError
from rewards.versions import TABLES, installed


def inputs_of(found: Sequence[Built], rows: Sequence[Mapping[str, Any]]) -> list[Input]:
    """One input a table: how many tasks of the question list it gave, and why there are no more."""
    tasks, why = Counter[str](), dict[str, list[str]]()
    licences: dict[str, str] = {}
    for row in rows:
        tasks[str(row["source"])] += sum(bool(row[f"question_v{n}"]) for n in (1, 2))
    for built in found:
        why.setdefault(built.source, []).extend(built.refused)
        licences[built.source] = built.licence
    return [Input(name, tasks[name], tuple(why[name]), licences[name]) for name in sorted(why)]


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
    said = [r.partition(": ")[2] or r for b in found for r in b.refused]
    reasons = Counter(map(_kind, said))
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
        "gold_proved_twice": counts(len(rows), (r for b in found for r in b.refused)),
        "refused": dict(reasons.most_common()),
        "several_targets": sum(len(row["target"]) > 1 for row in rows),
        "nearly_the_same": repeats,
        "licences": dict(Counter(str(r["licence"]) for r in rows).most_common()),
        "domains": dict(Counter(str(r["domain"]) for r in rows).most_common()),
    }


def _kind(reason: str) -> str:
    """A reason without the names in it."""
    for kind in (UNPROVABLE, DIFFERS):
        if reason.startswith(kind):
            return kind
    if reason.startswith("a copy of "):
        return "a copy of another table"
    found = re.search(r"(alone gives?|gives? it|give it|another target, gives) .*", reason)
    if found or reason.endswith(("alone gives the answers", "gives it")):
        how = re.search(r"\((.*)\)", reason)
        return f"other columns give it{f' ({how[1]})' if how else ''}"
    return reason
