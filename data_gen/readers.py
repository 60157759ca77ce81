# Rows here are parsed from files of any shape; the libraries that read them carry no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""Rows of files of any size, one after the other: JSON lines (plain, .gz, .zst), JSON lists,
parquet, Arrow and text files; on a disk, or behind a URL that fsspec opens.

A list of files can be cut into shards. A plain JSON lines file is cut between its lines, a parquet
file between its row groups; any other file belongs whole to the shard in which it begins.
"""

from __future__ import annotations

import codecs
import contextlib
import glob
import io
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

from assay.rows import arrow_rows, file_system, is_url, library, stored, unpacked
from assay.task import TaskError

TEXT_ENDINGS = {".html": "web", ".htm": "web", ".tex": "latex", ".txt": "", ".md": ""}
TABLE_ENDINGS = (
    *(f"{kind}{packed}" for kind in (".jsonl", ".ndjson") for packed in ("", ".gz", ".zst")),
    *(".json", ".json.gz", ".json.zst", ".parquet", ".arrow"),
)
# What a saved data set keeps beside its rows is no row, nor are a folder's own notes.
BESIDE = (
    "dataset_info.json",
    "dataset_infos.json",
    "state.json",
    "dataset_dict.json",
    "readme.md",
    "licences.txt",
)
LONGEST_LINE = 1 << 26  # bytes; a longer line is left out rather than held
_WIDE = {  # encodings in which a line end is no single byte, by the mark that a text begins with
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
LOST = "\ufffd"  # what a decoder puts in place of a character that it lost

# Told what a line is that holds no row: its number in the piece (from 1), and why.
Torn = Callable[[int, str], None]


class CorpusError(TaskError):
    """A corpus that cannot be used at all; the message names the file and what to do."""


@dataclass(frozen=True)
class Source:
    """One file. `place` is its path or URL, `name` its name from its corpus on, `id` its name
    below the corpus."""

    place: str
    name: str
    id: str
    size: int

    @property
    def path(self) -> PurePosixPath:
        return PurePosixPath(self.place)

    @property
    def whole(self) -> bool:
        """Cannot be cut."""
        return not self.name.endswith((".jsonl", ".ndjson", ".parquet"))

    def open(self) -> AbstractContextManager[BinaryIO]:
        return stored(self.place)


@dataclass(frozen=True)
class Piece:
    """The part of a file whose rows begin at bytes `start` to `stop`."""

    source: Source
    start: int
    stop: int


def find_sources(corpus: str) -> list[Source]:
    """The files of a corpus: a file, a folder, a pattern such as `data/*.jsonl.gz`, or a URL of one
    of these. Of a folder with tables its text files are no documents.

    Raises `CorpusError` when there is none.
    """
    found = _remote(corpus) if is_url(corpus) else _local(corpus.removeprefix("file://"))
    tables = [one for one in found if one.name.endswith(TABLE_ENDINGS)]
    found = tables or found
    if not found:
        raise CorpusError(f"{corpus}: no file of documents; give JSON lines, parquet or text files")
    return found


def _local(corpus: str) -> list[Source]:
    root = Path(corpus)
    if root.is_file():
        return [Source(str(root), root.name, root.name, root.stat().st_size)]
    if root.is_dir():
        base, home = root, root.resolve().name
        paths = sorted(p for p in root.rglob("*") if p.is_file() and _is_rows(p, root))
    elif not glob.has_magic(corpus):
        raise CorpusError(f"{corpus}: no such file or folder; give a corpus")
    else:
        base = _fixed(corpus)
        home = base.name
        paths = [Path(p) for p in sorted(glob.glob(corpus, recursive=True)) if Path(p).is_file()]
        if not paths:
            raise CorpusError(f"{corpus}: no file fits this pattern; give a corpus")
    names = [p.relative_to(base).as_posix() for p in paths]
    return [
        Source(str(p), f"{home}/{name}" if home else name, name, p.stat().st_size)
        for p, name in zip(paths, names, strict=True)
    ]


def _fixed(pattern: str) -> Path:
    """The folder of a pattern, up to its first part with a wildcard."""
    parts = Path(pattern).parts
    count = next(i for i, part in enumerate(parts) if glob.has_magic(part))
    return Path(*parts[:count]) if count else Path()


def _is_rows(path: Path | PurePosixPath, root: Path | PurePosixPath) -> bool:
    if any(part.startswith(".") for part in path.relative_to(root).parts):
        return False
    named = path.name.endswith(TABLE_ENDINGS) or path.suffix in TEXT_ENDINGS
    return named and path.name.lower() not in BESIDE


def _remote(corpus: str) -> list[Source]:
    system, path = file_system(corpus)
    try:
        if glob.has_magic(path):
            paths, root = sorted(system.glob(path)), str(_fixed(path))
        elif system.isfile(path):
            paths, root = [path], str(PurePosixPath(path).parent)
        else:
            paths, root = sorted(system.find(path)), path
        base = PurePosixPath(root)
        whole = len(paths) == 1 and paths[0] == path
        found = [p for p in paths if whole or _is_rows(PurePosixPath(p), base)]
        sizes = [int(system.info(p)["size"]) for p in found]
    except (OSError, ImportError, ValueError) as error:
        raise CorpusError(f"{corpus}: cannot be read: {error}") from None
    if not found:
        raise CorpusError(f"{corpus}: no such file or folder; give a corpus")
    names = [PurePosixPath(p).relative_to(base).as_posix() for p in found]
    return [
        Source(system.unstrip_protocol(p), name if whole else f"{base.name}/{name}", name, size)
        for p, name, size in zip(found, names, sizes, strict=True)
    ]


def cut(sources: Sequence[Source], shards: int, shard: int) -> list[Piece]:
    """What shard `shard` of `shards` reads, in order: an equal part of the bytes of all files.

    The pieces of all shards, one after the other, are the files in their order.
    """
    total = sum(one.size for one in sources)
    low, high = total * shard // shards, total * (shard + 1) // shards
    pieces: list[Piece] = []
    at = 0
    for one in sources:
        first, last = max(low - at, 0), min(high - at, one.size)
        begins = low <= at < high or (at == total == high and shard == shards - 1)
        if one.whole or not one.size:
            if begins:
                pieces.append(Piece(one, 0, one.size))
        elif first < last:
            pieces.append(Piece(one, first, last))
        at += one.size
    return pieces


def rows_before(piece: Piece) -> int:
    """How many lines (of parquet: rows) of the file stand before the piece."""
    if not piece.start:
        return 0
    with piece.source.open() as file:
        if piece.source.path.suffix == ".parquet":
            meta, own = _row_groups(piece, file)
            return sum(meta.metadata.row_group(g).num_rows for g in range(own[0] if own else 0))
        count, left = 1, piece.start - 1
        while left > 0 and (block := file.read(min(left, 1 << 20))):
            count += block.count(b"\n")
            left -= len(block)
        return count


class _NotThisEncoding(ValueError):
    """Bytes that are no text of the encodings that were tried; the message says so."""


def decoded(data: bytes, encoding: str = "") -> str:
    """The text of some bytes: UTF-16 or UTF-32 where their mark stands first, else UTF-8, else
    `encoding` where it is given. A mark goes; line ends stay as they are.

    Raises `ValueError` saying which byte is of none of these.
    """
    wide = _wide(data, "")
    return _in_one_of((wide,) if wide else _narrow(encoding), data)


def _wide(head: bytes, encoding: str) -> str:
    """The encoding of more than a byte a character that a text begins in; "" where it is none."""
    marked = next((name for mark, name in _WIDE.items() if head.startswith(mark)), "")
    return marked or (encoding if encoding.startswith(("utf-16", "utf-32")) else "")


def _narrow(encoding: str) -> tuple[str, ...]:
    return ("utf-8-sig", encoding) if encoding else ("utf-8-sig",)


def _in_one_of(names: Sequence[str], data: bytes) -> str:
    at = 0
    for name in names:
        try:
            text = data.decode(name)
        except UnicodeDecodeError as error:
            at = error.start
            continue
        if (at := data.find(0)) < 0 or not name.startswith("utf-8"):
            return text
    said = " or ".join(name.removesuffix("-sig").upper() for name in names)
    advice = "; say its encoding, such as encoding=cp1252" if len(names) < 2 else ""
    raise _NotThisEncoding(f"not {said} (byte 0x{data[at]:02x} after {at} bytes{advice})")


def raw_rows(piece: Piece, torn: Torn, encoding: str = "") -> Iterator[tuple[int, Any]]:
    """The rows of a piece as they are, with their number in it: their line's, of other forms their
    own. What holds no row is told to `torn`, and so is what is neither UTF-8 nor in `encoding`.
    Raises `CorpusError` when the file cannot be read."""
    source = piece.source
    ending = source.path.suffix
    try:
        if ending in TEXT_ENDINGS:
            with source.open() as file:
                text = decoded(file.read(), encoding)
            yield 1, {"id": source.id, "text": text, "source": source.id}
        elif ending == ".parquet":
            yield from enumerate(_parquet(piece), 1)
        elif ending == ".arrow":
            with source.open() as file:  # a shard of `save_to_disk`: an Arrow stream (or file)
                yield from enumerate(arrow_rows(source.place, file), 1)
        else:
            yield from _json(piece, torn, encoding)
    except _NotThisEncoding as error:
        torn(1, str(error))
    except (OSError, EOFError, ValueError) as error:  # pyarrow's are ValueErrors
        raise CorpusError(f"{source.place}: cannot be read: {error}") from None


def _json(piece: Piece, torn: Torn, encoding: str) -> Iterator[tuple[int, Any]]:
    source = piece.source
    if ".json" in source.path.suffixes and (listed := _json_list(source, encoding)) is not None:
        yield from enumerate(listed, 1)
        return
    for number, line in lines_of(piece, torn, encoding):
        try:
            value: Any = json.loads(line)
        except (ValueError, RecursionError) as error:
            torn(number, f"not valid JSON ({error})")
            continue
        yield number, value


def lines_of(piece: Piece, torn: Torn, encoding: str = "") -> Iterator[tuple[int, str]]:
    """The lines that are not blank, with their number in the piece; those that are neither UTF-8
    nor in `encoding` are told to `torn`."""
    names = _narrow(encoding)
    with piece.source.open() as file, unpacked(file) as plain:
        lines, head = plain, _head(plain)
        if wide := _wide(head, encoding if 0 in head else ""):
            lines = io.BytesIO(_in_one_of((wide,), plain.read()).encode())
        at, stop = piece.start, piece.stop
        if lines is not file or piece.source.whole:  # a compressed file has one piece, its first
            at, stop = 0, 0 if at else sys.maxsize
        if at:  # the line that is cut here belongs to the piece before
            lines.seek(at - 1)
            at += len(lines.readline()) - 1
        number = 0
        while at < stop:
            line = lines.readline(LONGEST_LINE)
            if not line:
                return
            number += 1
            at += len(line)
            if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
                while line and not line.endswith(b"\n"):
                    line = lines.readline(LONGEST_LINE)
                    at += len(line)
                torn(number, f"a line of more than {LONGEST_LINE} bytes")
                continue
            try:
                text = _in_one_of(names, line)
            except _NotThisEncoding as error:
                torn(number, str(error))
                continue
            if text.strip():
                yield number, text


def _head(stream: Any) -> bytes:
    if hasattr(stream, "peek"):
        return stream.peek(4)[:4]
    head: bytes = stream.read(4)
    stream.seek(0)
    return head


def _json_list(source: Source, encoding: str) -> list[Any] | None:
    """The rows of a .json file that is one list; None for one with a row a line."""
    with source.open() as file, unpacked(file) as data:
        head = data.read(1000)
        if head.decode(_wide(head, "") or "utf-8-sig", "ignore").lstrip()[:1] != "[":
            return None
        text = decoded(head + data.read(), encoding)
        with contextlib.suppress(ValueError, RecursionError):
            value: Any = json.loads(text)
            return cast("list[Any]", value) if isinstance(value, list) else None
    return None


def _parquet(piece: Piece) -> Iterator[Any]:
    with piece.source.open() as handle:
        file, own = _row_groups(piece, handle)
        if own:
            for batch in file.iter_batches(batch_size=256, row_groups=own):
                yield from batch.to_pylist()


def _row_groups(piece: Piece, handle: BinaryIO) -> tuple[Any, list[int]]:
    """The open parquet file, and which of its row groups belong to the piece."""
    arrow, parquet = library(), library("pyarrow.parquet")
    try:
        file = parquet.ParquetFile(handle)
    except arrow.ArrowInvalid as error:
        raise OSError(str(error)) from None
    size, count = max(piece.source.size, 1), file.num_row_groups
    return file, [g for g in range(count) if piece.start <= size * g // count < piece.stop]
