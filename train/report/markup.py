"""Pieces of a page as HTML: what assets/report.html makes of texts, and links into the viewer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from train.evaluation.show import Lines
from train.view.links import EVALUATION, TRAINING, fragment, list_fragment

Line = tuple[str, Sequence[str]]  # class of a row, its cells
Section = tuple[str, Markup]  # heading, and what stands under it; empty: it is left out
EMPTY = Markup("")


@lru_cache(maxsize=1)
def pieces() -> Any:
    """The macros of assets/report.html as functions; what they are given is escaped, unless it came
    from one of them."""
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    return environment.from_string(_asset("report.html")).module


@lru_cache(maxsize=2)
def _asset(name: str) -> str:
    return (resources.files("train.report") / "assets" / name).read_text(encoding="utf-8")


def together(*parts: Markup) -> Markup:
    return EMPTY.join(parts)


def plain(lines: Lines, label: str, kind: str = "") -> Markup:
    """A table of texts, its first line the headings; empty where it has no other."""
    if len(lines) < 2:
        return EMPTY
    return pieces().table(label, lines[0], [("", line) for line in lines[1:]], kind)


def ends_text(bounds: Sequence[float] | None, form: str = "{:.3f}") -> str:
    """`[0.1, 0.2]`, "" without bounds."""
    return "[{}, {}]".format(*map(form.format, bounds)) if bounds else ""


def document(title: str, subtitle: str, sections: Sequence[Section]) -> str:
    """The whole page; its sections are listed at its top."""
    there = [
        ("".join(c if c.isalnum() else "-" for c in head.lower()).strip("-"), head, body)
        for head, body in sections
        if body
    ]
    return pieces().document(title, subtitle, Markup(_asset("report.css")), there)


@dataclass(frozen=True)
class Links:
    """Addresses in a page of `assay view`, "" where there is none. `page`: where it lies; `one`: it
    shows one evaluation, whose rows have no model's name."""

    page: str = ""
    one: bool = False

    def answers(self, model: str, words: Mapping[str, str] | None = None) -> str:
        """The answers of a model that pass a filter."""
        return self._to(list_fragment({"set": self._set(model), **(words or {})}))

    def step(self, step: float) -> str:
        return self._to(list_fragment({"set": TRAINING, "step": f"{step:g}"}))

    def pairs(
        self, before: str, after: str, differ: str, words: Mapping[str, str] | None = None
    ) -> str:
        """The tasks that two models answered with another outcome."""
        sides = {"left": before, "right": after, "differ": differ}
        return self._to(list_fragment({**(words or {}), **sides}))

    def rollout(self, model: str, task: str, sample: int) -> str:
        return self._to(fragment(self._set(model), None, task, sample))

    def _set(self, model: str) -> str:
        return EVALUATION if self.one else model

    def _to(self, place: str) -> str:
        return f"{self.page}#{place}" if self.page else ""
