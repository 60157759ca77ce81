"""Readings of the words for HTML pages and for comments at the top of a file."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from html.parser import HTMLParser

_ELEMENTS = (
    "a|abbr|acronym|address|applet|area|article|aside|audio|b|base|basefont|bdi|bdo|big|blockquote"
    "|body|br|button|canvas|caption|center|cite|code|col|colgroup|data|datalist|dd|del|details|dfn"
    "|dialog|dir|div|dl|dt|em|embed|fieldset|figcaption|figure|font|footer|form|frame|frameset"
    "|h[1-6]|head|header|hgroup|hr|html|i|iframe|img|input|ins|kbd|label|legend|li|link|main|map"
    "|mark|menu|meta|meter|nav|nobr|noframes|noscript|object|ol|optgroup|option|output|p|param"
    "|picture|pre|progress|q|rp|rt|ruby|s|samp|script|section|select|slot|small|source|span|strike"
    "|strong|style|sub|summary|sup|svg|table|tbody|td|template|textarea|tfoot|th|thead|time|title"
    "|tr|track|tt|u|ul|var|video|wbr|xmp|g|path|circle|rect|line|polyline|polygon|ellipse|defs|use"
    "|symbol|stop|lineargradient|radialgradient|clippath|mask|pattern|filter|text|tspan|desc|math"
    "|mi|mn|mo|mrow|msup|msub|mfrac|msqrt|mtext|mtable|mtr|mtd|annotation|semantics"
)
_ALONE = (
    "allowfullscreen|async|autofocus|autoplay|checked|compact|controls|crossorigin|declare|default"
    "|defer|disabled|formnovalidate|hidden|inert|ismap|itemscope|loop|multiple|muted|nohref|nomodule"
    "|noresize|noshade|novalidate|nowrap|open|playsinline|readonly|required|reversed|scoped|seamless"
    "|selected|data-[\\w-]+|aria-[\\w-]+|ng-[\\w-]+|v-[\\w-]+"
)
_TAG = re.compile(
    rf"<!--.*?-->|<!doctype\b[^<>]*>|<\?xml\b[^<>]*\?>"
    rf"|</(?:{_ELEMENTS}|[a-z][a-z0-9]*(?:[-:][\w.-]+)+)\s*>"
    rf"|<(?:{_ELEMENTS}|[a-z][a-z0-9]*(?:[-:][\w.-]+)+)(?=[\s/>])"
    r"(?:\s*(?<=[\s\"'])[@:\w][\w:.@-]*\s*=\s*(?:\"[^\"]*\"|'[^']*'|[^\s\"'=<>`]+)"
    rf"|\s+(?:{_ALONE})(?=[\s/>]))*\s*/?>",
    re.IGNORECASE | re.DOTALL,
)
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")


def is_tag(text: str) -> bool:
    return bool(_TAG.fullmatch(text))


def without_tags(text: str) -> str | None:
    if "<" in text:
        text = _TAG.sub("", text)
    return _ENTITY.sub(lambda m: html.unescape(m[0]), text) if "&" in text else text


def tables(text: str) -> str | None:
    """The tables, one line a row and a tab between cells; None of a page with none, or with one
    inside another."""
    return tables_of(text, _single_blanks)


def tables_of(text: str, cell: Callable[[list[str]], str]) -> str | None:
    """The same with the pieces of text of a cell made one by `cell`."""
    if "<table" not in text.lower():
        return None
    page = _Tables(cell)
    page.feed(text)
    page.close()
    if page.nested or not page.found:
        return None
    made = ["\n".join("\t".join(cells) for cells in table if cells) for table in page.found]
    return "\n\n".join(filter(None, made))


_BLANKS = re.compile(r"[ \t\r\n\f]+")


def _single_blanks(pieces: list[str]) -> str:
    return _BLANKS.sub(" ", "".join(pieces)).strip()


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
