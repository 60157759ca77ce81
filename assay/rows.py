"""Rows by name: JSON lines (plain, .gz, .zst) and parquet, here or at a URL that fsspec knows.

The one program that opens, reads and writes them. Inputs are read a block of whole lines at a time,
so that a file of any size takes the memory of a few blocks; a parquet file gives its rows as such
lines. Outputs appear when they are complete, compressed as their name says; the same rows give the
same bytes.
"""

from __future__ import annotations

import glob
import gzip
import importlib
import io
import json
import os
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

from assay.errors import TaskError, install_extra
from assay.files import atomic_write

Row = dict[str, Any]
STANDARD = "-"  # standard input or output
BLOCK = 1 << 18
PARQUET = "parquet"
_BOM = b"\xef\xbb\xbf"
_WIDE = (b"\xff\xfe", b"\xfe\xff")  # UTF-16
_MAGIC = {"gz": b"\x1f\x8b", "zst": b"\x28\xb5\x2f\xfd", PARQUET: b"PAR1"}


@dataclass(frozen=True)
class Block:
    """Whole lines of an input. `number` counts the first of them from 1; `position` is how many
    bytes of all inputs, as they are stored, have been read by now."""

    source: str
    number: int
    data: bytes
    position: int


# ---- JSON


def parse_object(line: str, where: str) -> Row:
    """The object of one line of JSON. Raises `TaskError` naming `where`."""
    try:
        row: Any = json.loads(line)
    except json.JSONDecodeError as error:
        raise TaskError(f"{where}: not valid JSON ({error.msg})") from None
    except ValueError:  # the library reads no number of more than 4300 digits
        raise TaskError(f"{where}: a number of too many digits") from None
    except RecursionError:
        raise TaskError(f"{where}: JSON nested too deep") from None
    if not isinstance(row, dict):
        raise TaskError(f"{where}: wanted a JSON object")
    return cast("Row", row)


_PLAIN = json.JSONEncoder(ensure_ascii=False)  # made once: rows are many
# in JSON they stand inside texts only
_LINE_ENDS = (("\u0085", "\\u0085"), ("\u2028", "\\u2028"), ("\u2029", "\\u2029"))


def json_text(
    value: Any, indent: int | None = None, default: Callable[[Any], Any] | None = None
) -> bytes:
    """A value as UTF-8 JSON that ends in a newline; `indent` and `default` as in `json.dumps`. A
    value with lone surrogates, which UTF-8 cannot hold, is escaped throughout, so that it reads
    back as it was; so are the three characters that other readers take for the end of a line."""
    try:
        if indent is None and default is None:
            text = _PLAIN.encode(value)
        else:
            text = json.dumps(value, ensure_ascii=False, indent=indent, default=default)
        if not text.isascii():
            for end, escape in _LINE_ENDS:
                text = text.replace(end, escape)
        return (text + "\n").encode("utf-8")
    except UnicodeEncodeError:
        return (json.dumps(value, indent=indent, default=default) + "\n").encode("ascii")


json_line = json_text  # one row as a line


# ---- reading


def read_rows(name: str | Path) -> Iterator[tuple[str, Row]]:
    """(where it stands, row) of every row of a file, in order; blank lines are none.

    Raises `TaskError` naming file and line for a row that is no JSON object, and for a file that
    holds something else than its name says, that is cut off or that cannot be decompressed;
    `OSError` for one that is not there. A byte that is not UTF-8 becomes a replacement character:
    its row may still be readable.
    """
    name = str(name)
    if _ending(name) == PARQUET:
        with stored(name) as stream:
            for number, row in enumerate(parquet_rows(name, stream), 1):
                yield f"{name} row {number}", row
        return
    for block in blocks([name]):
        lines = block.data.decode("utf-8", "replace").split("\n")
        for number, line in enumerate(lines, block.number):
            if line and not line.isspace():
                where = f"{name} line {number}"
                # the last line of a file that ends in the middle of a row
                torn = number == block.number + len(lines) - 1 and not line.rstrip().endswith("}")
                try:
                    row = parse_object(line, where)
                except TaskError as error:
                    cut = (
                        "the file ends in the middle of this row; get it again, or remove the line"
                    )
                    raise TaskError(f"{where}: {cut}") if torn else error from None
                yield where, row


def matching(names: Sequence[str]) -> list[str]:
    """The inputs that some names and patterns (`rows-*.jsonl`, `s3://bucket/*.gz`) stand for, those
    of a pattern in order of their names. Raises `TaskError` for a pattern that nothing matches and
    for an input that is named twice."""
    found: list[str] = []
    for name in names:
        here = _local(name)
        if not any(c in name for c in "*?[") or (here is not None and Path(here).exists()):
            found.append(name)
            continue
        matches = sorted(glob.glob(here, recursive=True) if here is not None else _remote(name))
        if not matches:
            raise TaskError(f"{name}: no file matches; check the pattern")
        found += matches
    seen: set[str] = set()
    for name in found:
        place = os.path.realpath(name) if _local(name) == name else name
        if place in seen:
            raise TaskError(f"{name}: given twice; name each input once")
        seen.add(place)
    return found


def total_bytes(names: Sequence[str]) -> int | None:
    """How many bytes the inputs hold as they are stored; None where that cannot be known."""
    paths = [local_file(name) for name in names]
    return None if None in paths else sum(os.path.getsize(path) for path in paths if path)


def blocks(names: Sequence[str], size: int = BLOCK) -> Iterator[Block]:
    """The lines of the inputs, one after the other, `size` bytes or a little more at a time.

    Raises `TaskError` naming an input that cannot be read or decompressed, or holds something else
    than its name says; `OSError` for a file.
    """
    before = 0
    for name in names:
        position, number = 0, 1
        with stored(name) as below:
            if _ending(name) == PARQUET:
                pieces = _parquet_lines(name, below, size)
            else:
                pieces = _lines(name, below, size)
            for data, position in pieces:
                yield Block(name, number, data, before + position)
                number += data.count(b"\n")
        before += position


def _lines(name: str, below: BinaryIO, size: int) -> Iterator[tuple[bytes, int]]:
    """(some whole lines, how many stored bytes have been read by now). Standard input gives what
    has come so far."""
    ending, number, position = _ending(name), 1, 0
    if name != STANDARD and below.seekable():
        _refuse_other(name, ending, below.read(4))
        below.seek(0)
    with _unpacked(ending, below) as stream:
        read = getattr(stream, "read1", stream.read) if name == STANDARD else stream.read
        while True:
            try:
                data: bytes = read(size)
                data += b"" if data.endswith(b"\n") or not data else stream.readline()
            except (EOFError, zlib.error, OSError) as error:
                if not ending:
                    raise
                raise TaskError(
                    f"{name}: cannot be decompressed from line {number} on ({error}); get the file "
                    "again"
                ) from None
            if not data:
                return
            if number == 1 and data.startswith(_WIDE) and b"\0" in data[:80]:
                raise TaskError(f"{name}: is UTF-16; rows are UTF-8, store it as that")
            try:
                position = below.tell()
            except (OSError, ValueError, AttributeError):  # a pipe
                position += len(data)
            yield data.removeprefix(_BOM) if number == 1 else data, position
            number += data.count(b"\n")


def _parquet_lines(name: str, below: BinaryIO, size: int) -> Iterator[tuple[bytes, int]]:
    """The rows as JSON lines."""
    end = below.seek(0, os.SEEK_END)
    below.seek(0)
    held = bytearray()
    for row in parquet_rows(name, below):
        held += json_text(row, default=str)
        if len(held) >= size:
            yield bytes(held), min(end, below.tell())
            held.clear()
    if held:
        yield bytes(held), end


def _refuse_other(name: str, ending: str, head: bytes) -> None:
    """Raise `TaskError` where a file that begins with `head` is not what its name says."""
    kind = _kind(head)
    if kind == ending:
        return
    words = {"gz": "gzip", "zst": "zstd", PARQUET: "parquet"}
    holds = words.get(kind, "neither gzip nor zstd") if head else "nothing"
    if ending:
        raise TaskError(f"{name}: is named .{ending}, but holds {holds}; rename it or make it anew")
    raise TaskError(f"{name}: holds {holds}, which its name does not say; name it {name}.{kind}")


def _kind(head: bytes) -> str:
    """What bytes are by their start: gz, zst, parquet; "" for anything else."""
    return next((kind for kind, magic in _MAGIC.items() if head.startswith(magic)), "")


@contextmanager
def unpacked(file: BinaryIO) -> Generator[BinaryIO]:
    """The bytes of an open file that may be compressed, by what it begins with, whatever its
    name. `OSError` or `EOFError` come of a broken one."""
    kind = _kind(file.read(4))
    file.seek(0)
    with _unpacked(kind, file) as plain:
        yield plain


@contextmanager
def _unpacked(ending: str, below: BinaryIO) -> Generator[BinaryIO]:
    if ending == "gz":
        with gzip.GzipFile(fileobj=below) as out:
            yield cast("BinaryIO", out)
    elif ending == "zst":  # zstandard's own reader takes a file that is cut off for a whole one
        arrow = library("pyarrow", ".zst", extra="parquet")
        stream = arrow.CompressedInputStream(arrow.PythonFile(_Held(below), mode="r"), "zstd")
        yield cast("BinaryIO", io.BufferedReader(stream, BLOCK))
    else:
        yield below


class _Held:
    """A file that a library may not close."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.closed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def close(self) -> None:
        self.closed = True


# ---- writing


def write_rows(name: str | Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write rows whole or not at all; returns how many."""
    count = 0
    with writing_lines(str(name)) as out:
        for row in rows:
            out.write(json_line(row))
            count += 1
    return count


@contextmanager
def writing_lines(name: str) -> Generator[BinaryIO]:
    """An output to write JSON lines to, as `writing`; of a .parquet they become rows, whose columns
    are known when all lines are there (until then they lie in a temporary file)."""
    if _ending(name) != PARQUET:
        with writing(name) as out:
            yield out
        return
    library()  # one that is not there is told before the work
    with tempfile.TemporaryFile(prefix="assay-") as spool:
        yield cast("BinaryIO", spool)
        with writing(name) as out:
            write_lines(out, spool)


@contextmanager
def writing(name: str) -> Generator[BinaryIO]:
    """An output to write bytes to, compressed by its ending. A file or an object appears, or is
    replaced, when the body ends without an error; standard output is written as it comes."""
    here = _local(name)
    if name == STANDARD:
        yield sys.stdout.buffer
    elif here is not None:
        with atomic_write(here) as file, _compressed(name, file) as out:
            yield out
    else:
        system, path = file_system(name)
        with tempfile.NamedTemporaryFile(prefix="assay-") as file:
            with _compressed(name, cast("BinaryIO", file)) as out:
                yield out
            file.flush()
            system.put_file(file.name, path)


@contextmanager
def _compressed(name: str, file: BinaryIO) -> Generator[BinaryIO]:
    ending = _ending(name)
    if ending == "gz":
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=6, mtime=0) as out:
            yield cast("BinaryIO", out)
    elif ending == "zst":
        arrow = library("pyarrow", ".zst", extra="parquet")
        with arrow.CompressedOutputStream(_Held(file), "zstd") as out:
            yield out
    else:
        yield file


# ---- names and places


@contextmanager
def stored(name: str) -> Generator[BinaryIO]:
    """The bytes of an input as they are stored; files and URLs can be sought in. Raises `TaskError`
    or `OSError` for one that is not there."""
    if name == STANDARD:
        # In tests and notebooks standard input may be text without bytes below it.
        raw: Any = getattr(sys.stdin, "buffer", None)
        yield raw or io.BytesIO(sys.stdin.read().encode("utf-8", "surrogatepass"))
        return
    here = _local(name)
    if here is not None:
        with open(here, "rb") as file:
            yield file
        return
    system, path = file_system(name)
    try:
        file = system.open(path, "rb")
    except FileNotFoundError:
        raise TaskError(f"{name}: no such file") from None
    with file:
        yield file


def _ending(name: str) -> str:
    """How a name says that rows are kept: gz, zst, parquet; "" for plain lines."""
    ending = name.rpartition(".")[2].lower()
    return ending if ending in _MAGIC else ""


def is_parquet(name: str | Path) -> bool:
    return _ending(str(name)) == PARQUET


def is_plain(name: str) -> bool:
    """Whether the lines of an input lie as they are in a file of this machine, so that one can be
    read again from its place."""
    return not _ending(name) and not is_url(name)


def folder_of(name: str) -> Path | None:
    """The folder that an output lies in; None for standard output and a URL."""
    here = _local(name)
    return None if here is None or name == STANDARD else Path(here).parent


def local_file(name: str) -> str | None:
    """The path of a regular file of this machine; None for anything else."""
    here = _local(name)
    return here if here is not None and name != STANDARD and os.path.isfile(here) else None


def is_url(name: str) -> bool:
    """Whether a name is a URL of something that is no file of this machine."""
    return _local(name) is None


def _local(name: str) -> str | None:
    """The path that a name stands for on this machine; None for a URL."""
    scheme, mark, rest = name.partition("://")
    if not mark:
        return name
    return rest if scheme == "file" else None


def _remote(pattern: str) -> Iterable[str]:
    system, path = file_system(pattern)
    scheme = pattern.partition("://")[0]
    return (f"{scheme}://{str(found).lstrip('/')}" for found in system.glob(path))


def file_system(name: str) -> tuple[Any, str]:
    """(fsspec's file system of a URL, the path there). Raises `TaskError`: what to install."""
    core = library("fsspec.core", f"the URL {name}", extra="build")
    try:
        system, path = core.url_to_fs(name)
    except (ImportError, ValueError) as error:
        raise TaskError(f"{name}: {error}; give a file or a URL that fsspec knows") from None
    return system, str(path)


# ---- Parquet
# Rows as parquet and back, exactly.
#
# A column whose values all have one type of Arrow (numbers, texts, lists, objects with the same
# keys) has that type; any other holds JSON text. What a null means stands in the field's metadata,
# so that rows come back as they went: the field is `absent`, or `null`; a field of JSON text is
# `json`.


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


def parquet_rows(name: str, stream: BinaryIO) -> Iterator[Row]:
    """The rows of an open parquet file, `GROUP` in memory at a time. Raises `TaskError` naming it
    where it is none."""
    arrow = library()
    try:
        file = library("pyarrow.parquet").ParquetFile(stream)
        meant = {f.name: (f.metadata or {}).get(_MARK, b"").decode() for f in file.schema_arrow}
        absent = {name: mark in ("json", "absent") for name, mark in meant.items()}
        texts = [name for name, mark in meant.items() if mark == "json"]
        for batch in file.iter_batches(batch_size=GROUP):
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
