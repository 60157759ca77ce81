"""Readings of the words for HTML pages, LaTeX sources and comments at the top of a file."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser

from assay.files import yaml_beside

NAMES: dict[str, list[str]] = yaml_beside(__file__, "names.yaml")
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


def is_tag(text: str) -> bool:
    return bool(_TAG.fullmatch(text))


def without_tags(text: str) -> str | None:
    if "<" in text:
        text = _TAG.sub("", text)
    return ENTITY.sub(lambda m: html.unescape(m[0]), text) if "&" in text else text


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


_HEADING = re.compile(
    r"(?m)^(?P<before>.*?)(?P<heading>\\(?:part|chapter|(?:sub){0,2}section)\*?\s*[\[{])"
)


def from_heading(text: str) -> str | None:
    """From the first heading on; None where something stands before it in its line."""
    for found in _HEADING.finditer(text):
        if _is_comment(found["before"]):
            continue
        return None if found["before"] else text[found.start() :]
    return text


_PERCENT = re.compile(r"(?<!\\)(?:\\\\)*%")


def _is_comment(line: str) -> bool:
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
        if _is_comment(found["before"]):
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
        if _is_comment(text[line : found.start()]):
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


_FIGURE = re.compile(r"\\begin\{(figure\*?|wrapfigure)\}.*?\\end\{\1\}", re.DOTALL)
_IMAGE = re.compile(r"\\includegraphics\*?\s*(?:\[[^\]]*\])?\{([^}]+)\}")
_BEFORE_IMAGE = re.compile(r"(?m)^(.*)\\includegraphics")
_BLOCK = re.compile(r"(?:\A|\n\n)Figure \d+\n")


def shows_figures(before: str, after: str, in_detail: bool = False) -> bool:
    """Whether the second text is the figures of the first: every image, and captions and
    paragraphs as they stand there. Of a text that has images in comments, or none, it is not,
    unless those in comments count too and a text without stays as it is (`in_detail`)."""
    if in_detail and "\\includegraphics" not in before:
        return before == after
    figures = [m[0] for m in _FIGURE.finditer(before)]
    images = [name.strip() for one in figures for name in _IMAGE.findall(one)]
    if not images or any(not _IMAGE.search(one) for one in figures):
        return False
    if not in_detail and any(map(_is_comment, _BEFORE_IMAGE.findall(before))):
        return False
    blocks = [block for block in _BLOCK.split(after) if block]
    shown = [name for block in blocks for name in _listed(block, "Images:", "Citing Paragraphs:")]
    if shown != images:
        return False
    said = [line for block in blocks for line in _fields(block)]
    return all(value in before for value in said)


def _listed(block: str, first: str, last: str) -> list[str]:
    inside = block.partition(f"\n{first}\n")[2].partition(f"\n{last}\n")[0]
    return [line.removeprefix("- ").strip() for line in inside.split("\n") if line.strip("- ")]


def _fields(block: str) -> Iterator[str]:
    head, _, citing = block.partition("\nCiting Paragraphs:\n")
    caption = head.partition("\nCaption: ")[2].partition("\nImages:")[0]
    yield caption.partition("\nParent Label: ")[0]
    for paragraph in re.split(r"(?m)^- ", citing):
        if (said := paragraph.strip()) != "-":  # which stands for none
            yield said


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
            known = is_tag(found[0]) or _NAMED.match(text, start)
            if "<" in found[0][1:] or not (template or known):
                return None
        text = _ANGLED.sub("", text)
    return ENTITY.sub(lambda m: html.unescape(m[0]), text) if "&" in text else text


def tables_of_pieces(text: str) -> str | None:
    """The tables, the pieces of a cell trimmed and joined, or the text that has none; None where
    one is inside another."""
    if "<table" not in text.lower():
        return text
    return tables_of(text, _pieces)


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
