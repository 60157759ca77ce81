# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""The journal of a model's answers: each is on disk as soon as it is there, and a killed command
goes on.

A file of rows has a line an answer, which says in `task_hash` what was asked; a record beside it
says what was asked of whom, and how (rollouts/identity.py). Where any of it is another one, going
on is refused. Rows without an outcome are asked again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from assay.files import write_bytes
from assay.journal import Appender, end_journal, key_of, read_journal, rewrite_journal
from assay.rows import is_plain, read_rows, write_rows
from assay.task import Task, TaskError, json_text
from rollouts.identity import task_hash

Row = dict[str, Any]
Key = tuple[str, int]  # task id and sample
VERSION = 2  # of the record: 1 knew neither whole weights nor the tokenizer
ASKED = "task_hash"  # the field of a row
HASHES = (
    "weights",
    "tokenizer",
    "families",
    "words",
)  # settings whose values say nothing to a reader


class Journal:
    """`with Journal(rows, record, tasks, settings) as journal`: `done` are the rows of an earlier
    start, `write` keeps one more. `others`: rows of tasks that are not asked now may stay.

    Lines are appended to plain files alone. Where `rows` is to be compressed or parquet, they stand
    in `ROWS.journal` until the command is done, which then writes `rows` of it.
    """

    def __init__(
        self,
        rows: Path,
        record: Path,
        tasks: Sequence[Task],
        settings: Mapping[str, Any],
        others: bool = False,
    ) -> None:
        self._out, self._place = rows, record
        plain = is_plain(str(rows))
        self.path = rows if plain else rows.with_name(f"{rows.name}.journal")
        if not plain and rows.is_file() and not self.path.is_file():
            write_rows(self.path, (row for _, row in read_rows(rows)))
        self._open: list[Row] = []
        self._asked = {task.id: task_hash(task) for task in tasks}
        now: dict[str, Any] = json.loads(
            json_text({"version": VERSION, "settings": dict(settings), "count": len(tasks)})
        )
        there = self.path.is_file() and self.path.stat().st_size
        begun = read_record(record) if there else None
        if begun is None and there:
            raise TaskError(f"{rows} was not begun by this command; give another --out")
        if begun is not None:
            refuse_other(rows, begun, now["settings"])
        self._record: Row = {**(begun or {}), **now}
        held = read_journal(self.path)
        good = [row for row in held if row.get("outcome") is not None]
        self.done: dict[Key, Row] = {key_of(row, rows): row for row in good}
        if others:
            self.done = {key: row for key, row in self.done.items() if key[0] in self._asked}
        refuse_other_tasks(rows, self.done, self._asked)
        if len(good) < len(held):
            rewrite_journal(self.path, good)
        rows.parent.mkdir(parents=True, exist_ok=True)
        self._write_record()

    def __enter__(self) -> Journal:
        self._rows = Appender(self.path).__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._rows.__exit__(kind, error, trace)
        self._write_record()

    def write(self, row: Row) -> None:
        """Keep a row. One without an outcome waits for the end: a command that is killed before
        asks again."""
        whole = row | {ASKED: self._asked[str(row["task_id"])]}
        if row["outcome"] is None:
            self._open.append(whole)
        else:
            self._rows.add([whole])

    def note(self, about: Mapping[str, str]) -> None:
        """Keep what answers now: a run that goes on may meet another version or number format."""
        before = self.answered_by
        if dict(about) not in before:
            self._record["answered_by"] = [*before, dict(about)]
            self._write_record()

    @property
    def answered_by(self) -> list[dict[str, str]]:
        """What has answered in this and earlier starts, each once."""
        return list(self._record.get("answered_by") or [])

    @property
    def lost(self) -> tuple[int, int]:
        """(tokens read, tokens written) by answers that no row is left of."""
        read, written = self._record.get("lost") or (0, 0)
        return int(read), int(written)

    def lose(self, read: int, written: int) -> None:
        """Count an answer that will be asked again; it was paid for."""
        self._record["lost"] = [self.lost[0] + read, self.lost[1] + written]

    def finish(self) -> None:
        """All rows in the tasks' order, in place of the order in which they came: the same run, the
        same bytes. Rows of tasks that are not asked now stand last."""
        rank = {name: i for i, name in enumerate(self._asked)}
        rows = [*read_journal(self.path), *self._open]
        keys = [(rank.get(str(row["task_id"]), len(rank)), int(row["sample"])) for row in rows]
        if keys != sorted(keys) or self._open:
            order = sorted(range(len(rows)), key=keys.__getitem__)
            rewrite_journal(self.path, [rows[i] for i in order])
        end_journal(self.path)
        if self.path != self._out:
            write_rows(self._out, (row for _, row in read_rows(self.path)))
            self.path.unlink()

    def _write_record(self) -> None:
        write_bytes(self._place, json_text(self._record, indent=1))


def read_record(path: Path) -> dict[str, Any] | None:
    """The record of a journal, None without one. Raises `TaskError` for a damaged one."""
    try:
        held: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        return None
    except (ValueError, RecursionError):
        held = None
    if not isinstance(held, dict):
        raise TaskError(
            f"{path}: damaged, so nobody knows how the answers came about; give another --out"
        )
    return held


def refuse_other(
    place: Path, begun: Mapping[str, Any], now: Mapping[str, Any], option: str = "--out"
) -> None:
    """Raises `TaskError` where answers were sampled with other settings than `now`."""
    if begun.get("version") != VERSION:
        raise TaskError(
            f"{place} was begun by another version of Assay, which kept something else of the "
            f"weights, the tokenizer and the tasks; give another {option}"
        )
    old = begun.get("settings") or {}
    changed = sorted(k for k in {*old, *now} if old.get(k) != now.get(k))
    if changed:
        told = ", ".join(_other(name, old.get(name), now.get(name)) for name in changed)
        raise TaskError(
            f"{place} was sampled with {told}; put it back to go on, or give another {option}"
        )


def refuse_other_tasks(
    place: Path, rows: Mapping[Key, Row], asked: Mapping[str, str], option: str = "--out"
) -> None:
    """Raises `TaskError` where rows answer something else than what is asked now."""
    there = {key[0] for key in rows}
    gone = sorted(there - asked.keys())
    if gone:
        raise TaskError(
            f"{place} holds answers to other tasks ({len(there)} there, {len(asked)} here; "
            f"{gone[0]} is not asked now); give another {option}"
        )
    other = sorted(name for (name, _), row in rows.items() if row.get(ASKED) != asked[name])
    if other:
        raise TaskError(
            f"{place} holds answers to other tasks: {other[0]} had another prompt, gold or file; "
            f"give another {option}"
        )


def _other(name: str, old: Any, new: Any) -> str:
    """ "another engine (was embedded, is vllm)", "other weights"."""
    said = f"{'other' if name.endswith('s') else 'another'} {name}"
    was, now = (str(value) for value in (old, new))
    if name in HASHES or not was or not now or len(was) + len(now) >= 60:
        return said
    return f"{said} (was {was}, is {now})"
