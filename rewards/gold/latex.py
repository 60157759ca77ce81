"""LaTeX mappers: macros, headers, comments, bibliographies; and figures with the paragraphs that
cite them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import regex

from rewards.gold.core import GoldError, rx, std

MACRO_DEFINITIONS = (
    r"\\\bnewcommand\b\*?\{(\\[a-zA-Z0-9]+?)\}\{(.*?)\}$",
    r"\\def\s*(\\[a-zA-Z0-9]+?)\s*\{(.*?)\}$",
)


def _escaped(text: str) -> str:
    return text.encode("unicode-escape").decode("utf-8")


def expand_macro(text: str) -> str:
    """Expands argument-free `\\newcommand` and `\\def` macros, definition lines included."""
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
    """Deletes everything from the first appendix or bibliography command on."""
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
    text: str, doc_type: Literal["tex"] = "tex", inline: bool = True, multiline: bool = True
) -> str:
    # Both questions are asked of the original text, before HTML comments go.
    """Deletes TeX comments; in `bench` also HTML comments, and `#` or `//` lines elsewhere."""
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
    text: str, doc_type: Literal["tex"] = "tex", inline: bool = True, multiline: bool = True
) -> str:
    """`remove_comments_mapper` in profile `dj`; operators.yaml says how it differs."""
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
    """Deletes what precedes the first sectioning command; without one nothing changes."""
    found = rx(HEADERS, regex.DOTALL).search(text)
    return text[found.start() :] if found else text


# ---- figures

BALANCED = r"(?:[^{}]|(?P<B>\{(?:[^{}]|(?&B))*\}))*"
OPTIONS = r"(?:\[[^\]]*\])*(?:\{[^}]*\})*"
FIGURE = rf"\\begin\{{(?P<e>figure\*?|wrapfigure)\}}{OPTIONS}.*?\\end\{{(?P=e)\}}"
SUBFIGURE = rf"\\begin\{{subfigure\}}{OPTIONS}.*?\\end\{{subfigure\}}"
SUBFLOAT = rf"\\(?:subfigure|subfloat)\[([^\]]*)\]\s*\{{({BALANCED})\}}"
SUBFLOAT_BARE = rf"\\(?:subfigure|subfloat)(?!\[)\s*\{{({BALANCED})\}}"
MINIPAGE = rf"\\begin\{{minipage\}}{OPTIONS}(.*?)\\end\{{minipage\}}"
CAPTIONS = (
    rf"\\caption\*?(?:\[[^\]]*\])?\{{({BALANCED})\}}",
    rf"\\subcaption(?:\[[^\]]*\])?\{{({BALANCED})\}}",
    rf"\\captionof\{{figure\}}(?:\[[^\]]*\])?\{{({BALANCED})\}}",
)
LABEL = r"\\label\{([^}]+)\}"
IMAGE = r"\\includegraphics(?:\[[^\]]*\])?\{([^}]+)\}"
TABLE_CAPTION = r"\\captionof\{table\}"
CITATIONS = ("\\ref", "\\cref", "\\Cref", "\\autoref")
# Environments whose content is no running text.
_STARRED = ("table", "tabular", "equation", "align", "alignat", "gather", "multline", "flalign")
NOT_PARAGRAPHS = (
    *("figure", "figure*", "wrapfigure"),
    *(name + star for name in (*_STARRED, "algorithm") for star in ("", "*")),
    *("lstlisting", "verbatim", "minted"),
)


@dataclass(frozen=True)
class Figure:
    """One output block; `parent_*` are empty for a figure that stands alone."""

    label: str
    caption: str
    images: tuple[str, ...]
    parent_label: str = ""
    parent_caption: str = ""
    nested: bool = False


def _caption(text: str) -> str:
    for pattern in CAPTIONS:
        if found := rx(pattern, regex.DOTALL).search(text):
            return found[1].strip()
    return ""


def _label(text: str) -> str:
    found = rx(LABEL).search(text)
    return found[1].strip() if found else ""


def _alone(text: str, caption: str | None = None) -> Figure:
    images = tuple(path.strip() for path in rx(IMAGE).findall(text))
    return Figure(_label(text), _caption(text) if caption is None else caption, images)


def _sub_figures(environment: str) -> tuple[list[Figure], str]:
    """(sub-figures with or without images, the environment with their markup cut out)."""
    found: list[Figure] = []
    spans: list[tuple[int, int]] = []
    for pattern in (SUBFIGURE, SUBFLOAT, SUBFLOAT_BARE):
        for match in rx(pattern, regex.DOTALL).finditer(environment):
            given = match[1].strip() if pattern == SUBFLOAT else ""
            found.append(_alone(match[0], None if pattern == SUBFIGURE else given))
            spans.append(match.span())
    covered = [False] * len(environment)
    for start, end in spans:
        covered[start:end] = [True] * (end - start)
    rest = "".join(c for c, cut in zip(environment, covered, strict=True) if not cut)
    return found, rest


def _figures(environment: str) -> list[Figure]:
    subs, rest = _sub_figures(environment)
    if subs:
        label, caption = _label(rest), _caption(rest)
        return [
            Figure(s.label, s.caption, s.images, label, caption, nested=True)
            for s in subs
            if s.images
        ]
    pages = rx(MINIPAGE, regex.DOTALL).findall(environment)
    if len(pages) >= 2:
        kept = [p for p in pages if not rx(TABLE_CAPTION).search(p)]
        return [f for f in map(_alone, kept) if f.images]
    whole = _alone(environment)
    return [whole] if whole.images else []


def _paragraphs(text: str) -> list[str]:
    for name in NOT_PARAGRAPHS:
        begin = "\\begin{" + name + "}"
        if begin in text:
            escaped = regex.escape(name)
            text = rx(rf"\\begin\{{({escaped})\}}.*?\\end\{{\1\}}", regex.DOTALL).sub("", text)
    return [p for piece in text.split("\n\n") if (p := piece.strip())]


def _citing(paragraphs: list[str], label: str, commands: Sequence[str]) -> list[str]:
    if not label:
        return []
    names = "|".join(regex.escape(c.lstrip("\\")) for c in commands)
    target = regex.escape(label)
    pattern = rx(rf"\\(?:{names})\{{(?:[^}},]*,\s*)*{target}\s*(?:,[^}}]*)?\}}")
    return [p for p in paragraphs if label in p and pattern.search(p)]


def _listing(items: Sequence[str]) -> list[str]:
    return [f"- {item}" for item in items] or ["-"]


def _block(number: int, figure: Figure, citing: list[str]) -> str:
    lines = [f"Figure {number}", f"Label: {figure.label}", f"Caption: {figure.caption}"]
    if figure.parent_label or figure.parent_caption:
        lines += [f"Parent Label: {figure.parent_label}"]
        lines += [f"Parent Caption: {figure.parent_caption}"]
    lines += ["Images:", *_listing(figure.images), "Citing Paragraphs:", *_listing(citing)]
    return "\n".join(lines)


def extract_figures(
    text: str,
    output_mode: Literal["text", "meta"] = "meta",
    text_output_format: Literal["figure_context_blocks_v1"] = "figure_context_blocks_v1",
    citation_commands: Sequence[str] = CITATIONS,
) -> str:
    """Replaces a paper by one block a figure: label, caption, images and citing paragraphs;
    without a figure that has an image the text is unchanged."""
    if output_mode == "meta" or "\\includegraphics" not in text:
        return text
    figures: list[Figure] = []
    for environment in rx(FIGURE, regex.DOTALL).finditer(text):
        figures += _figures(environment[0])
    if not figures:
        return text
    paragraphs = _paragraphs(text)
    blocks: list[str] = []
    for number, figure in enumerate(figures, 1):
        citing = _citing(paragraphs, figure.label, citation_commands)
        if figure.nested:
            parents = _citing(paragraphs, figure.parent_label, citation_commands)
            citing = list(dict.fromkeys(parents + citing))
        blocks.append(_block(number, figure, citing))
    return "\n\n".join(blocks)
