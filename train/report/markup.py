"""Pieces of a page as HTML: what assets/report.html makes of texts, and links into the viewer; line
charts, stacked shares and interval marks as SVG, whose places are computed here; and the curves of
a run from its log, whose points and steps lead to the rollouts of their step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from train.evaluation.stats import Interval
from train.evaluation.tables import Lines, number
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


Metrics = Sequence[Mapping[str, Any]]
Wanted = tuple[str, str, str]  # stage, metric, name in the key
VALIDATION = ("outcome/mean", "outcome")  # as `assay grpo` and as `assay demo` log it
SHARES = 6  # of reasons, the last of them all others
CHARTS: tuple[tuple[str, tuple[Wanted, ...]], ...] = (
    ("SFT loss", (("sft", "loss", "loss"),)),
    (
        "Reward and outcome of rollouts",
        (("rl", "reward/mean", "reward"), ("rl", "outcome/mean", "outcome")),
    ),
    (
        "Groups that teach",
        (("rl", "by_group/frac_mixed", "mixed"), ("rl", "by_group/frac_flat", "flat")),
    ),
    ("Entropy (nats a token)", (("rl", "entropy", "entropy"),)),
    (
        "Trainer–sampler gap (nats a token)",
        (("rl", "kl/sampler", "sampler to trainer"), ("rl", "kl/reference", "to the reference")),
    ),
    ("Clipped share of tokens", (("rl", "pg_clipfrac", "clipped"),)),
    ("Gradient norm", (("sft", "grad_norm", "SFT"), ("rl", "grad_norm", "RL"))),
    (
        "Answer length (tokens)",
        (("rl", "response_length/mean", "mean"), ("rl", "response_length/max", "max")),
    ),
    (
        "Cut off and unanswered",
        (("rl", "response_length/clip_ratio", "cut off"), ("rl", "why/no_answer", "no answer")),
    ),
    (
        "Seconds a step",
        (
            ("rl", "time/rollout", "rollout"),
            ("rl", "time/train", "train"),
            ("rl", "time/step", "all"),
        ),
    ),
)
# columns of the table of steps
NUMBERS = (
    ("reward", "reward/mean", "{:.3f}"),
    ("outcome", "outcome/mean", "{:.3f}"),
    ("mixed groups", "by_group/frac_mixed", "{:.0%}"),
    ("tokens", "response_length/mean", "{:.0f}"),
    ("cut", "response_length/clip_ratio", "{:.0%}"),
    ("entropy", "entropy", "{:.3f}"),
    ("sampler gap", "kl/sampler", "{:.5f}"),
    ("gradient", "grad_norm", "{:.3f}"),
    ("seconds", "time/step", "{:.1f}"),
)


def training(metrics: Metrics, links: Links) -> Markup:
    """The curves; empty for a run that logged none. Points and steps lead to their rollouts."""
    made = [_lines(title, wanted, metrics, links) for title, wanted in _wanted(metrics)]
    figures = together(*made, _ends(metrics))
    if not figures:
        return EMPTY
    linked = links.page and any(row.get("stage") == "rl" for row in metrics)
    note = "A point opens the rollouts of its step; so does the table of steps."
    said = pieces().quiet(note) if linked else EMPTY
    return together(said, charts(figures), _steps(metrics, links))


def line_of(metrics: Metrics, stage: str, key: str) -> list[tuple[float, float]]:
    """(step, value) of what was logged; a number that was not finite is left out."""
    rows = [r for r in metrics if r.get("stage") == stage and r.get(key) is not None]
    return [(float(r["step"]), float(r[key])) for r in rows]


def _logged(metrics: Metrics, stage: str, prefix: str = "") -> list[str]:
    """Names of a stage's numbers, in the order in which they came."""
    rows = [row for row in metrics if row.get("stage") == stage]
    names = dict.fromkeys(k for row in rows for k in row if k not in ("stage", "step", "time"))
    return [name for name in names if name.startswith(prefix)]


def validation_key(metrics: Metrics) -> str:
    """The log's key of the mean outcome in validation; "" for a run without validation."""
    names = _logged(metrics, "eval")
    return next((key for key in VALIDATION if key in names), "")


def _wanted(metrics: Metrics) -> Iterator[tuple[str, Sequence[Wanted]]]:
    """The charts of a log: those that every run has, then validation and parts of the reward,
    shares before counts."""
    key = validation_key(metrics)
    if key and line_of(metrics, "rl", "outcome/mean"):
        yield (
            "Learning curve: outcome",
            (("rl", "outcome/mean", "training rollouts"), ("eval", key, "validation")),
        )
    yield from CHARTS
    seen = [n for n in _logged(metrics, "eval") if n != key]
    some = [n for n in seen if "/" not in n or n == "reward/mean" or n.startswith("outcome/")]
    for at, chunk in enumerate(_chunks(([key] if key else []) + some)):
        title = "Validation" if not at else "Validation, continued"
        yield title, [("eval", n, n.removesuffix("/mean")) for n in chunk]
    parts = [n for n in _logged(metrics, "rl", "reward/") if n.count("/") == 2]
    share = {n: all(-1e-9 <= v <= 1 + 1e-9 for _, v in line_of(metrics, "rl", n)) for n in parts}
    for title, wanted in (("Parts of the reward", True), ("Parts that are counts", False)):
        for chunk in _chunks([n for n in parts if share[n] is wanted]):
            yield title, [("rl", n, n.split("/")[1]) for n in chunk]


def _chunks(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), COLOURS):
        yield names[start : start + COLOURS]


def _lines(title: str, wanted: Sequence[Wanted], metrics: Metrics, links: Links) -> Markup:
    series = [(name, stage, line_of(metrics, stage, key)) for stage, key, name in wanted]
    stages = {name: stage for name, stage, line in series if line}
    linked = links.page and "rl" in stages.values()

    def place(name: str, step: float) -> str:
        return links.step(step) if stages[name] == "rl" else ""

    drawn = [(name, line) for name, _, line in series if line]
    return figure(title, drawn, "step", place if linked else None) if drawn else EMPTY


def figure(
    title: str, lines: Series, across: str, link: Callable[[str, float], str] | None = None
) -> Markup:
    picture = line_chart(lines, across, title, link)
    return pieces().figure(title, [name for name, _ in lines], picture, COLOURS)


def charts(figures: Markup) -> Markup:
    return pieces().box("charts", figures)


def _ends(metrics: Metrics) -> Markup:
    """Why rollouts scored as they did, as shares by step."""
    rows = [row for row in metrics if row.get("stage") == "rl"]
    names = _logged(metrics, "rl", "why/")
    if not rows or len(names) < 2:
        return EMPTY
    weight = {n: sum(float(row.get(n) or 0.0) for row in rows) for n in names}
    ranked = sorted((n for n in names if weight[n]), key=lambda n: (n != "why/ok", -weight[n]))
    kept = ranked[: SHARES - 1] if len(ranked) > SHARES else ranked
    groups = [[n] for n in kept] + ([ranked[len(kept) :]] if ranked[len(kept) :] else [])
    shares = [
        (float(row["step"]), [sum(float(row.get(n) or 0.0) for n in group) for group in groups])
        for row in rows
    ]
    said = [n.removeprefix("why/") for n in kept] + ["all others"] * (len(groups) > len(kept))
    title = "How rollouts ended (share)"
    return pieces().figure(title, said, stacked_chart(said, shares, title), AREAS)


def _steps(metrics: Metrics, links: Links) -> Markup:
    """Every RL step with its numbers, for who cannot point at a curve."""
    rows = [row for row in metrics if row.get("stage") == "rl"]
    names = [n for n in NUMBERS if any(row.get(n[1]) is not None for row in rows)]
    if not names:
        return EMPTY
    lines = [
        (
            "",
            [
                pieces().link(str(row["step"]), links.step(float(row["step"]))),
                *(number(row.get(key), form) for _, key, form in names),
            ],
        )
        for row in rows
    ]
    body = pieces().table("Numbers by step", ["step", *(head for head, _, _ in names)], lines)
    return pieces().folded(f"Numbers of {len(rows)} RL steps", body)
