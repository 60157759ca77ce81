# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""Journals: files that a command appends rows to, and goes on from when it is started again.

`Journal` keeps a model's answers: each is on disk as soon as it is there. A row says in `task_hash`
what was asked; a record beside the rows says of whom, and how: settings, weights, tokenizer, own
code. Where any of it is another one, going on is refused. Rows without an outcome are asked again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from assay.family import family_of
from assay.files import (
    atomic_write,
    disk_errors_name,
    file_hash,
    write_bytes,
)
from assay.rows import is_plain, read_rows, write_rows
from assay.task import Task, TaskError, json_line, json_text, parse_object

Row = dict[str, Any]
Key = tuple[str, int]  # task id and sample
VERSION = 2  # of the record: 1 knew neither whole weights nor the tokenizer
ASKED = "task_hash"  # the field of a row
HASHES = ("weights", "tokenizer", "families", "words")  # their values say nothing to a reader


def append_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Append rows in one write: they are whole in the file, or cut off at its end. The folder is
    made. Raises `OSError` naming the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    left = memoryview(b"".join(map(json_line, rows)))
    with disk_errors_name(path), open(path, "ab", buffering=0) as out:
        while left:
            left = left[out.write(left) :]


def read_journal(path: str | Path) -> list[Row]:
    """The rows of a journal. A last line that a kill cut off is taken out of the file; so is any
    line that holds no JSON object, and this is said: its work is done again."""
    path = Path(path)
    if not path.is_file():
        return []
    data = path.read_bytes()
    lines = data[: data.rfind(b"\n") + 1].splitlines(keepends=True)
    rows: list[Row] = []
    good: list[bytes] = []
    for line in lines:
        with contextlib.suppress(TaskError):
            if line.strip():
                rows.append(parse_object(line.decode("utf-8", "replace"), str(path)))
            good.append(line)
    if damaged := len(lines) - len(good):
        print(f"{path}: {damaged} damaged rows are done again", file=sys.stderr)
    if b"".join(good) != data:
        write_bytes(path, b"".join(good))
    return rows


def rewrite_journal(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Put these rows in the place of those of the journal, which goes on."""
    with atomic_write(path) as out:
        out.writelines(map(json_line, rows))


def key_of(row: Mapping[str, Any], path: Path) -> Key:
    """(id of the task, number of the sample) of a row. Raises `TaskError` for one of neither."""
    task, sample = row.get("task_id"), row.get("sample")
    if not isinstance(task, str) or not isinstance(sample, int):
        raise TaskError(
            f"{path}: holds a row without task_id and sample; give another --out, or remove the row"
        )
    return task, sample


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
        self.path.touch()
        return self

    def __exit__(self, *_: object) -> None:
        self._write_record()

    def write(self, row: Row) -> None:
        """Keep a row. One without an outcome waits for the end: a command that is killed before
        asks again."""
        whole = row | {ASKED: self._asked[str(row["task_id"])]}
        if row["outcome"] is None:
            self._open.append(whole)
        else:
            append_rows(self.path, [whole])

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
        if read or written:
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
    """Compare the settings of a journal, as its record says them (`begun`: version and settings),
    with those of this command (`now`, by name). Raises `TaskError` where one differs: it names
    `place`, the settings, and `option`, which would begin anew."""
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


# --- what was asked, and of which weights


def families_hash(tasks: Iterable[Task]) -> dict[str, str]:
    """Own families by the content of their file (of a module: its name)."""
    found: dict[str, str] = {}
    for family in {task.family: family_of(task) for task in tasks}.values():
        place = Path(family.origin.rpartition(":")[0])
        if family.origin:
            code = place.read_bytes() if place.is_file() else family.origin.encode()
            found[family.name] = hashlib.sha256(code).hexdigest()[:16]
    return found


def task_hash(task: Task) -> str:
    """A hash of what is asked: another prompt, gold or file gives another one; another place of the
    same files does not. Paths of files are absolute. Of a folder, names and sizes count."""
    names = {name: Path(path).name for name, path in task.files.items()}
    whole = hashlib.sha256(replace(task, files=names).content_hash().encode())
    for path in task.files.values():
        whole.update(_content(path).encode())
    return whole.hexdigest()[:16]


@lru_cache(maxsize=4096)
def _content(path: str) -> str:
    place = Path(path)
    if place.is_file():
        return file_hash(place)
    inner = sorted(p for p in place.rglob("*") if p.is_file()) if place.is_dir() else []
    return "\n".join(f"{p.relative_to(place)} {p.stat().st_size}" for p in inner)
