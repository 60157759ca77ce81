"""The text of a file: unpacked, in the encoding that fits all of it, or pieces of a large one."""

from __future__ import annotations

import codecs
import contextlib
import importlib
import io
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from assay.extras import install_extra
from assay.tables.calls import PACKED, Spans, kept_lines
from assay.tables.doubts import Doubt
from assay.tables.plan import Unreadable, in_doubt

MOST = 4 << 30  # bytes of text, unpacked
WHOLE = 1 << 20  # characters up to which every row is looked at
_CHUNK = 1 << 20
_BLOCKS = 24  # places of a larger file that are looked at
_BLOCK = 1 << 14
_SAMPLE = 1 << 15  # bytes whose encoding is looked for


@dataclass(frozen=True)
class Text:
    """A file's text, or its start, pieces from all over it, and its end."""

    encoding: str
    start: str
    pieces: tuple[str, ...] = ()  # each begins and ends inside a line
    end: str = ""  # whole lines
    end_line: int = 0  # the number of its first line

    @property
    def whole(self) -> bool:
        return not self.pieces


def unpacked(path: Path, member: str = "") -> IO[bytes]:
    """The bytes of a file, unpacked by its suffix; or of one member of a zip archive."""
    if member:
        return zipfile.ZipFile(path).open(member)
    module = PACKED.get(path.suffix.lower(), "")
    if not module:
        return open(path, "rb")
    try:
        return cast("IO[bytes]", importlib.import_module(module).open(path, "rb"))
    except ModuleNotFoundError:
        raise Unreadable(f"{module} is not installed; {install_extra('build')}") from None


def read_text(path: Path, encoding: str = "", member: str = "") -> Text:
    """The text of a file: in the encoding given, or UTF-8 if all bytes are, or UTF-16 by its mark
    or zero bytes.

    Raises `Unreadable` for an empty file, for bytes that are no text, for broken archives, and,
    with a doubt, for bytes that are letters in more than one other encoding.
    """
    try:
        with unpacked(path, member) as file:
            head = file.read(4096)
        if not head.strip(b"\xef\xbb\xbf \t\r\n\0"):
            raise Unreadable("the file is empty")
        code = encoding or _encoding(head)
        try:
            with unpacked(path, member) as file:
                return _sampled(file, code)
        except UnicodeDecodeError:
            if encoding or code.startswith("utf-16"):
                said = f"is no text in {code}; set encoding in tables.yaml"
                raise Unreadable(said) from None
        with unpacked(path, member) as file:
            doubt = encoding_doubt(file)
        raise in_doubt(doubt)
    except Unreadable:
        raise
    except Exception as error:  # every unpacker has its own kind
        raise Unreadable(f"cannot be unpacked ({type(error).__name__}: {error})"[:160]) from None


def encoding_doubt(file: IO[bytes]) -> Doubt:
    """The doubt of bytes that are no UTF-8: where a letter is broken, if most are whole, else how
    two encodings spell one cell."""
    good, bad = 0, 0
    where, place, last = 0, b"", b""
    sample: list[bytes] = []
    size, number = 0, 0
    for number, line in enumerate(file, 1):
        last = line
        if line.isascii():
            continue
        try:
            line.decode()
            good += 1
        except UnicodeDecodeError as error:
            bad += 1
            if not where:
                where, place = number, line[error.start : error.start + 1]
        size += len(line)
        if size <= _SAMPLE:
            sample.append(line)
        if size > 64 * _SAMPLE:
            break
    if good > bad:
        if bad == 1 and where == number and not last.endswith(b"\n"):
            said = f"the text is UTF-8, and its last line, {where}, ends inside a letter"
            return Doubt("encoding", f"{said}; fetch the whole file")
        others = f" and {bad - 1} more lines" if bad > 1 else ""
        said = f"the text is UTF-8, but line {where}{others} has the byte 0x{place.hex()}"
        return Doubt("encoding", f"{said}; mend it, or name the encoding under `encoding`")
    proposed = _proposed(b"".join(sample))
    cell = _cell(sample[0])
    spelled = {code: cell.decode(code, "replace") for code in proposed}
    first, *others = proposed
    other = next((c for c in others if spelled[c] != spelled[first]), "")
    said = f"the bytes are no UTF-8: line {where} has {spelled[first]!r} as {first}"
    said += f", {spelled[other]!r} as {other}" if other else ""
    return Doubt("encoding", said, f"encoding: {first}" + (f"  # or {other}" if other else ""))


def _proposed(data: bytes) -> list[str]:
    """Encodings that the bytes can have, the likeliest first."""
    found: list[str] = []
    with contextlib.suppress(ModuleNotFoundError):
        normalizer: Any = importlib.import_module("charset_normalizer")
        listed = [str(match.encoding) for match in normalizer.from_bytes(data)]
        found = [code for code in listed if not code.startswith("utf")]
    for code in (*found, "cp1252", "cp1250", "cp1251", "latin-1"):
        with contextlib.suppress(UnicodeDecodeError, LookupError):
            data.decode(code)
            found = found if code in found else [*found, code]
    return found


def _cell(line: bytes) -> bytes:
    """The first field of a line that has a byte beyond ASCII."""
    return next(f for f in re.split(rb"[,;\t|\r\n]", line) if not f.isascii())[:40]


def without_lines(text: Text, dropped: Spans) -> Text:
    """The start of a text without the lines of these numbers."""
    kept = kept_lines(io.StringIO(text.start, newline=""), dropped)
    return Text(text.encoding, "".join(kept))


def line_in_file(number: int, dropped: Spans) -> int:
    """The number in the file of a line that has this one in a text without some of its lines."""
    for first, last in sorted(dropped):
        number += last - first + 1 if number >= first else 0
    return number


def _encoding(head: bytes) -> str:
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" in head:
        even, odd = head[::2].count(0), head[1::2].count(0)
        if max(even, odd) < 0.3 * len(head):
            raise Unreadable("holds zero bytes: it is no text")
        return "utf-16-le" if odd > even else "utf-16-be"
    return "utf-8-sig" if head.startswith(codecs.BOM_UTF8) else "utf-8"


def _sampled(file: IO[bytes], encoding: str) -> Text:
    """The start of the text and pieces from all over it. The whole file is decoded, so a letter
    that does not fit is found wherever it stands."""
    decoder = codecs.getincrementaldecoder(encoding)()
    start: list[str] = []
    pieces: list[tuple[int, str]] = []
    size, length, number, stride, lines, end = 0, 0, 0, 1, 0, ""
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
        lines += text.count("\n")
        end = (end + text)[-_BLOCK:]
    start.append(decoder.decode(b"", True))
    joined = "".join(start)
    if "\0" in joined:
        raise Unreadable("holds zero bytes: it is no text")
    if pieces:
        joined = joined[: max(joined.rfind("\n"), joined.rfind("\r")) + 1] or joined
    if not pieces:
        return Text(encoding, joined)
    end = end[end.find("\n") + 1 :]
    return Text(encoding, joined, tuple(p for _, p in pieces), end, lines - end.count("\n") + 1)
