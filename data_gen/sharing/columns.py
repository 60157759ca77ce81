"""Tasks as rows of parquet and back. The columns hold a task exactly; what they cannot hold (a text
with half a character, a message with more than role and content) stands whole in `exact`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from assay.console import licences_of
from assay.parquet import library, parquet_rows
from assay.task import Task, TaskError

GROUP_ROWS = 1000  # of a row group
COLUMNS = {
    "id": "unique in the set",
    "family": "the kind of task, which decides how it is scored",
    "track": "what results are broken down by",
    "prompt": "the chat: messages with role and content",
    "gold": "what the scorer needs, JSON text",
    "tools": "names of the tools that a model may call",
    "files": "files of the task: name, and path from the file of tasks",
    "group": "tasks that belong together",
    "licences": "of the data that the task was made from",
    "meta": "source, domain, difficulty and more, JSON text",
    "split": "as the task itself says it",
    "exact": "the whole task as JSON text, where the columns cannot hold it; else null",
}


def row_of(task: Task) -> dict[str, Any]:
    """The task's row. `task_of(row_of(task))` is the task again."""
    row: dict[str, Any] = {
        "id": task.id,
        "family": task.family,
        "track": task.track,
        "prompt": [{"role": m["role"], "content": m["content"]} for m in task.prompt],
        "gold": _json(task.gold),
        "tools": list(task.tools),
        "files": [{"name": name, "path": path} for name, path in task.files.items()],
        "group": task.group,
        "licences": list(licences_of(task)),
        "meta": _json(task.meta),
        "split": task.split,
        "exact": None,
    }
    clean = json.loads(json.dumps(row, ensure_ascii=False).encode("utf-8", "replace"))
    if clean != row or _json(task_of(row, "task").to_json()) != _json(task.to_json()):
        return clean | {"exact": json.dumps(task.to_json())}
    return row


def task_of(row: Mapping[str, Any], where: str) -> Task:
    """Raises `TaskError` naming `where` for a row that is no task."""
    try:
        if row["exact"] is not None:
            return Task.from_json(json.loads(row["exact"]), where)
        files = {f["name"]: f["path"] for f in row["files"]}
        known = ("id", "family", "track", "split", "prompt", "tools", "group")
        whole = {name: row[name] for name in known} | {"files": files}
        whole |= {name: json.loads(row[name]) for name in ("gold", "meta")}
        return Task.from_json(whole, where)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        if isinstance(error, TaskError):
            raise
        raise TaskError(f"{where}: is no task of a pushed set ({error!r})") from None


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return json.dumps(value) if text.encode("utf-8", "replace").decode() != text else text


def write_parquet(out: BinaryIO, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write rows a group at a time; returns how many. Raises `TaskError` without pyarrow."""
    arrow, parquet = library(), library("pyarrow.parquet")
    schema, count, left = _schema(arrow), 0, iter(rows)
    with parquet.ParquetWriter(out, schema, compression="zstd") as writer:
        while group := list(islice(left, GROUP_ROWS)):
            writer.write_table(arrow.Table.from_pylist(group, schema=schema))
            count += len(group)
    return count


def _schema(arrow: Any) -> Any:
    text = arrow.string()
    kinds = {
        "prompt": arrow.list_(arrow.struct([("role", text), ("content", text)])),
        "tools": arrow.list_(text),
        "files": arrow.list_(arrow.struct([("name", text), ("path", text)])),
        "licences": arrow.list_(text),
    }
    return arrow.schema([(name, kinds.get(name, text)) for name in COLUMNS])


def read_parquet(path: Path, where: str) -> Iterator[Task]:
    """The tasks of a file, in order. Raises `TaskError` naming `where` and the row."""
    with open(path, "rb") as file:
        for number, row in enumerate(parquet_rows(where, file), 1):
            yield task_of(row, f"{where} row {number}")
