"""Readings of the words for sentences, marks and blanks, and for text decoded wrongly."""

from __future__ import annotations

import html
import re
import string
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial

from assay.files import yaml_beside
from data_gen.cdr.said.markup import ENTITY

_CLOSERS = "\"'’”»)\\]"
# A mark ends a sentence where its line ends, or where a blank and the start of another follow.
_END = re.compile(rf"[.!?]+[{_CLOSERS}]*(?=\s+[\"'“‘«(\[]?[^\W_a-z]|\s*\Z)|[。！？]+[”」』）]*")
_ABBREVIATED = re.compile(
    r"(?:\b(?:mr|mrs|ms|dr|prof|st|jr|sr|vs|etc|cf|al|eds?|inc|ltd|corp|dept|univ|approx|bzw|usw|hr"
    r"|fr|sgt|rev|blvd)|\b[^\W\d]|\w\.\w+|(?<![\w.,])\d{1,2})\Z",
    re.IGNORECASE,
)
_ABBREVIATED_BEFORE_DIGIT = re.compile(
    r"\b(?:nos?|nr|figs?|eqs?|sect?|ch|vol|pp?|art|abs|abb|ca|tel|ext|jan|feb|mar|apr|jun|jul|aug"
    r"|sept?|oct|nov|dec|mon|tue|wed|thu|fri|sat|sun)\Z",
    re.IGNORECASE,
)
_WORDY = re.compile(r"[^\W\d_]{2}")
_ENDED = re.compile(rf"[.!?。！？][{_CLOSERS}」』）]*\Z")


def repeats(text: str) -> str | None:
    """Without the sentences that stood there before, to the letter; None where half a sentence
    would be one of them."""
    seen: set[str] = set()
    lines: list[str] = []
    goes_on = False  # the line before ends within a sentence
    for line in text.split("\n"):
        kept: list[str] = []
        for place, piece in enumerate(sentences(line)):
            said = " ".join(piece.split())
            if not _is_sentence(said):
                kept.append(piece)
            elif said not in seen:
                seen.add(said)
                kept.append(piece)
            elif goes_on and not place:
                return None
        lines.append("".join(kept))
        goes_on = line[-1:].isalpha() or line[-1:] == ","
    return "\n".join(lines)


@lru_cache(maxsize=2000)  # lines stay as they are from step to step
def sentences(line: str) -> tuple[str, ...]:
    """The line in pieces, one a sentence with the blanks before it."""
    return tuple(_sentences(line))


def _sentences(line: str) -> Iterator[str]:
    last = 0
    for found in _END.finditer(line):
        if found[0] == "." and _is_abbreviated(line, last, found.start()):
            continue
        yield line[last : found.end()]
        last = found.end()
    if last < len(line):
        yield line[last:]


def _is_abbreviated(line: str, first: int, stop: int) -> bool:
    """Whether the point at `stop` belongs to the word before it."""
    first = max(first, stop - 12)
    if _ABBREVIATED.search(line, first, stop):
        return True
    numbered = line[stop + 1 :].lstrip()[:1].isdigit()
    return numbered and bool(_ABBREVIATED_BEFORE_DIGIT.search(line, first, stop))


def _is_sentence(said: str) -> bool:
    first = said.lstrip("\"'“‘«([")[:1]
    begins = first.isdigit() or (first.isalpha() and not first.islower())
    return begins and bool(_ENDED.search(said) and _WORDY.search(said))


_TOKEN = re.compile(r"\S+")
_SUMS = frozenset("+<=>$")  # signs between numbers and words rather than punctuation


def marks_alone(text: str) -> str | None:
    """Without tokens of punctuation alone; None where a sign of sums stands alone."""
    spans: list[str] = []
    last = 0
    for found in _TOKEN.finditer(text):
        token = found[0]
        if token[0].isalnum() or not all(map(_is_mark, token)):
            continue
        if _SUMS.issuperset(token) and (len(token) < 3 or len(set(token)) > 1):
            return None
        spans.append(text[last : found.start()])
        last = found.end()
    return "".join((*spans, text[last:]))


def _is_mark(char: str) -> bool:
    return char in "$+<=>^`|~" or unicodedata.category(char)[0] == "P"


_BULLET = re.compile(
    "[\u2022\u2023\u2043\u2219\u25a0-\u25ff\u2605\u2606\u2610-\u2612\u2660-\u2667\u2713-\u2718"
    "\u271a-\u2767\u2794-\u27bf\u2b1b\u2b1c\u2b50]"
)
_BOX = re.compile("[\u2500-\u259f\u00b7]")


def bullets(text: str) -> str | None:
    if text.isascii():
        return text
    return None if _BOX.search(text) else _BULLET.sub("", text)


_MARKS: dict[str, str] = yaml_beside(__file__, "names.yaml")["plain_marks"]
PLAIN = {mark: plain for plain, marks in _MARKS.items() for mark in marks}
_PLAIN_TABLE = str.maketrans(PLAIN)
# A mark that brings blanks along, and signs that are no punctuation: what becomes of these is not
# said.
_UNSAID = re.compile("[—．１►━]")
_AS_THEY_ARE = "§¶¡¿†‡"  # have no plain form


def plain_marks(text: str) -> str | None:
    if text.isascii():
        return text
    if _UNSAID.search(text):
        return None
    done = text.translate(_PLAIN_TABLE)
    return None if any(map(_is_typographic, set(done))) else done


@lru_cache(maxsize=4096)
def _is_typographic(char: str) -> bool:
    other = not char.isascii() and char not in _AS_THEY_ARE
    return other and unicodedata.category(char)[0] == "P"


_NO_WIDTH = re.compile("[\x0b\x0c\x84\u180e\u200b-\u200f\u2060\ufeff\ufffc]")
_SPACE = re.compile("[\t\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")


def blanks(text: str) -> str | None:
    """One plain blank for a tab or a blank of another width; None where a sign has no width."""
    return None if _NO_WIDTH.search(text) else _SPACE.sub(" ", text.strip())


def _bytes_of(code: str) -> dict[str, int]:
    """The bytes beyond ASCII that stand behind the characters of a code page."""
    found = {chr(byte): byte for byte in range(0x80, 0x100)} if code == "cp1252" else {}
    for byte in range(0x80, 0xA0 if code == "cp1252" else 0x100):
        found[bytes([byte]).decode(code, "replace")] = byte
    found.pop("\ufffd", None)
    return found


_BYTES = {code: _bytes_of(code) for code in ("cp1252", "mac_roman", "cp1250")}
_RUNS = {
    code: re.compile("[" + "".join(map(re.escape, sorted(chars))) + "]{2,}")
    for code, chars in _BYTES.items()
}
_SEQUENCE = re.compile(
    rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}"
)
_CURLED = re.compile("[‘’‚“”„]")


def decoded_right(text: str) -> str | None:
    """UTF-8 that was read as Windows-1252 or Latin-1 read right; None where quotes are curled,
    which not every sentence straightens."""
    text = decoded(text)
    return None if _CURLED.search(text) else text


@lru_cache(maxsize=8)
def decoded(text: str) -> str:
    """UTF-8 that was read as Windows-1252, Latin-1, Mac Roman or Windows-1250 read right."""
    if text.isascii():
        return text
    for _ in range(3):
        better = text
        for code, run in _RUNS.items():
            better = run.sub(partial(_read_again, _BYTES[code]), better)
        if better == text:
            break
        text = better
    return text


def _read_again(known: Mapping[str, int], run: re.Match[str]) -> str:
    pieces: list[str] = []
    last = 0
    data = bytes(known[char] for char in run[0])
    for found in _SEQUENCE.finditer(data):
        try:
            right = found[0].decode()
        except UnicodeDecodeError:
            continue
        pieces += (run[0][last : found.start()], right)
        last = found.end()
    return "".join((*pieces, run[0][last:]))


# --- the longer sentences, which say what the short ones leave open


_ASCII_MARKS = re.compile(r"(?<!\S)[" + re.escape(string.punctuation) + r"]+(?!\S)")


def ascii_marks(text: str) -> str | None:
    """Without tokens of ASCII punctuation and signs."""
    return _ASCII_MARKS.sub("", text)


_NOT_COMPARED = re.compile(r"[^\w\s]|_")


def repeated_pieces(text: str) -> str | None:
    """Without sentences and ends of lines that were there before, letter by letter."""
    return _unrepeated(text, sentences)


# Between two words that have no blank between them, such as those of an address or a file's name.
_IN_A_NAME = re.compile(r"(?<=[^\W\d_]{2})[.!?](?=[^\W_][^\s.!?’”]|_)")


def repeated_parts(text: str) -> str | None:
    """The same, where a mark between two words ends a sentence though no blank follows."""
    return _unrepeated(text, _parts)


def _parts(line: str) -> Iterator[str]:
    for piece in sentences(line):
        last = 0
        for found in _IN_A_NAME.finditer(piece):
            yield piece[last : found.end()]
            last = found.end()
        if last < len(piece):
            yield piece[last:]


def _unrepeated(text: str, pieces: Callable[[str], Iterable[str]]) -> str:
    seen: set[str] = set()
    lines: list[str] = []
    for line in text.split("\n"):
        kept: list[str] = []
        for piece in pieces(line):
            key = _NOT_COMPARED.sub("", piece.strip())
            if not key or key not in seen:
                kept.append(piece)
                seen.add(key)
        lines.append("".join(kept))
    return "\n".join(lines)


_LISTED = str.maketrans({**PLAIN, "—": " - "})
_UNLISTED = re.compile("[．１►━]")
_EASTERN = re.compile(
    "[\u3001-\u3003\u3008-\u301f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65]"
)


def listed_marks(text: str) -> str | None:
    """Every listed mark by its plain one; None where there is one that is no punctuation."""
    if text.isascii():
        return text
    done = text.translate(_LISTED)
    return None if _UNLISTED.search(text) or _EASTERN.search(done) else done


_QUOTES = str.maketrans({**dict.fromkeys("‘’‚‛ʼ", "'"), **dict.fromkeys("“”„‟", '"')})


def quotes_straight(text: str) -> str | None:
    """Decoded right, with straight quotes."""
    return decoded(text).translate(_QUOTES)


_LIGATURES = str.maketrans(
    {"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl", "ﬅ": "ſt", "ﬆ": "st"}
)
_WIDE = str.maketrans({**{chr(0xFEE0 + n): chr(n) for n in range(0x21, 0x7F)}, "\u3000": " "})


def characters_plain(text: str) -> str | None:
    """Decoded right, quotes straight, ligatures as letters, wide letters narrow, ends of lines
    alike, entities decoded where no `<` stands."""
    if "&" in text:
        start = text.rfind("\n", 0, text.find("<")) + 1 if "<" in text else len(text)
        above = ENTITY.sub(lambda m: html.unescape(m[0]), text[:start])
        text = above + text[start:]
    text = decoded(text).translate(_LIGATURES).translate(_WIDE).translate(_QUOTES)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return unicodedata.normalize("NFC", text)


_LISTED_BLANKS = re.compile("[\t\x84\u00a0\u2000-\u200d\u202f\u205f\u2060\u3000\ufffc]")


def listed_blanks(text: str) -> str | None:
    """Trimmed, with a plain space for every listed character."""
    return _LISTED_BLANKS.sub(" ", text.strip())
