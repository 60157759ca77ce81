"""The text of a file: unpacked, in the encoding that fits all of it, or pieces of a large one."""

from __future__ import annotations

import codecs
import contextlib
import importlib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from assay.extras import install_extra
from assay.tables.calls import PACKED, Spans, kept_lines
from assay.tables.plan import Unreadable

MOST = 4 << 30  # bytes of text, unpacked
WHOLE = 1 << 20  # characters up to which every row is looked at
_CHUNK = 1 << 20
_BLOCKS = 24  # places of a larger file that are looked at
_BLOCK = 1 << 14


@dataclass(frozen=True)
class Text:
    """A file's text, or its start and pieces from all over it."""

    encoding: str
    start: str
    pieces: tuple[str, ...] = ()  # each begins and ends inside a line

    @property
    def whole(self) -> bool:
        return not self.pieces


def unpacked(path: Path) -> IO[bytes]:
    """The bytes of a file, unpacked by its suffix."""
    module = PACKED.get(path.suffix.lower(), "")
    if not module:
        return open(path, "rb")
    try:
        return cast("IO[bytes]", importlib.import_module(module).open(path, "rb"))
    except ModuleNotFoundError:
        raise Unreadable(f"{module} is not installed; {install_extra('build')}") from None


def read_text(path: Path, encoding: str = "") -> Text:
    """The text of a file in the encoding that fits it whole: UTF-8, UTF-16, else Windows-1252.

    Raises `Unreadable` for an empty file, for bytes that are no text, and for broken archives.
    """
    try:
        with unpacked(path) as file:
            head = file.read(4096)
        if not head.strip(b"\xef\xbb\xbf \t\r\n\0"):
            raise Unreadable("the file is empty")
        tried = [encoding] if encoding else _encodings(head)
        for code in tried:
            with contextlib.suppress(UnicodeDecodeError), unpacked(path) as file:
                return _sampled(file, code)
    except Unreadable:
        raise
    except Exception as error:  # every unpacker has its own kind
        raise Unreadable(f"cannot be unpacked ({type(error).__name__}: {error})"[:160]) from None
    raise Unreadable(f"is no text in {' or '.join(tried)}; set encoding in tables.yaml")


def without_lines(text: Text, dropped: Spans) -> Text:
    """The start of a text without the lines of these numbers."""
    kept = kept_lines(io.StringIO(text.start, newline=""), dropped)
    return Text(text.encoding, "".join(kept))


def line_in_file(number: int, dropped: Spans) -> int:
    """The number in the file of a line that has this one in a text without some of its lines."""
    for first, last in sorted(dropped):
        number += last - first + 1 if number >= first else 0
    return number


def _encodings(head: bytes) -> list[str]:
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return ["utf-16"]
    if b"\0" in head:
        even, odd = head[::2].count(0), head[1::2].count(0)
        if max(even, odd) < 0.3 * len(head):
            raise Unreadable("holds zero bytes: it is no text")
        return ["utf-16-le" if odd > even else "utf-16-be"]
    return ["utf-8-sig" if head.startswith(codecs.BOM_UTF8) else "utf-8", "cp1252"]


def _sampled(file: IO[bytes], encoding: str) -> Text:
    """The start of the text and pieces from all over it. The whole file is decoded, so a letter
    that does not fit is found wherever it stands."""
    decoder = codecs.getincrementaldecoder(encoding)()
    start: list[str] = []
    pieces: list[tuple[int, str]] = []
    size, length, number, stride = 0, 0, 0, 1
    while chunk := file.read(_CHUNK):
        size += len(chunk)
        if size > MOST:
            raise Unreadable(f"more than {MOST >> 30} GiB of text; split it")
        text = decoder.decode(chunk)
        if length < WHOLE:
            start.append(text)
        elif number % stride == 0:
            pieces.append((number, text[:_BLOCK]))
            if len(pieces) > 2 * _BLOCKS:
                stride *= 2
                pieces = [(n, p) for n, p in pieces if n % stride == 0]
        length += len(text)
        number += 1
    start.append(decoder.decode(b"", True))
    joined = "".join(start)
    if "\0" in joined:
        raise Unreadable("holds zero bytes: it is no text")
    if pieces:
        joined = joined[: max(joined.rfind("\n"), joined.rfind("\r")) + 1] or joined
    return Text(encoding, joined, tuple(p for _, p in pieces))
