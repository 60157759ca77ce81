"""What a build says of itself: the certificate, and why tables gave nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from data_gen.dare.database import Built
from rewards.task import Task, TaskError
from rewards.versions import TABLES, installed

SHOWN = 12  # tables whose refusal is printed


def refusals(found: Sequence[Built]) -> Iterator[dict[str, Any]]:
    """One row a table that gave fewer databases than it might have: its name, how many it gave,
    and why there are no more."""
    kept = Counter[str]()
    why: dict[str, list[str]] = {}
    for built in found:
        kept[built.source] += len(built.rows)
        why.setdefault(built.source, []).extend(built.refused)
    for name in sorted(why):
        if why[name]:
            yield {"table": name, "databases": kept[name], "refused": why[name]}


def shortage(found: Sequence[Built], have: int, wanted: int) -> str:
    """What to tell someone who asked for more databases than the tables gave."""
    rows = [row for row in refusals(found) if not row["databases"]]
    shown = [f"  {row['table']}: {'; '.join(row['refused'][:3])}" for row in rows[:SHOWN]]
    more = [f"  … and {len(rows) - SHOWN} more tables"] if len(rows) > SHOWN else []
    tables = len({built.source for built in found})
    return "\n".join([f"{have} of {wanted} databases: {tables} tables gave no more", *shown, *more])


def certificate(
    found: Sequence[Built],
    rows: Sequence[dict[str, Any]],
    tasks: Sequence[Task],
    seed: int,
) -> dict[str, Any]:
    """What was built, from what, what was refused and why, and that the splits share no table."""
    tables = {
        split: {t.meta["table_group"] for t in tasks if t.split == split}
        for split in ("train", "heldout")
    }
    shared = tables["train"] & tables["heldout"]
    if shared:
        raise TaskError(f"{len(shared)} tables are in both splits; nothing was certified")
    said = [r.partition(": ")[2] or r for b in found for r in b.refused]
    reasons = Counter("a copy of another table" if r.startswith("a copy of ") else r for r in said)
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
        "refused": dict(reasons.most_common()),
        "domains": dict(Counter(str(r["domain"]) for r in rows).most_common()),
    }
