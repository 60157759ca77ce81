"""Bytes from and to files by name: plain, .gz or .zst, here or at a URL that fsspec knows.

Inputs are read in blocks of whole lines, so that a file of any size takes the memory of a few
blocks. Outputs appear when they are complete.
"""

from __future__ import annotations

import glob
import gzip
import importlib
import io
import os
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from assay.errors import TaskError
from assay.extras import install_extra
from assay.files import replacing

STANDARD = "-"  # standard input or output
BLOCK = 1 << 18
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Block:
    """Whole lines of an input. `number` counts the first of them from 1; `position` is how many
    bytes of all inputs, as they are stored, have been read by now."""

    source: str
    number: int
    data: bytes
    position: int


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
    places = [os.path.realpath(name) if _local(name) == name else name for name in found]
    if len(set(places)) < len(places):
        twice = next(name for name, count in Counter(places).items() if count > 1)
        raise TaskError(f"{found[places.index(twice)]}: given twice; name each input once")
    return found


def total_bytes(names: Sequence[str]) -> int | None:
    """How many bytes the inputs hold as they are stored; None where that cannot be known."""
    sizes: list[int] = []
    for name in names:
        path = local_file(name)
        if path is None:
            return None
        sizes.append(os.path.getsize(path))
    return sum(sizes)


def blocks(names: Sequence[str], size: int = BLOCK) -> Iterator[Block]:
    """The lines of the inputs, one after the other, `size` bytes or a little more at a time.

    Raises `TaskError` naming an input that cannot be read or decompressed, `OSError` for a file.
    """
    before = 0
    for name in names:
        with _opened(name) as (stream, below):
            number, first, position = 1, True, 0
            while data := _lines(name, number, stream, size):
                position = _tell(below, position + len(data))
                lines = data.count(b"\n")
                yield Block(
                    name, number, data.removeprefix(_BOM) if first else data, before + position
                )
                number, first = number + lines, False
        before += position


def _lines(name: str, number: int, stream: BinaryIO, size: int) -> bytes:
    """The next whole lines. Standard input gives what has come so far."""
    read = getattr(stream, "read1", stream.read) if name == STANDARD else stream.read
    try:
        data: bytes = read(size)
        return data if data.endswith(b"\n") or not data else data + stream.readline()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _torn(name, number, error) from None
    except Exception as error:
        if type(error).__name__ != "ZstdError":
            raise
        raise _torn(name, number, error) from None


def _torn(name: str, number: int, error: Exception) -> TaskError:
    return TaskError(
        f"{name}: cannot be decompressed from line {number} on ({error}); get the file again"
    )


def _tell(below: Any, otherwise: int) -> int:
    try:
        return int(below.tell())
    except (OSError, ValueError, AttributeError):  # a pipe
        return otherwise


@contextmanager
def _opened(name: str) -> Generator[tuple[BinaryIO, Any]]:
    """(the bytes of an input, the stored bytes below them)."""
    with ExitStack() as stack:
        below = stack.enter_context(stored(name))
        ending = name.rpartition(".")[2].lower()
        if ending == "gz":
            yield cast("BinaryIO", stack.enter_context(gzip.GzipFile(fileobj=below))), below
        elif ending == "zst":
            reader = io.BufferedReader(ZstdReader(below, _zstd(name)), BLOCK)
            yield cast("BinaryIO", stack.enter_context(reader)), below
        else:
            yield below, below


class ZstdReader(io.RawIOBase):
    """The frames of a .zst file, one after the other. The library's own reader takes a file that
    is cut off for one that ends there; this one raises EOFError."""

    def __init__(self, below: BinaryIO, library: Any) -> None:
        self._below, self._library = below, library
        self._frame: Any = None
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while not self._ready:
            if not (data := self._below.read(1 << 16)):
                if self._frame is not None:
                    raise EOFError("the file ends in the middle of a frame")
                return 0
            self._ready = memoryview(b"".join(self._decompressed(data)))
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def _decompressed(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._frame is None:
                self._frame = self._library.ZstdDecompressor().decompressobj()
            yield self._frame.decompress(data)
            if not self._frame.eof:
                return
            data, self._frame = self._frame.unused_data, None


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


@contextmanager
def writing(name: str) -> Generator[BinaryIO]:
    """An output to write bytes to, compressed by its ending. A file or an object appears, or is
    replaced, when the body ends without an error; standard output is written as it comes."""
    if name == STANDARD:
        yield sys.stdout.buffer
        return
    here = _local(name)
    if here is not None:
        with replacing(here) as file, _compressed(name, file) as out:
            yield out
        return
    system, path = file_system(name)
    with tempfile.TemporaryDirectory(prefix="assay-") as folder:
        local = Path(folder) / "whole"
        with open(local, "wb") as file, _compressed(name, file) as out:
            yield out
        system.put_file(str(local), path)


@contextmanager
def _compressed(name: str, file: BinaryIO) -> Generator[BinaryIO]:
    ending = name.rpartition(".")[2].lower()
    if ending == "gz":
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=6, mtime=0) as out:
            yield cast("BinaryIO", out)
    elif ending == "zst":
        with _zstd(name).ZstdCompressor().stream_writer(file, closefd=False) as out:
            yield cast("BinaryIO", out)
    else:
        yield file


def folder_of(name: str) -> Path | None:
    """The folder that an output lies in; None for standard output and a URL."""
    here = _local(name)
    return None if here is None or name == STANDARD else Path(here).parent


def compressed(name: str) -> bool:
    return name.lower().endswith((".gz", ".zst"))


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
    try:
        core = importlib.import_module("fsspec.core")
    except ModuleNotFoundError:
        raise TaskError(f"{name}: URLs need fsspec; {install_extra('build')}") from None
    scheme = name.partition("://")[0]
    try:
        system, path = core.url_to_fs(name)
    except ImportError as error:
        driver = _driver(scheme)
        how = f"run: pip install {driver}" if driver else str(error)
        raise TaskError(
            f"{name}: {scheme}:// needs a driver that is not installed; {how}"
        ) from None
    except ValueError as error:
        raise TaskError(f"{name}: {error}; give a file or a URL that fsspec knows") from None
    return system, str(path)


def _driver(scheme: str) -> str:
    """The package that brings the file system of a scheme; "" where that is not known."""
    known: Any = importlib.import_module("fsspec.registry").known_implementations
    module = str(known.get(scheme, {}).get("class", "")).partition(".")[0]
    return "" if module in ("", "fsspec") else module


def _zstd(name: str) -> Any:
    try:
        return importlib.import_module("zstandard")
    except ModuleNotFoundError:
        raise TaskError(f"{name}: .zst needs zstandard; {install_extra('build')}") from None
