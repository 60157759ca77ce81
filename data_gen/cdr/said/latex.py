"""Readings of the words for LaTeX sources."""

from __future__ import annotations

import re
from collections.abc import Iterator

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


_MARKED = re.compile(r"(?m)(?:^|(?<!\d)[ \t])%")  # not "50 %", nor "%20" of an address
_TEX = re.compile(r"\\[A-Za-z]+\s*[\[{]")
_COMMAND_LINE = re.compile(r"(?m)^\s*(?:#|//|/\*)")
_AS_IT_STANDS = re.compile(
    r"\\begin\{(verbatim|lstlisting|minted|alltt|Verbatim|CodeInput|CodeOutput|comment)\*?\}"
    r"|\\(?:verb|url|href|path|lstinline)\*?\b"
)
_HIDDEN = re.compile(r"<!--.*?-->", re.DOTALL)


def without_comments(text: str) -> str | None:
    """None where a percent sign may be no comment, and in scripts, whose marks are no TeX."""
    text = _HIDDEN.sub("", text) if "<!--" in text else text
    if not _TEX.search(text):
        return None if _MARKED.search(text) or _COMMAND_LINE.search(text) else text
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
