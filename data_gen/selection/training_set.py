"""Kept rollouts as a training set: parquet, a row group at a time, or JSON lines."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.console import licences_in
from assay.files import atomic_write
from assay.parquet import library
from assay.rows import is_parquet, write_rows
from data_gen.selection.store import kept_messages

GROUP_ROWS = 1024  # of a row group
GROUP_TOKENS = 2 << 20  # or as many tokens


def write_training_set(
    rows: Iterable[Mapping[str, Any]],
    path: Path,
    tools: Sequence[Any] | None,
    members: Collection[str] = (),
) -> int:
    """One row a kept rollout, in the form that the name says; returns how many.

    `tools` are those of all rows, where all have the same ones. In parquet they stay nested, as
    verl wants them, where Arrow gives back what was written; it gives all structs of a list the
    same members, so that two tools would get each other's arguments. Else they are JSON text, which
    TRL reads as well. `members`: the fields that messages have; those nobody has get no column.
    """
    if not is_parquet(path):
        return write_rows(path, map(_plain_row, rows))
    arrow, parquet = library(), library("pyarrow.parquet")
    nested = _nested_type(arrow, tools)
    schema = _schema(arrow, nested, members)
    count = 0
    with (
        atomic_write(path) as out,
        parquet.ParquetWriter(out, schema, compression="zstd") as writer,
    ):
        for group in _groups(rows):
            columns = _columns(group, nested is not None)
            writer.write_table(arrow.table(columns, schema=schema))
            count += len(group)
    return count


def _plain_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that a row of parquet has, with the tools as they are."""
    return {name: values[0] for name, values in _columns([row], nested=True).items()}


def _nested_type(arrow: Any, tools: Sequence[Any] | None) -> Any:
    """The Arrow type that holds `tools` as they are; None where there is none."""
    if not tools or "{}" in json.dumps(tools):  # parquet has no empty struct
        return None
    try:
        made = arrow.array([tools])
    except arrow.ArrowException:  # a list of numbers and texts, say
        return None
    return made.type if made.to_pylist() == [tools] else None


def _schema(arrow: Any, nested: Any, members: Collection[str]) -> Any:
    text = arrow.string()
    function = arrow.struct([("name", text), ("arguments", text)])
    call = arrow.struct([("id", text), ("type", text), ("function", function)])
    message = [("role", text), ("content", text)]
    for name, kind in (
        ("tool_calls", arrow.list_(call)),
        ("tool_call_id", text),
        ("name", text),
        ("reasoning_content", text),
    ):
        message += [(name, kind)] if name in members else []
    return arrow.schema(
        [
            ("task_id", text),
            ("track", text),
            ("sample", arrow.int64()),
            ("outcome", arrow.float64()),
            ("reward", arrow.float64()),
            ("messages", arrow.list_(arrow.struct(message))),
            ("tools", text if nested is None else nested),
            ("ids", arrow.list_(arrow.int32())),
            ("loss_mask", arrow.list_(arrow.int8())),
            ("tokenizer", text),
            ("marks", arrow.list_(arrow.int64())),
            ("licences", arrow.list_(text)),
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
