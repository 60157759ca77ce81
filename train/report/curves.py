"""The curves of a run from its log; points and steps lead to the rollouts of their step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from train.evaluation.tables import number
from train.report.markup import (
    AREAS,
    COLOURS,
    EMPTY,
    Links,
    Series,
    line_chart,
    pieces,
    stacked_chart,
    together,
)

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
    """What evaluations during training call the mean outcome, "" without any."""
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
