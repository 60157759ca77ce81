"""Pieces of a page as HTML: what assets/report.html makes of texts, links into the viewer, and line
charts, stacked shares and interval marks as SVG, whose places are computed here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from train.evaluation.stats import Interval
from train.evaluation.tables import Lines
from train.view.sources import EVALUATION, TRAINING, fragment, list_fragment

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


COLOURS = 4  # of lines, after which they are dashed
AREAS = 6  # colours of shares
Point = tuple[float, float]
Series = Sequence[tuple[str, Sequence[Point]]]
Link = Callable[[str, float], str]
"""(name of a line, x) → an address, "" for none."""


@dataclass(frozen=True)
class Frame:
    """The box of a chart, and the ranges of what is drawn in it."""

    xs: Point
    ys: Point
    width: int = 340
    height: int = 170
    left: int = 46
    right: int = 10
    top: int = 10
    bottom: int = 24

    def at(self, x: float, y: float) -> Point:
        """Where a point of the plane stands."""
        across = (x - self.xs[0]) / (self.xs[1] - self.xs[0])
        up = (y - self.ys[0]) / (self.ys[1] - self.ys[0])
        return (
            self.left + across * (self.width - self.left - self.right),
            self.height - self.bottom - up * (self.height - self.top - self.bottom),
        )

    @property
    def rows(self) -> list[tuple[float, str]]:
        return [(self.at(self.xs[0], tick)[1], _number(tick)) for tick in _ticks(*self.ys, 4)]

    @property
    def columns(self) -> list[tuple[float, str]]:
        whole = [tick for tick in _ticks(*self.xs, 5) if tick == int(tick)]
        return [(self.at(tick, self.ys[0])[0], f"{tick:g}") for tick in whole]


def line_chart(
    series: Series, x_label: str = "step", title: str = "", link: Link | None = None
) -> Markup:
    """Named lines over one axis, four colours and then dashed; points have their values as
    tooltips. `link`: the address behind the points of an x, where there is one."""
    points = [p for _, line in series for p in line]
    if not points:
        return pieces().quiet("nothing logged")
    frame = Frame(_range([x for x, _ in points], 0.0), _range([y for _, y in points], 0.08))
    lines = [
        {
            "colour": index % COLOURS,
            "dashed": index >= COLOURS,
            "radius": 2.2 if len(line) <= 60 else 1.2,
            "path": _path(frame.at(x, y) for x, y in line),
            # steps are linked from a table too: hundreds of points are no tab stops
            "dots": [
                {
                    **dict(zip("xy", frame.at(x, y), strict=True)),
                    "tip": f"{name}: {y:.4g} at {x_label} {x:g}",
                    "href": link(name, x) if link else "",
                }
                for x, y in line
            ],
        }
        for index, (name, line) in enumerate(series)
    ]
    return pieces().chart(title, frame, lines, [], link is not None)


def stacked_chart(
    names: Sequence[str], shares: Sequence[tuple[float, Sequence[float]]], title: str = ""
) -> Markup:
    """Shares of a whole by step, one on top of the other: (x, a share for each name)."""
    low, high = _range([x for x, _ in shares], 0.0)
    frame = Frame((low, high), (0.0, 1.0))
    xs = [x for x, _ in shares]
    if len(xs) == 1:
        xs, shares = [low, high], [shares[0], shares[0]]
    sums = [[min(sum(values[:n]), 1.0) for n in range(len(names) + 1)] for _, values in shares]
    areas: list[dict[str, object]] = []
    for n, name in enumerate(names):
        over = [frame.at(x, heights[n + 1]) for x, heights in zip(xs, sums, strict=True)]
        under = [frame.at(x, heights[n]) for x, heights in zip(xs, sums, strict=True)]
        tip = f"{name}: {shares[-1][1][n]:.0%} at the last step"
        areas.append({"colour": n % AREAS, "path": _path([*over, *under[::-1]]), "tip": tip})
    return pieces().chart(title, frame, [], areas, False)


def interval_mark(interval: Interval, low: float = 0.0, high: float = 1.0) -> Markup | str:
    """A dot with its whiskers on a line from `low` to `high`; zero is marked when inside."""
    if math.isnan(interval.value):
        return ""

    def x(value: float) -> float:
        return 5 + (min(max(value, low), high) - low) / (high - low) * 100

    zero = x(0) if low < 0 < high else None
    return pieces().mark(x(interval.low), x(interval.value), x(interval.high), zero)


def _path(points: Iterable[Point]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _range(values: Sequence[float], pad: float) -> Point:
    low, high = min(values), max(values)
    if low == high:
        return low - (abs(low) * 0.1 or 0.5), high + (abs(high) * 0.1 or 0.5)
    return low - pad * (high - low), high + pad * (high - low)


def _ticks(low: float, high: float, count: int) -> list[float]:
    """Round numbers inside [low, high], about `count` of them."""
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.7)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def _number(value: float) -> str:
    size = abs(value)
    if size and (size < 1e-3 or size >= 1e5):
        digits, power = f"{value:.2e}".split("e")
        return f"{float(digits):g}e{int(power)}"
    return f"{value:.10g}" if size < 1000 else f"{value:.0f}"
