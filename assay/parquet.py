"""Rows as parquet and back, exactly.

A column whose values all have one type of Arrow (numbers, texts, lists, objects with the same keys)
has that type; any other holds JSON text. What a null means stands in the field's metadata, so that
rows come back as they went: the field is `absent`, or `null`; a field of JSON text is `json`.
"""

from __future__ import annotations

import importlib
import json
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any, BinaryIO, cast

from assay.errors import TaskError, install_extra

Row = dict[str, Any]
GROUP = 1000  # rows of a row group
_MARK = b"assay"
_INT53 = 1 << 53  # up to here a float holds every whole number
Kind = Any  # a name, or ("list", kind), or ("object", ((key, kind), …)); "json" fits everything


def library(module: str = "pyarrow") -> Any:
    """pyarrow, or a module of it. Raises `TaskError`: what to install."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        raise TaskError(f"parquet needs pyarrow; {install_extra('parquet')}") from None


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
    """JSON lines as parquet: read once for the columns and once for the rows."""
    arrow, parquet = library(), library("pyarrow.parquet")
    kinds: dict[str, Kind] = {}
    present, nulls, count = Counter[str](), Counter[str](), 0
    for row in _rows_of(lines):
        count += 1
        for key, value in row.items():
            kinds[key] = _joined(kinds.get(key, "null"), _kind_of(value))
            present[key] += 1
            nulls[key] += value is None
    for key in kinds:
        if nulls[key] and present[key] < count:  # a null could mean either
            kinds[key] = "json"
    meant = {
        key: "json" if kind == "json" else "null" if nulls[key] else "absent"
        for key, kind in kinds.items()
    }
    schema = arrow.schema(
        arrow.field(key, _type(arrow, kind), metadata={_MARK: meant[key].encode()})
        for key, kind in kinds.items()
    )
    texts = [key for key, kind in kinds.items() if kind == "json"]
    with parquet.ParquetWriter(out, schema, compression="zstd") as writer:
        rows = _rows_of(lines)
        while group := list(islice(rows, GROUP)):
            for row in group:
                row |= {key: json.dumps(row[key]) for key in texts if key in row}
            writer.write_table(arrow.Table.from_pylist(group, schema=schema))


def _rows_of(lines: BinaryIO) -> Iterator[Row]:
    lines.seek(0)
    return (json.loads(line) for line in lines)


def _kind_of(value: Any) -> Kind:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int" if abs(value) <= _INT53 else "big" if abs(value) < 1 << 63 else "json"
    if isinstance(value, float):
        return "float"
    if isinstance(value, str):
        return "json" if any("\ud800" <= c <= "\udfff" for c in value) else "text"
    if isinstance(value, list):
        kind: Kind = "null"
        for one in cast("list[Any]", value):
            kind = _joined(kind, _kind_of(one))
        return "json" if kind == "json" else ("list", kind)
    inner = [(key, _kind_of(one)) for key, one in cast("Row", value).items()]
    plain = inner and all(k != "json" for _, k in inner) and _kind_of([*value]) != "json"
    return ("object", tuple(inner)) if plain else "json"


def _joined(one: Kind, other: Kind) -> Kind:
    """The kind that holds values of both exactly."""
    if one == other or other == "null":
        return one
    if one == "null":
        return other
    if isinstance(one, str) or isinstance(other, str):
        both = {one, other} if isinstance(one, str) and isinstance(other, str) else {"json"}
        return "float" if both == {"int", "float"} else "big" if both == {"int", "big"} else "json"
    if one[0] == other[0] == "list":
        kind = _joined(one[1], other[1])
        return "json" if kind == "json" else ("list", kind)
    if one[0] == other[0] and [k for k, _ in one[1]] == [k for k, _ in other[1]]:
        inner = tuple((k, _joined(a, b)) for (k, a), (_, b) in zip(one[1], other[1], strict=True))
        return "json" if any(kind == "json" for _, kind in inner) else ("object", inner)
    return "json"


def _type(arrow: Any, kind: Kind) -> Any:
    if isinstance(kind, tuple) and kind[0] == "list":
        return arrow.list_(_type(arrow, kind[1]))
    if isinstance(kind, tuple):
        return arrow.struct([(key, _type(arrow, inner)) for key, inner in kind[1]])
    plain = {"bool": arrow.bool_, "int": arrow.int64, "big": arrow.int64, "float": arrow.float64}
    return plain.get(kind, arrow.string)()
