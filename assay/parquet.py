"""Rows as parquet and back, exactly.

A column whose values all have one type of Arrow (numbers, texts, lists, objects with the same keys)
has that type; any other holds JSON text. What a null means stands in the field's metadata, so that
rows come back as they went: the field is `absent`, or `null`; a field of JSON text is `json`.
"""

from __future__ import annotations

import importlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, BinaryIO, cast

from assay.errors import TaskError, install_extra

Row = dict[str, Any]
GROUP = 1000  # rows of a row group
_MARK = b"assay"


def library(module: str = "pyarrow", use: str = "parquet", extra: str = "parquet") -> Any:
    """A module of a library that not everybody has. Raises `TaskError`: what to install for what
    `use`."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        name = module.partition(".")[0]
        raise TaskError(f"{use} needs {name}; {install_extra(extra)}") from None


def arrow_schema(columns: Mapping[str, Any]) -> Any:
    """Columns and their types in Arrow: the name of one, a list with that of its values, or names
    with the types of a struct."""
    return library().schema([(name, _arrow_type(kind)) for name, kind in columns.items()])


def _arrow_type(kind: Any) -> Any:
    arrow = library()
    if isinstance(kind, dict):
        return arrow.struct([(name, _arrow_type(k)) for name, k in cast("Row", kind).items()])
    if isinstance(kind, list):
        return arrow.list_(_arrow_type(kind[0]))
    return getattr(arrow, kind)() if isinstance(kind, str) else kind


def write_groups(out: Any, columns: Mapping[str, Any], groups: Iterable[list[Row]]) -> int:
    """Write rows, a row group at a time; returns how many."""
    schema, count = arrow_schema(columns), 0
    with library("pyarrow.parquet").ParquetWriter(out, schema, compression="zstd") as writer:
        for group in groups:
            writer.write_table(library().Table.from_pylist(group, schema=schema))
            count += len(group)
    return count


def parquet_rows(name: str, stream: BinaryIO, size: int = GROUP) -> Iterator[Row]:
    """The rows of an open parquet file, `size` in memory at a time. Raises `TaskError` naming it
    where it is none."""
    arrow = library()
    try:
        file = library("pyarrow.parquet").ParquetFile(stream)
        meant = {f.name: (f.metadata or {}).get(_MARK, b"").decode() for f in file.schema_arrow}
        absent = {name: mark in ("json", "absent") for name, mark in meant.items()}
        texts = [name for name, mark in meant.items() if mark == "json"]
        for batch in file.iter_batches(batch_size=size):
            rows: list[Row] = batch.to_pylist()
            for row in rows:
                kept = {k: v for k, v in row.items() if v is not None or not absent[k]}
                yield kept | {k: json.loads(str(kept[k])) for k in texts if k in kept}
    except (arrow.ArrowException, OSError) as error:
        said = " ".join(str(error).split())[:160]
        raise TaskError(f"{name}: not a parquet file that can be read ({said})") from None


def arrow_rows(name: str, stream: Any) -> Iterator[Row]:
    """The rows of a shard that `save_to_disk` wrote, an Arrow stream or file: an open file, or a
    map of its memory. Raises `TaskError` naming it where it is none."""
    arrow, ipc = library(), library("pyarrow.ipc")
    try:
        batches: Any = ipc.open_stream(stream)
    except arrow.ArrowInvalid:
        stream.seek(0)
        try:
            reader = ipc.open_file(stream)
        except arrow.ArrowInvalid as error:
            raise TaskError(f"{name}: not an Arrow file that can be read ({error})") from None
        batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
    for batch in batches:
        yield from batch.to_pylist()


def write_lines(out: BinaryIO, lines: BinaryIO) -> None:
    """JSON lines as parquet: read once for the columns and once for the rows, and once more where a
    column turns out not to hold its values exactly."""
    arrow = library()
    kinds: dict[str, Any] = {}
    present, nulls, count = Counter[str](), Counter[str](), 0
    for group in _groups(lines):
        count += len(group)
        for key in dict.fromkeys(key for row in group for key in row):
            values = [row[key] for row in group if key in row]
            kinds[key] = _joined(arrow, kinds.get(key, arrow.null()), values)
            present[key] += len(values)
            nulls[key] += values.count(None)
    # a null could mean either
    texts = {key for key in kinds if nulls[key] and present[key] < count}
    texts |= {key for key, kind in kinds.items() if kind is None}
    while (wrong := _written(out, lines, kinds, texts, nulls)) is not None:
        texts.add(wrong)
        out.seek(0)
        out.truncate()


def _joined(arrow: Any, kind: Any, values: list[Any]) -> Any:
    """The type that holds what it held and some values, None where only JSON does."""
    try:
        new = arrow.array(values).type
        both = [arrow.schema([("", one)]) for one in (kind, new)]
        found = arrow.unify_schemas(both, promote_options="permissive").field(0).type
    except (arrow.ArrowException, TypeError, ValueError, OverflowError):
        return None
    return None if kind is None or "struct<>" in str(found) else found


def _written(
    out: BinaryIO, lines: BinaryIO, kinds: dict[str, Any], texts: set[str], nulls: Counter[str]
) -> str | None:
    """Write all rows; the name of a column that cannot hold its values, None where all can."""
    arrow, parquet = library(), library("pyarrow.parquet")
    fields: list[Any] = []
    for key, kind in kinds.items():
        meant = "json" if key in texts else "null" if nulls[key] else "absent"
        held = arrow.string() if key in texts or arrow.types.is_null(kind) else kind
        fields.append(arrow.field(key, held, metadata={_MARK: meant.encode()}))
    schema = arrow.schema(fields)
    with parquet.ParquetWriter(out, schema, compression="zstd") as writer:
        for group in _groups(lines):
            columns: list[Any] = []
            for field in fields:
                key = field.name
                values = [row.get(key) for row in group]
                if key in texts:
                    values = [json.dumps(row[key]) if key in row else None for row in group]
                try:
                    columns.append(arrow.array(values, field.type))
                except arrow.ArrowException:
                    return key
                if columns[-1].to_pylist() != values:
                    return key
            writer.write_table(arrow.Table.from_arrays(columns, schema=schema))
    return None


def _groups(lines: BinaryIO) -> Iterator[list[Row]]:
    lines.seek(0)
    rows = (json.loads(line) for line in lines)
    while group := list(islice(rows, GROUP)):
        yield group
