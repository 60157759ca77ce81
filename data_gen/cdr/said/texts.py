"""Readings of the words for HTML pages, LaTeX sources, sentences, marks, blanks, and text decoded
wrongly.

Each takes a text and gives what the words lead to; None where that is in doubt.
"""

from __future__ import annotations

import html
import re
import string
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from html.parser import HTMLParser
from typing import Any

from assay.files import yaml_beside

# --- markup

NAMES: dict[str, Any] = yaml_beside(__file__, "names.yaml")
_ELEMENTS, _ALONE = ("|".join(NAMES[kind]) for kind in ("elements", "attributes_alone"))
_TAG = re.compile(
    rf"<!--.*?-->|<!doctype\b[^<>]*>|<\?xml\b[^<>]*\?>"
    rf"|</(?:{_ELEMENTS}|[a-z][a-z0-9]*(?:[-:][\w.-]+)+)\s*>"
    rf"|<(?:{_ELEMENTS}|[a-z][a-z0-9]*(?:[-:][\w.-]+)+)(?=[\s/>])"
    r"(?:\s*(?<=[\s\"'])[@:\w][\w:.@-]*\s*=\s*(?:\"[^\"]*\"|'[^']*'|[^\s\"'=<>`]+)"
    rf"|\s+(?:{_ALONE})(?=[\s/>]))*\s*/?>",
    re.IGNORECASE | re.DOTALL,
)
ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")


def without_tags(text: str) -> str | None:
    if "<" in text:
        text = _TAG.sub("", text)
    return ENTITY.sub(lambda m: html.unescape(m[0]), text) if "&" in text else text


_BLANKS = re.compile(r"[ \t\r\n\f]+")


def _single_blanks(pieces: list[str]) -> str:
    return _BLANKS.sub(" ", "".join(pieces)).strip()


def tables(text: str, cell: Callable[[list[str]], str] = _single_blanks) -> str | None:
    """The tables, one line a row and a tab between cells; None where a page has no table, or one
    inside another. `cell` joins the pieces of text that a cell has."""
    if "<table" not in text.lower():
        return None
    page = _Tables(cell)
    page.feed(text)
    page.close()
    if page.nested or not page.found:
        return None
    made = ["\n".join("\t".join(cells) for cells in table if cells) for table in page.found]
    return "\n\n".join(filter(None, made))


class _Tables(HTMLParser):
    """The text of every cell."""

    def __init__(self, cell: Callable[[list[str]], str]) -> None:
        super().__init__()
        self._as_text = cell
        self.found: list[list[list[str]]] = []
        self.nested = False
        self._depth = 0
        self._cell: list[str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self._depth += 1
            self.nested |= self._depth > 1
            self.found.append([])
        elif self._depth and tag == "tr":
            self._end()
            self.found[-1].append([])
        elif self._depth and tag in ("td", "th"):
            self._end()
            self._cell = []
        elif self._cell is not None:
            self._cell.append(" " if tag in ("br", "p", "div", "li") else "")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th", "tr", "table"):
            self._end()
        if tag == "table":
            self._depth = max(0, self._depth - 1)

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data)

    def _end(self) -> None:
        if self._cell is not None and self.found[-1]:
            self.found[-1][-1].append(self._as_text(self._cell))
        self._cell = None


_OWNED = re.compile(r"copyright|licen[cs]e|\(c\)|©|spdx|all rights reserved", re.IGNORECASE)
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_MARKED = re.compile(r"(?:(?://|#|--).*(?:\n|\Z))+")
_HIDDEN = re.compile(r"<!--.*?-->", re.DOTALL)


def without_licence(text: str) -> str | None:
    """Without the comment of a licence at the top; None where one stands elsewhere or is bare, and
    where blank lines hang on it."""
    if any(_OWNED.search(m[0]) for m in _HIDDEN.finditer(text)):
        return None
    owned = [m.span() for m in _COMMENT.finditer(text) if _OWNED.search(m[0])]
    if len(owned) > 1 or any(text[:start].strip() for start, _ in owned):
        return None
    if owned:
        (start, end) = owned[0]
        return text[:start] + text[end:]
    if text.startswith("\n"):
        return None
    block = _MARKED.match(text)
    if block is None:
        return text
    if not _OWNED.search(block[0]) or text.startswith("#!") or text[block.end() :].startswith("\n"):
        return None
    return text[block.end() :]


_HEADING = re.compile(
    r"(?m)^(?P<before>.*?)(?P<heading>\\(?:part|chapter|(?:sub){0,2}section)\*?\s*[\[{])"
)


def from_heading(text: str) -> str | None:
    """From the first heading on; None where something stands before it in its line."""
    for found in _HEADING.finditer(text):
        if is_comment(found["before"]):
            continue
        return None if found["before"] else text[found.start() :]
    return text


_PERCENT = re.compile(r"(?<!\\)(?:\\\\)*%")


def is_comment(line: str) -> bool:
    return bool(_PERCENT.search(line))


_PERCENT_MARK = re.compile(r"(?m)(?:^|(?<!\d)[ \t])%")  # not "50 %", nor "%20" of an address
_TEX = re.compile(r"\\[A-Za-z]+\s*[\[{]")
_COMMAND_LINE = re.compile(r"(?m)^\s*(?:#|//|/\*)")
_AS_IT_STANDS = re.compile(
    r"\\begin\{(verbatim|lstlisting|minted|alltt|Verbatim|CodeInput|CodeOutput|comment)\*?\}"
    r"|\\(?:verb|url|href|path|lstinline)\*?\b"
)


def without_comments(text: str) -> str | None:
    """None where a percent sign may be no comment, and in scripts, whose marks are no TeX."""
    text = _HIDDEN.sub("", text) if "<!--" in text else text
    if not _TEX.search(text):
        return None if _PERCENT_MARK.search(text) or _COMMAND_LINE.search(text) else text
    if "%" not in text:
        return None if "\\begin{comment}" in text else text
    lines: list[str] = []
    for line in text.split("\n"):
        if found := _PERCENT.search(line):
            if _AS_IT_STANDS.search(line):
                return None
            line = line[: found.end() - 1]
        lines.append(line)
    if any(_holds_percent(text, m) for m in _AS_IT_STANDS.finditer(text)):
        return None
    return "\n".join(lines)


def _holds_percent(text: str, found: re.Match[str]) -> bool:
    name = found[1]
    if name is None:
        return False
    end = text.find(f"\\end{{{name}", found.end())
    return name == "comment" or "%" in text[found.end() : end if end >= 0 else len(text)]


_BACK = re.compile(
    r"(?m)^(?P<before>.*?)(?P<mark>\\appendix(?![A-Za-z])|\\begin\{(?:thebibliography|references"
    r"|REFERENCES|appendix|appendices)\}|\\bibliography\{|\\printbibliography"
    r"|\\(?:sub)?section\*?\{\s*(?:References|Bibliography|Appendi))"
)


def until_bibliography(text: str) -> str | None:
    """Up to the bibliography or an appendix; None where it begins within a line."""
    for found in _BACK.finditer(text):
        if is_comment(found["before"]):
            continue
        return None if found["before"].strip() else text[: found.start("mark")]
    return text


_DEFINED = re.compile(
    r"\\(?:(?:re)?newcommand|providecommand)\*?\s*\{?(\\[A-Za-z]+)\}?\s*(\[\d\])?\s*\{"
    r"|\\def\s*(\\[A-Za-z]+)\s*(#\d)?[^{\\\n]*\{"
)


def macros_written_out(text: str) -> str | None:
    """Every use of a macro without arguments by its definition, where it is defined too; None
    where one is defined twice, over lines, in a comment, or by another one."""
    known: dict[str, str] = {}
    for found in _DEFINED.finditer(text):
        line = text.rfind("\n", 0, found.start()) + 1
        if is_comment(text[line : found.start()]):
            return None
        name = found[1] or found[3]
        value = _braced(text, found.end())
        if value is None or "\n" in value:
            return None
        if found[2] or found[4] or "#" in value:
            continue
        if name in known:
            return None
        known[name] = value
    if not known:
        return text
    use = re.compile("(" + "|".join(map(re.escape, known)) + r")(?![A-Za-z])")
    if any(use.search(value) for value in known.values()):
        return None
    return use.sub(lambda m: known[m[1]], text)


def _braced(text: str, start: int) -> str | None:
    """What stands up to the brace that closes the one before `start`."""
    depth = 1
    for found in re.finditer(r"\\.|[{}]", text[start : start + 2000]):
        depth += {"{": 1, "}": -1}.get(found[0], 0)
        if not depth:
            return text[start : start + found.start()]
    return None


# --- prose

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


_MARKS: dict[str, str] = NAMES["plain_marks"]
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


def lines_at_the_top(text: str) -> str | None:
    """Without the leading lines that are empty or begin with //, # or --."""
    if "/*" in text:
        return None
    lines = text.split("\n")
    for place, line in enumerate(lines):
        if line and not line.startswith(("//", "#", "--")):
            return "\n".join(lines[place:])
    return ""


_ANGLED = re.compile(r"<[^>\n]+>")
_NAMED = re.compile(r"(?<![\w)\]])<[A-Za-z/!?@:$#%*][^<>\n]*>|<(?:/|[^\W\d_])[\w.:/-]*>")


def angle_brackets(text: str) -> str | None:
    """Without what stands in angle brackets within a line; None of signs of comparison."""
    if "<" in text:
        text = _HIDDEN.sub("", text)
        for found in _ANGLED.finditer(text):
            start, end = found.span()
            template = text[start - 2 : start] == "{{" and text[end : end + 2] == "}}"
            known = _TAG.fullmatch(found[0]) or _NAMED.match(text, start)
            if "<" in found[0][1:] or not (template or known):
                return None
        text = _ANGLED.sub("", text)
    return ENTITY.sub(lambda m: html.unescape(m[0]), text) if "&" in text else text


def tables_of_pieces(text: str) -> str | None:
    """The tables, the pieces of a cell trimmed and joined, or the text that has none; None where
    one is inside another."""
    if "<table" not in text.lower():
        return text
    return tables(text, _pieces)


def _pieces(cell: list[str]) -> str:
    return "".join(piece.strip() for piece in cell)


_SIGN = re.compile(r"(?<!\\)%.*")


def percent_signs(text: str) -> str | None:
    """Without comments of HTML, and what stands behind a percent sign without a backslash."""
    return _SIGN.sub("", _HIDDEN.sub("", text))


_ANY_HEADING = re.compile(r"\\(?:part|chapter|(?:sub){0,2}section)\*?\s*[\[{]")


def from_any_heading(text: str) -> str | None:
    """From the first command of a heading on, wherever it stands."""
    found = _ANY_HEADING.search(text)
    return text[found.start() :] if found else text


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
