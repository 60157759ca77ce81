"""Several runs side by side on one page, seeds of one setting pooled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from os.path import relpath
from pathlib import Path
from statistics import fmean
from typing import Any
from urllib.parse import quote

from train.evaluation.comparing import Comparison, signed
from train.evaluation.results import number, ordered, shown
from train.evaluation.tables import ends
from train.report.curves import figure, line_of, validation_key
from train.report.markup import (
    Line,
    Links,
    bounds_text,
    document,
    plain,
    quiet,
    section,
    table,
    wide,
)
from train.report.pooled import One, are_seeds, between, differing, groups, pooled, stages
from train.report.svg import interval_mark, line_chart
from train.view.links import PAGE

MOST_LINES = 8  # of one picture
CURVES = (
    ("Outcome of training rollouts", "rl", "outcome/mean"),
    ("Reward of training rollouts", "rl", "reward/mean"),
    ("Entropy (nats a token)", "rl", "entropy"),
    ("Trainer–sampler gap (nats a token)", "rl", "kl/sampler"),
    ("Answer length (tokens)", "rl", "response_length/mean"),
    ("SFT loss", "sft", "loss"),
)


def several(runs: Sequence[One], home: Path) -> str:
    """The page that compares runs; it will lie in the folder `home`, from which links lead on."""
    found = groups(runs)
    title = "Assay: " + ", ".join(run.label for run in runs)
    seeds = max(len(group) if are_seeds(group) else 1 for group in found)
    subtitle = f"{len(runs)} runs of {len(found)} settings" + (
        f", up to {seeds} seeds of one" if seeds > 1 else ""
    )
    sections = [
        section("Results", _results(found, home)),
        section("What each stage changed", _stages(found)),
        section("Settings compared", _between(found)),
        section("Curves", _curves(runs)),
        section("Settings that differ", plain(_settings(runs), "Settings that differ", "words")),
    ]
    return document(title, subtitle, sections)


def _results(found: Sequence[Sequence[One]], home: Path) -> str:
    names = ordered(list(dict.fromkeys(n for g in found for run in g for n in run.models)))
    if not names:
        return ""
    lines: list[Line] = []
    for group in found:
        for run in group:
            lines.append(("", _run_line(run, names, home)))
        if are_seeds(group):
            lines.append(("pooled", _pooled_line(group, names)))
    heads = ["run", "seed", *(f"{name}: outcome" for name in names), "read"]
    return wide(table(heads, lines), "Results") + quiet(
        "Intervals are 95 %, clustered by source. A pooled line holds all answers of its runs; its "
        "interval speaks of other tasks, and the range of its runs of other seeds."
    )


def _run_line(run: One, names: Sequence[str], home: Path) -> list[str]:
    links = run_links(run, home)
    cells = {part.name: part.cell for part in shown(run.data)} if run.data else {}
    made: list[str] = []
    for name in names:
        if name not in cells or name not in run.rows:
            made.append("–")
            continue
        bounds = cells[name]["interval"]
        text = links.answers(number(cells[name]["mean_outcome"]), name)
        made.append(text + (bounds_text(bounds, "{:.3f}") if bounds else ""))
    report = run.folder / "report.html"
    read = f'<a href="{escape(_address(report, home))}">report</a>' if report.is_file() else "–"
    return [escape(run.label), escape(str(run.seed)), *made, read]


def run_links(run: One, home: Path) -> Links:
    """Into the run's own viewer, where it is there."""
    page = run.folder / PAGE
    one = bool(run.data) and isinstance(run.data["rows"], list)
    return Links(_address(page, home) if page.is_file() else "", one)


def _address(path: Path, home: Path) -> str:
    return quote(relpath(path.resolve(), home.resolve()))


def _pooled_line(group: Sequence[One], names: Sequence[str]) -> list[str]:
    made: list[str] = []
    for name in names:
        found, each = pooled(group, name)
        if not each:
            made.append("–")
            continue
        bounds = found["interval"]
        span = f'<span class="bounds">runs {min(each):.3f} to {max(each):.3f}</span>'
        made.append(
            f"{number(found['mean_outcome'])}"
            + (bounds_text(bounds, "{:.3f}") if bounds else "")
            + span
        )
    return [f"{len(group)} seeds pooled", "", *made, ""]


def _stages(found: Sequence[Sequence[One]]) -> str:
    lines: list[Line] = []
    for group in found:
        made = [(run.label, stages([run])) for run in group]
        made += [(f"{len(group)} seeds pooled", stages(group))] if are_seeds(group) else []
        for label, changes in made:
            kind = "pooled" if label.endswith("pooled") else ""
            lines += [(kind, _change(label, c, each)) for c, each in changes]
    return _change_table(lines, "run")


def _between(found: Sequence[Sequence[One]]) -> str:
    lines: list[Line] = []
    for other in found[1:]:
        made = between(found[0], other)
        if made is None:
            continue
        c, each = made
        models = f"{found[0][0].models[-1]} and {other[0].models[-1]}"
        lines.append(("", _change(models, c, each)))
    if not lines:
        return ""
    return _change_table(lines, "last models") + quiet(
        "The last model of each setting on the tasks that both were asked, the first setting as "
        "given on the command line first. Runs of the same seed are compared with each other."
    )


def _change(label: str, c: Comparison, each: Sequence[float]) -> list[str]:
    span = f"{fmean(each):+.3f} ({min(each):+.3f} to {max(each):+.3f})" if len(each) > 1 else "–"
    return [
        escape(label),
        escape(f"{c.before} → {c.after}"),
        str(c.n),
        str(c.sources),
        escape(signed(c.outcome)),
        interval_mark(c.outcome, -1.0, 1.0) if ends(c.outcome) else "",
        span,
        str(c.gained),
        str(c.lost),
    ]


def _change_table(lines: Sequence[Line], first: str) -> str:
    if not lines:
        return ""
    heads = (first, "change", "tasks", "sources", "outcome [95 %]", "", "mean over runs (range)")
    return wide(table((*heads, "gained", "lost"), lines), f"Changes by {first}") + quiet(
        "Paired over the same tasks, with a bootstrap over their sources."
    )


def _curves(runs: Sequence[One]) -> str:
    figures: list[str] = []
    for title, stage, key in (*CURVES, ("Validation outcome", "eval", "")):
        drawn = [
            (run.label, line_of(run.metrics, stage, key or validation_key(run.metrics)))
            for run in runs
        ]
        lines = [(label, line) for label, line in drawn if line][:MOST_LINES]
        if lines:
            svg = line_chart(lines, "step", title)
            figures.append(figure(title, [label for label, _ in lines], svg))
    if not figures:
        return ""
    more = len([run for run in runs if run.metrics]) > MOST_LINES
    note = quiet(f"The first {MOST_LINES} runs are drawn.") if more else ""
    return f'<div class="charts">{"".join(figures)}</div>{note}'


def _settings(runs: Sequence[One]) -> list[list[str]]:
    found: Mapping[str, Any] = differing(runs)
    heads = ["setting", *(run.label for run in runs)]
    return [heads, *([name, *values] for name, values in found.items())]
