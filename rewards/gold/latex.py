"""LaTeX mappers: macros, headers, comments and bibliographies."""

from __future__ import annotations

import re

import regex

from rewards.gold.core import GoldError
from rewards.gold.patterns import rx, std

MACRO_DEFINITIONS = (
    r"\\\bnewcommand\b\*?\{(\\[a-zA-Z0-9]+?)\}\{(.*?)\}$",
    r"\\def\s*(\\[a-zA-Z0-9]+?)\s*\{(.*?)\}$",
)


def _escaped(text: str) -> str:
    return text.encode("unicode-escape").decode("utf-8")


def expand_macro(text: str) -> str:
    if "\\newcommand" not in text and "\\def" not in text:
        return text
    macros: dict[str, str] = {}
    for pattern in MACRO_DEFINITIONS:
        for found in rx(pattern, regex.MULTILINE).finditer(text):
            macros[_escaped(found[1])] = _escaped(found[2])
    for name, value in macros.items():
        try:
            text = regex.sub(f"({name})([^a-zA-Z0-9])", value + r"\2", text, flags=regex.V0)
        except (regex.error, IndexError) as error:
            raise GoldError(
                f"expand_macro_mapper: the value of {name} cannot be used: {error}"
            ) from None
    return text


def remove_bibliography(text: str) -> str:
    literals = ("\\appendix", "\\begin{references}", "\\begin{REFERENCES}")
    starts = [text.find(s) for s in (*literals, "\\begin{thebibliography}")]
    named = text.find("\\bibliography{")
    if named >= 0 and text.find("}", named) >= 0:
        starts.append(named)
    return text[: min((s for s in starts if s >= 0), default=len(text))]


TEX_MARKS = (
    "\\documentclass",
    "\\begin{",
    "\\end{",
    "\\section",
    "\\subsection",
    "\\usepackage",
    "\\title{",
    "\\author{",
    "\\maketitle",
    "\\bibliography",
)


def remove_comments(
    text: str, doc_type: str = "tex", inline: bool = True, multiline: bool = True
) -> str:
    # Both questions are asked of the original text, before HTML comments go.
    is_tex = any(mark in text for mark in TEX_MARKS)
    is_script = not is_tex and text.strip().startswith(("#", "//"))
    if "<!--" in text:
        text = std(r"<!--.*?-->", re.DOTALL).sub("", text)
    if is_script:
        return std(r"^\s*(?:#|//).*\n?", re.MULTILINE).sub("", text)
    if not is_tex or "%" not in text:
        return text
    # Look-behinds follow the sign, so that the search can start at it. The inline pass leaves no
    # sign at a line start for the other one to find.
    if inline:
        return std(r"%(?<!\\%).*").sub("", text)
    return std(r"%(?<![^\n]%).*\n?").sub("", text) if multiline else text


def remove_comments_dj(
    text: str, doc_type: str = "tex", inline: bool = True, multiline: bool = True
) -> str:
    if "%" not in text:
        return text
    if inline:
        text = rx(r"[^\\]%.+$", regex.MULTILINE).sub("", text)
    return rx(r"^%.*\n?", regex.MULTILINE).sub("", text) if multiline else text


def _header(name: str) -> str:
    return rf"\\\b{name}\b\*?(?:\[(.*?)\])?\{{(.*?)\}}"


# The missing `|` between the last two is the reference's own slip, and gold depends on it.
HEADERS = "|".join(
    (
        *map(_header, ("chapter", "part", "section", "subsection", "subsubsection")),
        _header("paragraph") + _header("subparagraph"),
    )
)


def remove_header(text: str, drop_no_head: bool = True) -> str:
    # The reference replaces a lazy prefix plus header by the header: a leftmost search.
    found = rx(HEADERS, regex.DOTALL).search(text)
    return text[found.start() :] if found else text
