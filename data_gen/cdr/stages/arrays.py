"""Several arrays in one file, mapped into memory when they are read, and dataclasses as JSON."""

from __future__ import annotations

import json
import math
import mmap
import os
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from assay.files import atomic_write, write_text
from assay.task import TaskError

Array = np.ndarray[Any, np.dtype[Any]]
OPEN = 128  # files of a process
_HEAD = 8  # bytes that say how long the header is


def save_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write the arrays, whole or not at all. The same arrays give the same bytes."""
    header: dict[str, Any] = {}
    at = 0
    for name, array in arrays.items():
        header[name] = [
            array.dtype.descr if array.dtype.names else array.dtype.str,
            array.shape,
            at,
        ]
        at += -(-array.nbytes // 8) * 8
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with atomic_write(path) as out:
        out.write(len(head).to_bytes(_HEAD, "little") + head)
        for array in arrays.values():
            out.write(np.ascontiguousarray(array).data if array.size else b"")
            out.write(b"\0" * (-array.nbytes % 8))


def damaged(path: Path) -> TaskError:
    return TaskError(f"{path}: is cut off or damaged; remove it and run the same command again")


class OpenFiles:
    """Files to read from at many places; the last `OPEN` of them stay open."""

    def __init__(self) -> None:
        self._handles: dict[Path, int] = {}

    def read(self, path: Path, start: int, count: int) -> bytes:
        handle = self._handles.pop(path, None)
        if handle is None:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._handles[path] = handle
        while len(self._handles) > OPEN:
            os.close(self._handles.pop(next(iter(self._handles))))
        return os.pread(handle, count, start)

    def __del__(self) -> None:
        while self._handles:
            os.close(self._handles.popitem()[1])


class Arrays:
    """The arrays of a file by name. Only what is read of them comes into memory."""

    def __init__(self, path: Path) -> None:
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(_HEAD), "little")
            try:
                self._header: dict[str, Any] = json.loads(file.read(length))
            except (ValueError, OverflowError, MemoryError):
                raise damaged(path) from None
            try:
                self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError:  # an empty file
                raise damaged(path) from None
        self._path, self._start = path, _HEAD + length

    def __getitem__(self, name: str) -> Array:
        kind, shape, at = self._header[name]
        dtype = np.dtype(kind if isinstance(kind, str) else [tuple(field) for field in kind])
        if not all(shape):
            return np.empty(shape, dtype)
        try:
            flat = np.frombuffer(self._bytes, dtype, math.prod(shape), self._start + at)
            return flat.reshape(shape)
        except ValueError:  # it ends before the array does
            raise damaged(self._path) from None

    def load(self, name: str) -> Array:
        """A copy in memory, for arrays that are gone through more than once."""
        return np.array(self[name])


def write_json(path: Path, value: Any) -> None:
    """A dataclass (or plain data) as JSON, whole or not at all."""
    write_text(path, json.dumps(value, default=_plain) + "\n", errors="surrogatepass")


def _plain(value: Any) -> dict[str, Any]:
    """A dataclass by its fields; `asdict` would copy everything in them first."""
    return {field.name: getattr(value, field.name) for field in fields(value)}


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8", errors="surrogatepass"))


def decoded(kind: Any, value: Any) -> Any:
    """Plain data as the type `kind` says: dataclasses, tuples, lists, dicts, unions with None."""
    read = _reader(kind)
    return value if read is None else read(value)


@lru_cache(maxsize=256)  # looking at types takes longer than what is made of them
def _reader(kind: Any) -> Callable[[Any], Any] | None:
    """What makes the type of plain data; None where that is it already."""
    if is_dataclass(kind) and isinstance(kind, type):
        return _dataclass_reader(kind)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        read = _reader(next(k for k in inner if k is not type(None)))
        return read and (lambda value: None if value is None else read(value))
    if origin is tuple and inner[1:] == (Ellipsis,):
        read = _reader(inner[0])
        return tuple if read is None else lambda value: tuple(map(read, value))
    if origin is tuple:
        readers = list(map(_reader, inner))
        return lambda value: tuple(
            v if read is None else read(v) for read, v in zip(readers, value, strict=True)
        )
    if origin is list:
        read = _reader(inner[0])
        return read and (lambda value: list(map(read, value)))
    if origin is dict:
        read = _reader(inner[1])
        return read and (lambda value: {k: read(v) for k, v in value.items()})
    return None


def _dataclass_reader(kind: type[Any]) -> Callable[[Any], Any]:
    hints = typing.get_type_hints(kind)
    readers = [(field.name, _reader(hints[field.name])) for field in fields(kind)]

    def made(given: dict[str, Any]) -> Any:
        return kind(**{n: given[n] if read is None else read(given[n]) for n, read in readers})

    return made
