"""Web mappers: markup, encoding repair, tables, punctuation and links."""

from __future__ import annotations

import functools
import html
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import regex

from assay.rows import library
from rewards.gold.core import SYMBOLS, GoldError, rx, std, sub_within


def clean_copyright(text: str) -> str:
    # Equal to searching the C-comment pattern: the first opener that is ever closed is the first.
    """Cuts the first C-style comment if it mentions copyright; without such a comment, drops the
    leading lines that are empty or start with `//`, `#` or `--`."""
    start = text.find("/*")
    end = text.find("*/", start + 2) + 2 if start >= 0 else 1
    if end > 1:
        if rx("copyright", regex.IGNORECASE).search(text, start, end):
            return text[:start] + text[end:]
        return text
    kept = 0
    while kept < len(text) and (text[kept] == "\n" or text.startswith(("//", "#", "--"), kept)):
        kept = text.find("\n", kept) + 1 or len(text)
    return text[kept:]


def clean_html(text: str, repl: str = "") -> str:
    """Removes markup and decodes entities once."""
    if "<" in text:
        text = std(r"<!--.*?-->", re.DOTALL).sub(repl, text)
        text = std(r"<[^>\n]+>").sub(repl, text)
    return html.unescape(text)


def clean_html_dj(text: str, repl: str = "") -> str:
    """`clean_html_mapper` in profile `dj`; operators.yaml says how it differs."""
    wanted = "clean_html_mapper in profile dj (the Modest engine of selectolax below 1.0)"
    parse = library("selectolax.parser", wanted, extra="dj").HTMLParser
    for old, new in (("<li>", "\n*"), ("</li>", ""), ("<ol>", "\n*"), ("</ol>", "")):
        text = text.replace(old, new)
    return str(parse(text).text())


def extract_tables(
    text: str,
    output_mode: Literal["text", "meta"] = "meta",
    text_output_format: Literal["tsv"] = "tsv",
    include_header: bool = True,
    retain_html_tags: bool = False,
) -> str:
    """Replaces a page by its tables as tab-separated rows; a page without a table is unchanged."""
    if output_mode == "meta" or "<table" not in text.lower():
        return text
    from bs4 import BeautifulSoup

    tables: list[Any] = BeautifulSoup(text, "html.parser").find_all("table")
    if not tables:
        return text
    if retain_html_tags:
        return "\n\n".join(str(table) for table in tables)
    extracted: list[str] = []
    for table in tables:
        rows: list[str] = []
        for row in table.find_all("tr"):
            cells = row.find_all(["td", "th"], recursive=False)
            if not cells or (not include_header and row.find("th", recursive=False)):
                continue
            rows.append("\t".join(cell.get_text(strip=True) for cell in cells))
        if rows:
            extracted.append("\n".join(rows))
    return "\n\n".join(extracted)


# What ftfy could change: anything but printable ASCII, tabs and newlines, and entities.
_ODD = r"[^\t\n -~]|&#?[0-9A-Za-z]{1,24};"
_ODD_TEXT = r"[^\t\n -~]"
_FTFY_SEGMENT = 1_000_000


def fix_unicode(text: str, normalization: Literal["NFC", "NFKC", "NFD", "NFKD"] = "NFC") -> str:
    """As `ftfy.fix_text`, handing it only the lines that it could change.

    ftfy works line by line and stops decoding entities at the first line with a `<`.
    """
    odd = std(_ODD).search(text)
    if not odd:
        return text
    import ftfy

    markup = text.find("<")
    out: list[str] = []
    last = 0
    while odd:
        start = text.rfind("\n", 0, odd.start()) + 1
        end = text.find("\n", odd.end() - 1) + 1 or len(text)
        if end - start > _FTFY_SEGMENT:  # ftfy cuts such lines by counting from the text start
            return ftfy.fix_text(text, normalization=normalization)
        decode = markup < 0 or markup >= end
        config = ftfy.TextFixerConfig(
            unescape_html=decode, normalization=normalization, explain=False
        )
        fixed = ftfy.fix_and_explain(text[start:end], config)
        out += (text[last:start], fixed.text)
        last = end
        odd = std(_ODD if markup < 0 or markup >= end else _ODD_TEXT).search(text, end)
    return "".join((*out, text[last:]))


PUNCTUATION = dict(
    zip(
        "，。、„”“«»１」「《》´∶：？！（）；–～’━〈〉【】％►",
        ',.,""""""""""\'::?!();-~\'-<>[]%-',
        strict=True,
    )
) | {"—": " - ", "．": ". ", "…": "..."}


def punctuation_normalization(text: str) -> str:
    """Maps full-width and typographic punctuation to ASCII, one character at a time."""
    if text.isascii():
        return text
    return std(f"[{''.join(PUNCTUATION)}]").sub(lambda m: PUNCTUATION[m[0]], text)


@functools.lru_cache(maxsize=64)
def _deletion(characters: frozenset[str]) -> re.Pattern[str]:
    return re.compile("[" + "".join(re.escape(c) for c in sorted(characters)) + "]")


def remove_specific_chars(text: str, chars_to_remove: str | Sequence[str] = SYMBOLS) -> str:
    """Deletes the listed characters."""
    characters = frozenset(c for c in chars_to_remove if len(c) == 1)
    return _deletion(characters).sub("", text) if characters else text


def remove_specific_chars_dj(text: str, chars_to_remove: str | Sequence[str] = SYMBOLS) -> str:
    """`remove_specific_chars_mapper` in profile `dj`; operators.yaml says how it differs."""
    if not chars_to_remove:
        return text
    pattern = "[" + "|".join(chars_to_remove) + "]"
    try:
        return rx(pattern, regex.DOTALL).sub("", text)
    except regex.error as error:
        raise GoldError(
            f"remove_specific_chars_mapper: chars_to_remove={chars_to_remove!r} is no valid "
            f"character class in profile dj, which does not escape ({error}); use profile bench"
        ) from None


SPACES = "\t\x84\u00a0\u2000-\u200d\u202f\u205f\u2060\u3000\ufffc"


def whitespace_normalization(text: str) -> str:
    """Strips the text and maps tabs and Unicode spaces to plain spaces; newlines stay and runs
    are not collapsed."""
    return std(f"[{SPACES}]").sub(" ", text.strip())


LINK_BENCH = (
    r"\b(?:https?|ftp)://[^\s<>()\[\]{}'\"`]+"
    r"|\bwww\d{0,3}\.[^\s<>()\[\]{}'\"`]+"
    r"|\b[a-z0-9][a-z0-9.-]+\.[a-z]{2,24}/[^\s<>()\[\]{}'\"`]*"
    r"|\bmailto:[A-Z0-9._%+-]+@[A-Z0-9.-]+\.[A-Z]{2,}"
    r"|\b[A-Z0-9._%+-]+@[A-Z0-9.-]+\.[A-Z]{2,}"
)
LINK_DJ = (
    r"(?i)\b((?:[a-z][\w-]+:(?:\/{1,3}|[a-z0-9%])|www\d{0,3}[.]|[a-z0-9.\-]+[.][a-z]{2,4}\/)"
    r"(?:[^\s()<>]+|\(([^\s()<>]+|(\([^\s()<>]+\)))*\))+"
    r"(?:\(([^\s()<>]+|(\([^\s()<>]+\)))*\)|[^\s`!()\[\]{};:\'\".,<>?«»“”‘’]))"
)


# Every `bench` link holds one of these; the first character class is what makes it fast to find.
_ANCHOR = (
    r"[:@wW.](?:(?<=:)//|(?<=@)|(?<=[wW])[wW]{2}\d{0,3}\."
    r"|(?<=\.)[a-zA-Z\u0080-\U0010ffff]{2,24}/)"
)
# No `bench` link holds one of these, so a link lies between two of them.
_BREAK = r"[ \t\n\r<>()\[\]{}'\"`]"


def _link_spans(text: str) -> Iterator[tuple[int, int]]:
    """The unbroken runs of characters around every anchor, each once."""
    last = 0
    anchors, breaks = std(_ANCHOR), std(_BREAK)
    before = rx("(?r)" + _BREAK)
    found = anchors.search(text)
    while found:
        left = before.search(text, last, found.start())
        start = left.end() if left else last
        right = breaks.search(text, found.end())
        last = right.start() if right else len(text)
        yield start, last
        found = anchors.search(text, last)


def clean_links(text: str, repl: str = "") -> str:
    """Replaces web, FTP and bare-domain links; in `bench` e-mail addresses too."""
    return sub_within(std(LINK_BENCH, re.IGNORECASE), repl, text, _link_spans(text))


def clean_links_dj(text: str, repl: str = "") -> str:
    """`clean_links_mapper` in profile `dj`; operators.yaml says how it differs."""
    if ":" not in text and "/" not in text and "www" not in text.lower():
        return text
    return rx(LINK_DJ, regex.DOTALL).sub(repl, text)
