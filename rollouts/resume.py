"""What a rollouts file holds already, and the settings it was begun with."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rewards.files import write_text
from rewards.journal import end_journal, key_of, read_journal, rewrite_journal
from rewards.task import Task, TaskError


def finished(out: Path, n: int) -> set[str]:
    """Ids of tasks with all `n` samples in `out`, each with an outcome; rows of the others leave
    the file. A torn last line is cut off it first."""
    rows = read_journal(out)
    keys = [key_of(row, out) for row in rows]
    good = {key for key, row in zip(keys, rows, strict=True) if row.get("outcome") is not None}
    counts = Counter(task for task, _ in good)
    again = {task for task, _ in keys} - {t for t, k in counts.items() if k == n}
    if again:
        rewrite_journal(out, [row for row in rows if row["task_id"] not in again])
    return {task for task in counts if task not in again}


def whole_chunks(out: Path, tasks: Sequence[Task], done: set[str], chunk: int) -> set[str]:
    """`done` without the tasks of a chunk that was only begun; their rows leave the file.

    What is decoded side by side decides the last bits of a log-probability: a run that goes on
    meets the same neighbours as one that was never stopped, and so writes the same bytes.
    """
    kept = len(done) // chunk * chunk
    begun = {task.id for task in tasks[kept : len(done)]}
    first = {task.id for task in tasks[: len(done)]}
    if not begun or len(done) == len(tasks) or done != first:
        return done
    rewrite_journal(out, [row for row in read_journal(out) if row["task_id"] not in begun])
    return done - begun


def begun_settings(out: Path) -> dict[str, Any]:
    """The settings `out` was begun with, {} for a new file. Files from before the dtype was
    recorded were sampled in bfloat16."""
    beside = _beside(out)
    if not (beside.is_file() and out.is_file() and out.stat().st_size):
        return {}
    try:
        held: Any = json.loads(beside.read_text(encoding="utf-8"))
        return {"dtype": "bfloat16", **held}
    except (ValueError, TypeError, RecursionError):
        raise TaskError(
            f"{beside}: damaged, so nobody knows how {out.name} was sampled; give another --out"
        ) from None


def check_settings(out: Path, settings: dict[str, Any]) -> None:
    """Refuse to mix two samplings in one file: the settings stand beside it."""
    old = begun_settings(out)
    changed = sorted(k for k in settings if old and old.get(k) != settings[k])
    if changed:
        raise TaskError(f"{out} was sampled with another {', '.join(changed)}; give another --out")


def write_settings(out: Path, settings: dict[str, Any]) -> None:
    """Say beside `out` what it is sampled with."""
    text = json.dumps(settings, indent=2) + "\n"
    write_text(_beside(out), text)


def _beside(out: Path) -> Path:
    return out.with_name(out.name + ".settings.json")


def in_order(out: Path, tasks: Sequence[Task]) -> None:
    """Sort the rows by task, where answers came in any order: the same run, the same bytes. The
    journal ends here."""
    rank = {task.id: i for i, task in enumerate(tasks)}
    rows = read_journal(out)
    places = [(rank.get(str(row["task_id"]), len(rank)), int(row["sample"])) for row in rows]
    if places != sorted(places):
        rewrite_journal(out, [rows[i] for i in sorted(range(len(rows)), key=places.__getitem__)])
    end_journal(out)
