"""Scored rollouts from the files of several runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from rewards.task import TaskError, read_jsonl

NEEDED = ("task_id", "sample", "outcome", "reward", "track", "tokens", "messages")


def read_rollouts(path: Path) -> list[dict[str, Any]]:
    """Scored rollouts. Raises `TaskError` naming file, line and field."""
    rows: list[dict[str, Any]] = []
    for number, row in read_jsonl(path):
        for name in NEEDED:
            if name not in row:
                raise TaskError(
                    f"{path} line {number}: field {name!r} is missing; give a file that "
                    "`assay rollout` wrote"
                )
        if row.get("published"):
            raise TaskError(
                f"{path} line {number}: task {row['task_id']} is a published benchmark task (or "
                "its gold is doubted); select from rollouts of generated tasks, and keep it for "
                "`assay eval`"
            )
        rows.append(row)
    if not rows:
        raise TaskError(f"{path}: no rollouts in it")
    return rows


def merged(files: Sequence[Path]) -> list[dict[str, Any]]:
    """The rollouts of all files, in order. Where two runs numbered samples of a task alike, those
    of later runs get the next free numbers. Raises `TaskError` for a file given twice and for a
    rollout that one run wrote twice."""
    if twice := [f for f, k in Counter(map(Path.resolve, files)).items() if k > 1]:
        raise TaskError(f"{twice[0]}: given twice; name each file once")
    runs: dict[tuple[int, Any], list[dict[str, Any]]] = {}
    for number, path in enumerate(files):
        for row in read_rollouts(path):
            runs.setdefault((number, row.get("run_seed")), []).append(row)
    taken: dict[str, int] = {}  # task → the first number that no earlier run has
    out: list[dict[str, Any]] = []
    for (number, _), rows in runs.items():
        highest: dict[str, int] = {}
        seen: set[tuple[str, int]] = set()
        for row in rows:
            task, sample = str(row["task_id"]), int(row["sample"])
            if (task, sample) in seen:
                raise TaskError(
                    f"{files[number]}: task {task} has sample {sample} twice; give each run a "
                    "--seed and a file of its own"
                )
            seen.add((task, sample))
            highest[task] = max(highest.get(task, 0), taken.get(task, 0) + sample + 1)
            out.append({**row, "sample": taken.get(task, 0) + sample})
        taken |= highest
    return out


def wanted(
    rows: Sequence[Mapping[str, Any]], tracks: Collection[str], families: Collection[str]
) -> list[Mapping[str, Any]]:
    """Rows of these tracks and families (empty: of all). Raises `TaskError` for a name that no row
    has."""
    for field, names in (("track", tracks), ("family", families)):
        there = {str(row.get(field)) for row in rows}
        if gone := [n for n in names if n not in there]:
            raise TaskError(
                f"no rollout has {field} {gone[0]!r}; there is {', '.join(sorted(there))}"
            )
    return [
        row
        for row in rows
        if (not tracks or row["track"] in tracks)
        and (not families or row.get("family") in families)
    ]
