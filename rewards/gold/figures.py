"""The LaTeX figure mapper: each figure with its caption, images and the paragraphs citing it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import regex

from rewards.gold.patterns import rx

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
NOT_PARAGRAPHS = (
    "figure",
    "figure*",
    "wrapfigure",
    "table",
    "table*",
    "tabular",
    "tabular*",
    "equation",
    "equation*",
    "align",
    "align*",
    "alignat",
    "alignat*",
    "gather",
    "gather*",
    "multline",
    "multline*",
    "flalign",
    "flalign*",
    "algorithm",
    "algorithm*",
    "lstlisting",
    "verbatim",
    "minted",
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


def _images(text: str) -> tuple[str, ...]:
    return tuple(path.strip() for path in rx(IMAGE).findall(text))


def _alone(text: str, caption: str | None = None) -> Figure:
    return Figure(_label(text), _caption(text) if caption is None else caption, _images(text))


def _sub_figures(environment: str) -> tuple[list[Figure], str]:
    """(sub-figures with or without images, the environment with their markup cut out)."""
    found: list[Figure] = []
    spans: list[tuple[int, int]] = []
    for match in rx(SUBFIGURE, regex.DOTALL).finditer(environment):
        found.append(_alone(match[0]))
        spans.append(match.span())
    for match in rx(SUBFLOAT, regex.DOTALL).finditer(environment):
        found.append(_alone(match[0], match[1].strip()))
        spans.append(match.span())
    for match in rx(SUBFLOAT_BARE, regex.DOTALL).finditer(environment):
        found.append(_alone(match[0], ""))
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
    output_mode: str = "meta",
    text_output_format: str = "figure_context_blocks_v1",
    citation_commands: Sequence[str] = CITATIONS,
) -> str:
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
