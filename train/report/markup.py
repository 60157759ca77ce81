"""Pieces of a page as HTML: tables, sections, links into the viewer. All text is escaped here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from importlib import resources

from train.view.links import EVALUATION, TRAINING, fragment, list_fragment


@lru_cache(maxsize=1)
def style() -> str:
    return (resources.files("train.report") / "assets" / "report.css").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Links:
    """Addresses in a page of `assay view`. `page`: where it lies, "" for none; `one`: the page
    shows one evaluation, whose rows have no model's name."""

    page: str = ""
    one: bool = False

    def answers(self, text: str, model: str, words: Mapping[str, str] | None = None) -> str:
        """`text`, linked to the answers of a model that pass a filter."""
        name = EVALUATION if self.one else model
        return self.to(text, list_fragment({"set": name, **(words or {})}))

    def step(self, text: str, step: float) -> str:
        return self.to(text, self.step_fragment(step))

    def step_fragment(self, step: float) -> str:
        return list_fragment({"set": TRAINING, "step": f"{step:g}"})

    def pairs(
        self,
        text: str,
        before: str,
        after: str,
        differ: str,
        words: Mapping[str, str] | None = None,
    ) -> str:
        """`text`, linked to the tasks that two models answered with another outcome."""
        sides = {"left": before, "right": after, "differ": differ}
        return self.to(text, list_fragment({**(words or {}), **sides}))

    def rollout(self, text: str, model: str, task: str, sample: int) -> str:
        return self.to(text, fragment(EVALUATION if self.one else model, None, task, sample))

    def to(self, text: str, place: str) -> str:
        if not self.page:
            return escape(text)
        return f'<a href="{escape(self.page)}#{escape(place)}">{escape(text)}</a>'


NO_LINKS = Links()
HEAD = re.compile(r'<section id="([^"]*)"><h2>(.*?)</h2>')
DRAWN = '<td class="drawn">'
LISTED = 4  # columns of a table whose rows a narrow screen shows as lists
Line = tuple[str, Sequence[str]]  # class of the row, its cells as HTML


def table(headings: Iterable[str], lines: Iterable[Line], kind: str = "") -> str:
    """Headings are escaped here; cells come as HTML. A column without a heading holds pictures of
    the number beside it. A narrow screen shows a row of many columns as a list of its cells, each
    with its heading, and no pictures."""
    names = list(headings)
    head = "".join(f"<th>{escape(h)}</th>" if h else DRAWN + "</td>" for h in names)
    listed = len(names) >= LISTED and kind != "words"
    kind = f"{kind} listed".strip() if listed else kind
    label = ' data-head="{}"' if listed else ""
    starts = [f"<td{label.format(escape(h))}>" if h else DRAWN for h in names]
    rows = "".join(
        f'<tr class="{row}">'
        + "".join(f"{start}{c}</td>" for start, c in zip(starts, cells, strict=True))
        + "</tr>"
        for row, cells in lines
    )
    named = f' class="{kind}"' if kind else ""
    return f"<table{named}><tr>{head}</tr>{rows}</table>"


def wide(inner: str, label: str) -> str:
    """A part that may be wider than the screen and then scrolls, also by keyboard."""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}">{inner}</div>'
    )


def bounds_text(bounds: Sequence[float], form: str) -> str:
    """The ends of an interval, on a line of their own."""
    low, high = (form.format(v) for v in bounds)
    return f'<span class="bounds">[{low}, {high}]</span>'


def part(head: str) -> str:
    """What a heading is linked by."""
    return "".join(c if c.isalnum() else "-" for c in head.lower()).strip("-")


def section(head: str, *inner: str) -> str:
    """A heading and what stands under it; "" where nothing does."""
    body = "".join(inner)
    if not body:
        return ""
    return f'<section id="{part(head)}"><h2>{escape(head)}</h2>{body}</section>'


def quiet(text: str) -> str:
    return f'<p class="quiet">{escape(text)}</p>'


def plain(lines: Sequence[Sequence[str]], label: str, kind: str = "") -> str:
    """A table of texts, its first line the headings; "" where it has no other."""
    if len(lines) < 2:
        return ""
    rows = [("", [escape(text) for text in line]) for line in lines[1:]]
    return wide(table(lines[0], rows, kind), label)


def document(title: str, subtitle: str, sections: Sequence[str]) -> str:
    """The whole page; sections with a heading are listed at its top."""
    there = [s for s in sections if s]
    heads = [m for s in there if (m := HEAD.match(s))]
    items = "".join(f'<li><a href="#{m[1]}">{m[2]}</a></li>' for m in heads)
    contents = f'<nav aria-label="On this page"><ul>{items}</ul></nav>' if len(heads) > 2 else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style()}</style></head><body>"
        f"<header><h1>{escape(title)}</h1>{quiet(subtitle)}{contents}</header>"
        f"<main>{''.join(there)}</main></body></html>\n"
    )
