# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownVariableType=false
"""An evaluation in parts: `--part I/N` asks every N-th task, `--gather` joins finished parts.

Parts are decided by the tasks and N alone, so jobs agree on them without talking. A gathered
evaluation has the rows and tables of one that asked everything.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.journal import (
    Row,
    key_of,
    read_journal,
    read_record,
    refuse_other,
    refuse_other_tasks,
    task_hash,
)
from assay.task import Task, TaskError, json_text

RESULTS, ROWS, RECORD = "results.json", "rows.jsonl", "eval.json"  # in an evaluation's folder


def part_of(tasks: Sequence[Task], word: str, unit: Callable[[Task], str]) -> list[Task]:
    """The tasks of part `word`, "I/N" with I from 0; all for "". `unit`: tasks of one name stay
    together. Raises `TaskError`."""
    if not word:
        return list(tasks)
    first, slash, second = word.partition("/")
    if not (slash and first.isdecimal() and second.isdecimal() and int(first) < int(second)):
        raise TaskError(f"--part {word}: wanted I/N, with I from 0 to N-1, such as 0/8")
    numbers = {name: k for k, name in enumerate(dict.fromkeys(map(unit, tasks)))}
    return [task for task in tasks if numbers[unit(task)] % int(second) == int(first)]


def gathered(
    folders: Sequence[Path], tasks: Sequence[Task], settings: Mapping[str, Any], samples: int
) -> tuple[dict[tuple[str, int], Row], list[dict[str, str]]]:
    """(rows by task and sample, what answered them) of finished parts. Raises `TaskError` for a
    part that is not finished, has other settings, or does not belong; and where tasks are left."""
    rows: dict[tuple[str, int], Row] = {}
    answered_by: list[dict[str, str]] = []
    asked = {task.id: task_hash(task) for task in tasks}
    for folder in folders:
        record = _record(folder)
        refuse_other(folder, record, json.loads(json_text(settings)), "--gather")
        found = {key_of(row, folder / ROWS): row for row in read_journal(folder / ROWS)}
        refuse_other_tasks(folder, found, asked, "--gather")
        twice = sorted(found.keys() & rows.keys())
        if twice:
            raise TaskError(
                f"--gather {folder}: task {twice[0][0]} is in another part too; give each part once"
            )
        rows |= found
        answered_by += record.get("answered_by") or []
    missing = [t.id for t in tasks for j in range(samples) if (t.id, j) not in rows]
    if missing:
        raise TaskError(
            f"--gather: {len(missing)} answers are in no part, the first of task {missing[0]}; "
            "give all parts"
        )
    return rows, answered_by


def _record(folder: Path) -> dict[str, Any]:
    if not (folder / RESULTS).is_file():
        raise TaskError(
            f"--gather {folder}: this part is not finished (it has no {RESULTS}); run its command "
            "again"
        )
    return read_record(folder / RECORD) or {}
