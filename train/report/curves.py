"""Curves of a training run from its log, each point linked to the rollouts of its step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from train.report.markup import Links, quiet, section, table, wide
from train.report.svg import COLOURS, line_chart, stacked_chart

Metrics = Sequence[Mapping[str, Any]]
Series = tuple[str, str, str]  # stage, metric, name in the key
VALIDATION = ("outcome/mean", "outcome")  # as `assay grpo` and as `assay demo` log it
SHARES = 6  # of reasons, the last of them all others

CHARTS: tuple[tuple[str, tuple[Series, ...]], ...] = (
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


def training(metrics: Metrics, links: Links) -> str:
    """The section of curves; "" for a run that logged none."""
    made = [_lines(title, wanted, metrics, links) for title, wanted in _wanted(metrics)]
    figures = [one for one in (*made, _reasons(metrics)) if one]
    if not figures:
        return ""
    note = ""
    if links.page and any(row.get("stage") == "rl" for row in metrics):
        note = quiet("A point opens the rollouts of its step; so does the table of steps.")
    charts = f'<div class="charts">{"".join(figures)}</div>'
    return section("Training", note, charts, _steps(metrics, links))


def line_of(metrics: Metrics, stage: str, key: str) -> list[tuple[float, float]]:
    """(step, value) of what was logged; a number that was not finite is left out."""
    rows = [r for r in metrics if r.get("stage") == stage and r.get(key) is not None]
    return [(float(r["step"]), float(r[key])) for r in rows]


def logged(metrics: Metrics, stage: str, prefix: str = "") -> list[str]:
    """Names of a stage's numbers, in the order in which they came."""
    rows = [row for row in metrics if row.get("stage") == stage]
    names = dict.fromkeys(k for row in rows for k in row if k not in ("stage", "step", "time"))
    return [name for name in names if name.startswith(prefix)]


def validation_key(metrics: Metrics) -> str:
    """What evaluations during training call the mean outcome, "" without any."""
    names = logged(metrics, "eval")
    return next((key for key in VALIDATION if key in names), "")


def _wanted(metrics: Metrics) -> Iterator[tuple[str, Sequence[Series]]]:
    key = validation_key(metrics)
    if key and line_of(metrics, "rl", "outcome/mean"):
        yield (
            "Learning curve: outcome",
            (("rl", "outcome/mean", "training rollouts"), ("eval", key, "validation")),
        )
    yield from CHARTS
    seen = [n for n in logged(metrics, "eval") if n != key]
    plain = [n for n in seen if "/" not in n or n == "reward/mean" or n.startswith("outcome/")]
    names = ([key] if key else []) + plain
    for number, chunk in enumerate(_chunks(names)):
        title = "Validation" if not number else "Validation, continued"
        yield title, [("eval", n, n.removesuffix("/mean")) for n in chunk]
    yield from _reward_parts(metrics)


def _reward_parts(metrics: Metrics) -> Iterator[tuple[str, Sequence[Series]]]:
    """Means of the reward's parts: those that are shares first, then counts."""
    names = [n for n in logged(metrics, "rl", "reward/") if n.count("/") == 2]
    share = {n: all(-1e-9 <= v <= 1 + 1e-9 for _, v in line_of(metrics, "rl", n)) for n in names}
    for title, wanted in (("Parts of the reward", True), ("Parts that are counts", False)):
        for chunk in _chunks([n for n in names if share[n] is wanted]):
            yield title, [("rl", n, n.split("/")[1]) for n in chunk]


def _chunks(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), COLOURS):
        yield names[start : start + COLOURS]


def _lines(title: str, wanted: Sequence[Series], metrics: Metrics, links: Links) -> str:
    series = [(name, stage, line_of(metrics, stage, key)) for stage, key, name in wanted]
    series = [(name, stage, line) for name, stage, line in series if line]
    if not series:
        return ""
    stages = {name: stage for name, stage, _ in series}
    svg = line_chart(
        [(name, line) for name, _, line in series], "step", title, _link(links, stages)
    )
    return figure(title, [name for name, _, _ in series], svg)


def _link(links: Links, stages: Mapping[str, str]) -> Callable[[str, float], str] | None:
    """Where a point leads: to the rollouts of its step, where it is one of RL."""
    if not links.page or "rl" not in stages.values():
        return None

    def place(name: str, step: float) -> str:
        return f"{links.page}#{links.step_fragment(step)}" if stages[name] == "rl" else ""

    return place


def figure(title: str, names: Sequence[str], svg: str) -> str:
    """A picture with its title, and a key where there are several names."""
    key = "".join(
        f'<span class="key"><i class="{"dashed" if i >= COLOURS else ""}" '
        f'style="background:var(--c{i % COLOURS})"></i>{escape(name)}</span>'
        for i, name in enumerate(names)
    )
    caption = f"{escape(title)}{key if len(names) > 1 else ''}"
    return f"<figure><figcaption>{caption}</figcaption>{svg}</figure>"


def _reasons(metrics: Metrics) -> str:
    """Why rollouts scored as they did, as shares by step."""
    rows = [row for row in metrics if row.get("stage") == "rl"]
    names = logged(metrics, "rl", "why/")
    if not rows or len(names) < 2:
        return ""
    weight = {n: sum(float(row.get(n) or 0.0) for row in rows) for n in names}
    ranked = sorted((n for n in names if weight[n]), key=lambda n: (n != "why/ok", -weight[n]))
    kept = ranked[: SHARES - 1] if len(ranked) > SHARES else ranked
    rest = [n for n in ranked if n not in kept]
    shares = [
        (
            float(row["step"]),
            [float(row.get(n) or 0.0) for n in kept]
            + ([sum(float(row.get(n) or 0.0) for n in rest)] if rest else []),
        )
        for row in rows
    ]
    shown = [n.removeprefix("why/") for n in kept] + (["all others"] if rest else [])
    key = "".join(
        f'<span class="key"><i style="background:var(--c{i})"></i>{escape(name)}</span>'
        for i, name in enumerate(shown)
    )
    title = "How rollouts ended (share)"
    svg = stacked_chart(shown, shares, title)
    return f"<figure><figcaption>{escape(title)}{key}</figcaption>{svg}</figure>"


def _steps(metrics: Metrics, links: Links) -> str:
    """Every RL step with its numbers, for who cannot point at a curve."""
    rows = [row for row in metrics if row.get("stage") == "rl"]
    names = [n for n in NUMBERS if any(row.get(n[1]) is not None for row in rows)]
    if not names:
        return ""
    lines = [
        (
            "",
            [
                links.step(str(row["step"]), float(row["step"])),
                *("–" if row.get(k) is None else form.format(row[k]) for _, k, form in names),
            ],
        )
        for row in rows
    ]
    body = wide(table(["step", *(head for head, _, _ in names)], lines), "Numbers by step")
    return f"<details><summary>Numbers of {len(rows)} RL steps</summary>{body}</details>"
