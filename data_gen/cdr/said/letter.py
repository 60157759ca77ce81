"""Readings of the longer sentences: `data_gen.cdr.phrases` has them in `TO_THE_LETTER`.

These say what the short ones leave open. Each takes a text and gives the one that the words lead
to; None where the text has something that a reader would take in another way.
"""

from __future__ import annotations

import html
import re
import string
import unicodedata
from collections.abc import Callable, Iterable, Iterator

from data_gen.cdr.said import identifiers, markup, prose


def lines_at_the_top(text: str) -> str | None:
    """Without the leading lines that are empty or begin with //, # or --."""
    if "/*" in text:
        return None
    lines = text.split("\n")
    for place, line in enumerate(lines):
        if line and not line.startswith(("//", "#", "--")):
            return "\n".join(lines[place:])
    return ""


_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_ANGLED = re.compile(r"<[^>\n]+>")
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_NAMED = re.compile(r"(?<![\w)\]])<[A-Za-z/!?@:$#%*][^<>\n]*>|<(?:/|[^\W\d_])[\w.:/-]*>")


def angle_brackets(text: str) -> str | None:
    """Without what stands in angle brackets within a line; None of signs of comparison."""
    if "<" in text:
        text = _COMMENT.sub("", text)
        for found in _ANGLED.finditer(text):
            start, end = found.span()
            template = text[start - 2 : start] == "{{" and text[end : end + 2] == "}}"
            known = markup.is_tag(found[0]) or _NAMED.match(text, start)
            if "<" in found[0][1:] or not (template or known):
                return None
        text = _ANGLED.sub("", text)
    return _ENTITY.sub(lambda m: html.unescape(m[0]), text) if "&" in text else text


_UP_TO_A_BREAK = r"[^\s<>()\[\]{}'\"`]"
_LINK = re.compile(
    rf"(?i)\b(?:https?|ftp)://{_UP_TO_A_BREAK}+|\bwww\d{{0,3}}\.{_UP_TO_A_BREAK}+"
    rf"|(?<![\w@.-])(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+(?:{identifiers.TOP})/{_UP_TO_A_BREAK}*"
    r"|(?:\bmailto:)?(?<![\w.%+-])[a-z0-9_][\w.%+-]*@(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+[a-z]{2,}"
)


_OTHER_LINK = re.compile(r"(?i)\b(?!(?:https?|ftp)://)[a-z][a-z0-9+.-]*://")


def links_with_their_marks(text: str) -> str | None:
    """Without links up to the next blank, bracket or quote, and without addresses of mail; None
    where one is of no web."""
    unsettled = identifiers.LOGIN.search(text) or _OTHER_LINK.search(text)
    return None if unsettled else _LINK.sub("", text)


_WINDOWS = re.compile(r"(?<!\w)(?:[A-Za-z]:\\|\\\\)[^\s<>\"|?*]+")
_SLASHED = re.compile(r"(?<!\w)/(?:[\w.-]+/)+[\w.-]*")


def slashed_names(text: str) -> str | None:
    """Without names between slashes, in addresses of the web too, and names on drives."""
    text = _WINDOWS.sub("", text) if "\\" in text else text
    return _SLASHED.sub("", text) if "/" in text else text


_VALUE = re.compile(
    r"(\b(?:api[_-]?key|secret|password|passwd|token|auth|authorization|credential|license[_-]?key)"
    r"\s*[:=]\s*[\"']?)[^\s\"',}\]]+",
    re.IGNORECASE,
)


def values_of_listed_names(text: str) -> str | None:
    """Without what follows one of the listed names and its : or =, to the next break."""
    return _VALUE.sub(r"\1", text)


def phones_of_the_usual_form(text: str) -> str | None:
    """Without numbers of telephones whose last group has four digits, or seven and more; those
    with an extension stay."""
    return identifiers.without_phones(text, _USUAL)


_USUAL = re.compile(r"[\d+() .-]*(?<!\d)(?:\d{4}|\d{7,})")


_WORD = re.compile(r"\S+")
_PARTS = ("http", "www", ".com", "href", "//")


def words_of_links(text: str) -> str | None:
    """Without words that hold one of the parts between the marks at their ends, in any case."""
    return _WORD.sub(_unless_linked, text)


def _unless_linked(word: re.Match[str]) -> str:
    inside = word[0].strip(string.punctuation).casefold()
    return "" if any(part in inside for part in _PARTS) else word[0]


_ASCII_MARKS = re.compile(r"(?<!\S)[" + re.escape(string.punctuation) + r"]+(?!\S)")


def ascii_marks(text: str) -> str | None:
    """Without tokens of ASCII punctuation and signs."""
    return _ASCII_MARKS.sub("", text)


_NOT_COMPARED = re.compile(r"[^\w\s]|_")


def repeated_pieces(text: str) -> str | None:
    """Without sentences and ends of lines that were there before, letter by letter."""
    return _unrepeated(text, prose.sentences)


# Between two words that have no blank between them, such as those of an address or a file's name.
_IN_A_NAME = re.compile(r"(?<=[^\W\d_]{2})[.!?](?=[^\W_][^\s.!?’”]|_)")


def repeated_parts(text: str) -> str | None:
    """The same, where a mark between two words ends a sentence though no blank follows."""
    return _unrepeated(text, _parts)


def _parts(line: str) -> Iterator[str]:
    for piece in prose.sentences(line):
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


_LISTED = str.maketrans({**prose.PLAIN, "—": " - "})
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
    return prose.decoded(text).translate(_QUOTES)


_LIGATURES = str.maketrans(
    {"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl", "ﬅ": "ſt", "ﬆ": "st"}
)
_WIDE = str.maketrans({**{chr(0xFEE0 + n): chr(n) for n in range(0x21, 0x7F)}, "\u3000": " "})


def characters_plain(text: str) -> str | None:
    """Decoded right, quotes straight, ligatures as letters, wide letters narrow, ends of lines
    alike, entities decoded where no `<` stands."""
    if "&" in text:
        start = text.rfind("\n", 0, text.find("<")) + 1 if "<" in text else len(text)
        above = _ENTITY.sub(lambda m: html.unescape(m[0]), text[:start])
        text = above + text[start:]
    text = prose.decoded(text).translate(_LIGATURES).translate(_WIDE).translate(_QUOTES)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return unicodedata.normalize("NFC", text)


def tables_of_pieces(text: str) -> str | None:
    """The tables, the pieces of a cell trimmed and joined, or the text that has none; None where
    one is inside another."""
    if "<table" not in text.lower():
        return text
    return markup.tables_of(text, _pieces)


def _pieces(cell: list[str]) -> str:
    return "".join(piece.strip() for piece in cell)


_LISTED_BLANKS = re.compile("[\t\x84\u00a0\u2000-\u200d\u202f\u205f\u2060\u3000\ufffc]")


def listed_blanks(text: str) -> str | None:
    """Trimmed, with a plain space for every listed character."""
    return _LISTED_BLANKS.sub(" ", text.strip())


_SIGN = re.compile(r"(?<!\\)%.*")


def percent_signs(text: str) -> str | None:
    """Without comments of HTML, and what stands behind a percent sign without a backslash."""
    return _SIGN.sub("", _COMMENT.sub("", text))


_HEADING = re.compile(r"\\(?:part|chapter|(?:sub){0,2}section)\*?\s*[\[{]")


def from_any_heading(text: str) -> str | None:
    """From the first command of a heading on, wherever it stands."""
    found = _HEADING.search(text)
    return text[found.start() :] if found else text
