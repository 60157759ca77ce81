"""Kept rollouts as parquet, a row group at a time."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.extras import install_extra
from assay.files import replacing
from data_gen.selection.index import kept_messages
from rewards.chosen import licences_in
from rewards.task import TaskError

GROUP_ROWS = 1024  # of a row group
GROUP_TOKENS = 2 << 20  # or as many tokens


def write_parquet(
    rows: Iterable[Mapping[str, Any]],
    path: Path,
    tools: Sequence[Any] | None,
    members: Collection[str] = (),
) -> int:
    """One row a kept rollout; returns how many.

    `tools` are those of all rows, where all have the same ones. They stay nested, as verl wants
    them, where Arrow gives back what was written; it gives all structs of a list the same members,
    so that two tools would get each other's arguments. Else they are JSON text, which TRL reads as
    well. `members`: the fields that messages have; those nobody has get no column.
    """
    try:
        import pyarrow as pa  # pyright: ignore[reportMissingTypeStubs]
        import pyarrow.parquet as pq  # pyright: ignore[reportMissingTypeStubs]
    except ModuleNotFoundError:
        raise TaskError(f"writing parquet needs pyarrow; {install_extra('parquet')}") from None
    library: Any = pa  # its annotations are partial
    parquet: Any = pq
    nested = _nested_type(library, tools)
    schema = _schema(library, nested, members)
    count = 0
    with replacing(path) as out, parquet.ParquetWriter(out, schema, compression="zstd") as writer:
        for group in _groups(rows):
            columns = _columns(group, nested is not None)
            writer.write_table(library.table(columns, schema=schema))
            count += len(group)
    return count


def _nested_type(library: Any, tools: Sequence[Any] | None) -> Any:
    """The Arrow type that holds `tools` as they are; None where there is none."""
    if not tools or "{}" in json.dumps(tools):  # parquet has no empty struct
        return None
    try:
        made = library.array([tools])
    except library.ArrowException:  # a list of numbers and texts, say
        return None
    return made.type if made.to_pylist() == [tools] else None


def _schema(library: Any, nested: Any, members: Collection[str]) -> Any:
    text = library.string()
    function = library.struct([("name", text), ("arguments", text)])
    call = library.struct([("id", text), ("type", text), ("function", function)])
    message = [("role", text), ("content", text)]
    for name, kind in (
        ("tool_calls", library.list_(call)),
        ("tool_call_id", text),
        ("name", text),
        ("reasoning_content", text),
    ):
        message += [(name, kind)] if name in members else []
    return library.schema(
        [
            ("task_id", text),
            ("track", text),
            ("sample", library.int64()),
            ("outcome", library.float64()),
            ("reward", library.float64()),
            ("messages", library.list_(library.struct(message))),
            ("tools", text if nested is None else nested),
            ("ids", library.list_(library.int32())),
            ("loss_mask", library.list_(library.int8())),
            ("tokenizer", text),
            ("marks", library.list_(library.int64())),
            ("licences", library.list_(text)),
        ]
    )


def _groups(rows: Iterable[Mapping[str, Any]]) -> Iterable[list[Mapping[str, Any]]]:
    group: list[Mapping[str, Any]] = []
    tokens = 0
    for row in rows:
        group.append(row)
        tokens += len(row.get("ids") or ())
        if len(group) >= GROUP_ROWS or tokens >= GROUP_TOKENS:
            yield group
            group, tokens = [], 0
    if group:
        yield group


def _columns(rows: Sequence[Mapping[str, Any]], nested: bool) -> dict[str, Any]:
    tools: list[list[Any]] = [row.get("tools") or [] for row in rows]
    return {
        "task_id": [str(r["task_id"]) for r in rows],
        "track": [str(r["track"]) for r in rows],
        "sample": [int(r["sample"]) for r in rows],
        "outcome": [float(r["outcome"]) for r in rows],
        "reward": [float(r["reward"]) for r in rows],
        "messages": [kept_messages(r) for r in rows],
        "tools": tools if nested else [json.dumps(t, ensure_ascii=False) for t in tools],
        "ids": [list(r.get("ids") or ()) for r in rows],
        "loss_mask": [list(r.get("loss_mask") or ()) for r in rows],
        "tokenizer": [str(r.get("tokenizer") or "") for r in rows],
        "marks": [list(r.get("marks") or ()) for r in rows],
        "licences": [list(licences_in(r)) for r in rows],
    }
