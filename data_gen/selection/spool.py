"""Inputs whose lines are read again by their place: a copy on disk for those that cannot be sought
in (compressed ones, parquet, URLs)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import BinaryIO, cast

from assay.rows import Block, is_plain, stored


class Spool:
    """Some inputs; use as a context manager through `stack`."""

    def __init__(self, names: Sequence[str], stack: ExitStack) -> None:
        self._names = names
        self._copied = [not is_plain(name) for name in names]
        self._files: dict[int, BinaryIO] = {}
        self._stack = stack

    def start(self, number: int, block: Block) -> int:
        """Where the bytes of a block of input `number` begin, for `line`."""
        if not self._copied[number]:
            return block.position - len(block.data)
        if number not in self._files:
            made = cast("BinaryIO", tempfile.TemporaryFile(prefix="assay-"))  # noqa: SIM115
            self._files[number] = self._stack.enter_context(made)
        file = self._files[number]
        start = file.seek(0, 2)
        file.write(block.data)
        return start

    def line(self, number: int, start: int, size: int) -> bytes:
        """Bytes of input `number`."""
        if number not in self._files:
            self._files[number] = self._stack.enter_context(stored(self._names[number]))
        file = self._files[number]
        file.seek(start)
        return file.read(size)

    def stored(self, number: int) -> Iterator[bytes]:
        """The bytes of input `number` as they are stored."""
        with stored(self._names[number]) as file:
            while part := file.read(1 << 20):
                yield part
