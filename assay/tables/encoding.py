"""The text of a file: unpacked, in the encoding that fits all of it."""

from __future__ import annotations

import codecs
import contextlib
import importlib
import io
import re
import zipfile
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, cast

from assay.errors import install_extra
from assay.tables.plan import PACKED, Spans, Unreadable, in_doubt, kept_lines
from assay.tables.settings import Doubt

MOST = 4 << 30  # bytes of text, unpacked
_START = 1 << 20  # characters at the start that tell how fields and rows are kept apart
_SAMPLE = 1 << 15  # bytes whose encoding is looked for
_COMMON = (  # encodings that people have, the commonest first
    *("cp1252", "cp1251", "cp1250", "cp1253", "cp1254", "cp1255", "cp1256", "koi8-r", "gb18030"),
    *("big5", "cp932", "cp949", "euc-jp", "iso-8859-2", "iso-8859-15", "cp1257", "cp874", "cp850"),
    *("cp852", "cp866", "mac-roman"),
)
_MOST_CODES = 3  # encodings that are proposed
_ODDER = 0.3  # how much odder than the first their letters may be
_CELL = 40  # characters of a cell that are shown
_CONTROL = re.compile("[\x80-\x9f]")  # signs of encodings that nobody writes
_WORD = re.compile(r"[^\W_]*[^\x00-\x7f][^\x00-\x2f\x3a-\x40\x5b-\x60\x7b-\x7f]*")
_SIGNS = frozenset("“”‘’„‚‹›«»–—…•€£¥°§©®™†‡±²³½¼¾·№\xa0ªº¿¡、。「」・（），：")
_SCRIPTS = (  # where the letters of a script begin, the last first
    *(("\uff00", "Kana"), ("\uac00", "Hangul"), ("\u3400", "Han"), ("\u3040", "Kana")),
    *(("\u2e80", "Han"), ("\u1e00", "Latin"), ("\u0e00", "Thai"), ("\u0600", "Arabic")),
    *(("\u0590", "Hebrew"), ("\u0400", "Cyrillic"), ("\u0370", "Greek")),
)


@dataclass(frozen=True)
class Text:
    """A file's text, or whole lines from its start."""

    encoding: str
    start: str
    whole: bool = True


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
                return _start(file, code)
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
    up to three encodings spell one cell."""
    good, bad = 0, 0
    where, place, last = 0, b"", b""
    sample: list[tuple[int, bytes]] = []
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
            sample.append((number, line))
        if size > 64 * _SAMPLE:
            break
    if good > bad:
        if bad == 1 and where == number and not last.endswith(b"\n"):
            said = f"the text is UTF-8, and its last line, {where}, ends inside a letter"
            return Doubt("encoding", f"{said}; fetch the whole file")
        others = f" and {bad - 1} more lines" if bad > 1 else ""
        said = f"the text is UTF-8, but line {where}{others} has the byte 0x{place.hex()}"
        return Doubt("encoding", f"{said}; mend it, or name the encoding under `encoding`")
    first, *others = codes = _proposed(b"".join(line for _, line in sample))
    where, line = max(sample, key=lambda one: len({_cell(one[1], code) for code in codes}))
    spelled = [f"{_cell(line, code)!r} as {code}" for code in codes]
    said = f"the bytes are no UTF-8: line {where} has {', '.join(spelled)}"
    more = f"  # or {', or '.join(others)}" if others else ""
    return Doubt("encoding", said, f"encoding: {first}{more}")


def _proposed(data: bytes) -> list[str]:
    """Up to three encodings that give the bytes different texts, the likeliest first: by how odd
    their letters are, in wide ones as charset-normalizer ranks them, then as common as they are."""
    ranks: dict[str, int] = {}
    with contextlib.suppress(ModuleNotFoundError):
        normalizer: Any = importlib.import_module("charset_normalizer")
        for place, match in enumerate(normalizer.from_bytes(data)):
            ranks |= dict.fromkeys(map(str, match.could_be_from_charset), place)
    texts: dict[str, tuple[float, int, str]] = {}
    for code in (*_COMMON, *(c for c in ranks if not c.startswith("utf"))):
        name = codecs.lookup(code).name
        with contextlib.suppress(UnicodeDecodeError):
            text = data.decode(code)
            if not _CONTROL.search(text) and text not in [t for _, _, t in texts.values()]:
                wide = any(_script(c) in ("Han", "Kana", "Hangul") for c in text)
                rank = ranks.get(name.replace("-", "_"), len(ranks)) if wide else 0
                rare = 0.0 if code in _COMMON else 1.0
                texts[code] = (rare + round(_oddness(text), 1), rank, text)
    found = sorted(texts, key=lambda code: texts[code][:2])
    if not found:
        return ["latin-1"]
    return [c for c in found if texts[c][0] <= texts[found[0]][0] + _ODDER][:_MOST_CODES]


def _oddness(text: str) -> float:
    """The share of the letters beyond ASCII that a writer would not have put there: signs, letters
    of two scripts in a word, capitals behind small ones, rare characters."""
    odd = count = 0
    for word in _WORD.findall(text):
        strange = [c for c in word if c >= "\x80" and c not in _SIGNS]
        scripts = {_script(c) for c in word if c.isalpha()}
        small_first = any(a.islower() and b.isupper() for a, b in pairwise(word))
        accents = re.search(r"[\u0080-\u024f]{4}", word) is not None
        count += len(strange)
        mixed = len({"Han" if s == "Kana" else s for s in scripts}) > 1
        if mixed or small_first or accents:
            odd += len(strange)
        else:
            odd += sum(not c.isalpha() or _rare(c) for c in strange)
    return odd / count if count else 0.0


def _script(letter: str) -> str:
    return next((script for start, script in _SCRIPTS if letter >= start), "Latin")


def _rare(letter: str) -> bool:
    """Whether a Chinese character is beyond the first levels of GB 2312, Big5 and JIS X 0208, or a
    Korean syllable beyond KS X 1001."""
    script = _script(letter)
    if script == "Hangul":
        return len(letter.encode("euc-kr", "ignore")) != 2
    if script != "Han":
        return False
    for code, first, last in (("gb2312", 0xB0, 0xD7), ("big5", 0xA4, 0xC6), ("cp932", 0x88, 0x98)):
        with contextlib.suppress(UnicodeEncodeError):
            if first <= letter.encode(code)[0] <= last:
                return False
    return True


def _cell(line: bytes, code: str) -> str:
    """The first field of a line that has a letter beyond ASCII, around that letter."""
    fields = re.split(r"[,;\t|\r\n]", line.decode(code, "replace"))
    field = next((f for f in fields if not f.isascii()), fields[0]).strip().strip('"')
    place = next((i for i, c in enumerate(field) if not c.isascii()), 0)
    start = max(0, place - _CELL // 2)
    return field[start : start + _CELL]


def without_lines(text: Text, dropped: Spans) -> Text:
    """The start of a text without the lines of these numbers."""
    kept = kept_lines(io.StringIO(text.start, newline=""), dropped)
    return replace(text, start="".join(kept))


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


def _start(file: IO[bytes], encoding: str) -> Text:
    """The start of the text. The whole file is decoded, so a letter that does not fit is found
    wherever it stands."""
    decoder = codecs.getincrementaldecoder(encoding)()
    start, size, whole = "", 0, True
    while chunk := file.read(_START):
        size += len(chunk)
        if size > MOST:
            raise Unreadable(f"more than {MOST >> 30} GiB of text; split it")
        text = decoder.decode(chunk)
        whole = len(start) < _START
        start += text if whole else ""
    start += decoder.decode(b"", True)
    if "\0" in start:
        raise Unreadable("holds zero bytes: it is no text")
    if not whole:
        start = start[: max(start.rfind("\n"), start.rfind("\r")) + 1] or start
    return Text(encoding, start, whole)
