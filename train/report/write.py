# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""Pages of runs: results.json, metrics.jsonl and run.json as static HTML files. The page of
several says which are seeds of one setting, what they come to pooled, and what the settings differ
in."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from os.path import relpath
from pathlib import Path
from statistics import fmean
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from assay.files import write_text
from assay.task import TaskError
from train.evaluation.results import (
    TRAINED,
    check_results,
    comparisons,
    draw_of,
    is_baseline,
    named_rows,
    ordered,
    shown,
)
from train.evaluation.tables import (
    NONE,
    Cell,
    Comparison,
    Draw,
    Pair,
    cell,
    compare_pairs,
    ends,
    number,
    pairs_of,
    signed,
)
from train.report.markup import (
    EMPTY,
    Line,
    Links,
    charts,
    document,
    ends_text,
    figure,
    interval_mark,
    line_of,
    pieces,
    plain,
    together,
    validation_key,
)
from train.report.page import render
from train.run.log import read_metrics
from train.run.record import read_run_record
from train.view.book import bind, open_runs
from train.view.page import write_page as write_view
from train.view.sources import PAGE, labels_of

RUNS_PAGE = "runs.html"


def write_report(run_dir: Path, data: Mapping[str, Any], rollouts: bool = False) -> Path:
    """Write `results.json` and `report.html` into `run_dir`; returns the page's path. `rollouts`:
    also `view.html`, which it links to."""
    check_results(data)
    run_dir.mkdir(parents=True, exist_ok=True)
    # a model's output may hold lone surrogates, which UTF-8 cannot
    text = json.dumps(data, ensure_ascii=False) + "\n"
    write_text(run_dir / "results.json", text, "backslashreplace")
    if rollouts:
        write_rollouts(run_dir)
    return write_page(run_dir, data)


def write_page(run_dir: Path, data: Mapping[str, Any]) -> Path:
    """Write `report.html` from `data` ({}: nothing was evaluated) and the log and record that are
    in `run_dir`."""
    title = f"Assay: {run_dir.resolve().name}"
    viewer = PAGE if (run_dir / PAGE).is_file() else ""
    page = render(title, data, read_metrics(run_dir), read_run_record(run_dir), viewer)
    target = run_dir / "report.html"
    write_text(target, page, "backslashreplace")
    return target


def write_rollouts(run_dir: Path, tasks: Sequence[Path] = ()) -> Path | None:
    """Write `view.html`, which the numbers of `report.html` link to. `tasks`: files of tasks that
    no record of the run names yet. None, and a line on standard error, where the run has no
    rollouts that can be read: the report then has no links."""
    try:
        runs = open_runs([run_dir], tasks)
        for run in runs:
            run.refresh()
        book = bind(runs, f"Assay: {runs[0].label}")
    except (TaskError, OSError) as error:
        (run_dir / PAGE).unlink(missing_ok=True)  # an earlier one shows other rollouts
        print(f"{run_dir}: no page of rollouts: {error}", file=sys.stderr)
        return None
    return write_view(book, run_dir / PAGE) if book.rollouts else None


def write_several(runs: Mapping[Path, Mapping[str, Any]], out: Path | None = None) -> Path:
    """Write one page of several runs side by side; `out`: its path (default: `runs.html` in the
    folder that holds the first run)."""
    folders = list(runs)
    target = out or folders[0].resolve().parent / RUNS_PAGE
    found = [
        One(label, folder, runs[folder], read_metrics(folder), read_run_record(folder))
        for label, folder in zip(labels_of(folders), folders, strict=True)
    ]
    target.parent.mkdir(parents=True, exist_ok=True)
    write_text(target, several(found, target.parent), "backslashreplace")
    return target


def seeds_table(runs: Mapping[str, Mapping[str, Any]]) -> str:
    """Several runs side by side: each model's mean outcome, and what each stage changed."""
    cells: dict[str, list[Mapping[str, Any]]] = {}
    for data in runs.values():
        for part in shown(data):
            cells.setdefault(part.name, []).append(part.cell)
    lines = [f"{len(runs)} runs: mean over runs (lowest to highest)"]
    for name in ordered(list(cells)):
        line = f"  {name:<18}"
        for title, key in (("outcome", "mean_outcome"), ("balanced", "balanced")):
            found: Sequence[float] = [c[key] for c in cells[name] if c.get(key) is not None]
            if found:
                line += f" {title} {fmean(found):.3f} ({min(found):.3f} to {max(found):.3f}) "
        lines.append(line.rstrip())
    for run, data in runs.items():
        lines += [f"  {run}: {c.line()}" for c in comparisons(data)]
    return "\n".join(lines)


# --- the page of several runs

Row = Mapping[str, Any]
Change = tuple[Comparison, Sequence[float]]  # over all runs, and the difference in each
# settings that do not make a run another setting: draws, places, and how it was logged
NO_SETTING = ("seed", "out", "log", "checkpoint", "bootstrap", "bootstrap_seed")
MOST_LINES = 8  # of one picture
CURVES = (
    ("Outcome of training rollouts", "rl", "outcome/mean"),
    ("Reward of training rollouts", "rl", "reward/mean"),
    ("Entropy (nats a token)", "rl", "entropy"),
    ("Trainer–sampler gap (nats a token)", "rl", "kl/sampler"),
    ("Answer length (tokens)", "rl", "response_length/mean"),
    ("SFT loss", "sft", "loss"),
    ("Validation outcome", "eval", ""),
)


@dataclass(frozen=True)
class One:
    """One run as its folder holds it. `data` is {} where nothing was evaluated."""

    label: str
    folder: Path
    data: Row
    metrics: Sequence[Row]
    record: Row

    @property
    def rows(self) -> dict[str, list[Any]]:
        return named_rows(self.data) if self.data else {}

    @property
    def seed(self) -> Any:
        return self.record.get("seed", (self.data.get("meta") or {}).get("seed"))

    @property
    def settings(self) -> dict[str, Any]:
        """Dotted setting → value, without draws and places."""
        meta = self.data.get("meta") or {}
        held = {"eval": meta.get("settings"), "model": meta.get("model")}
        return dict(_flat(self.record.get("config") or held))

    @property
    def models(self) -> list[str]:
        """What answered, baselines left out; those that training made last."""
        return [name for name in self.rows if not is_baseline(name)] or list(self.rows)


def _flat(value: Any, head: str = "") -> Iterator[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        yield head, value
        return
    for name, part in value.items():
        if name not in NO_SETTING:
            yield from _flat(part, f"{head}.{name}" if head else str(name))


# --- numbers -------------------------------------------------------------------------------------


def groups(runs: Sequence[One]) -> list[list[One]]:
    """Runs of the same settings together, in the order in which the first of each came."""
    found: dict[str, list[One]] = {}
    for run in runs:
        held = run.settings
        known = any(value is not None for value in held.values())
        key = json.dumps(held, sort_keys=True, default=str) if known else run.label
        found.setdefault(key, []).append(run)
    return list(found.values())


def differing(runs: Sequence[One]) -> dict[str, list[str]]:
    """Setting → its value in each run, where two runs that have it differ in it."""
    held = [run.settings for run in runs]
    names = dict.fromkeys(name for mine in held for name in mine)
    differs = (n for n in names if len({str(mine[n]) for mine in held if n in mine}) > 1)
    return {n: [str(mine.get(n, NONE)) for mine in held] for n in differs}


def are_seeds(group: Sequence[One]) -> bool:
    """Whether the runs of a group may be pooled: one run twice is no second seed."""
    return len(group) > 1 and len({str(run.seed) for run in group}) == len(group)


def pooled(group: Sequence[One], name: str) -> tuple[Cell, list[float]]:
    """A model's answers in all runs of a group as one cell, its interval clustered by source over
    the runs; and the mean outcome of each run."""
    rows = [{"family": "", **row} for run in group for row in run.rows.get(name, [])]
    single = [cell(run.rows[name], Draw(1))["mean_outcome"] for run in group if run.rows.get(name)]
    return cell(rows, draw_of(group[0].data)), [value for value in single if value is not None]


def stages(group: Sequence[One]) -> list[Change]:
    """What each stage changed, pooled over the runs of a group. Tasks are paired within their run:
    those of another seed are other tasks."""
    there = [name for name in TRAINED if all(name in run.rows for run in group)]
    return [
        _together(a, b, [pairs_of(run.rows[a], run.rows[b]) for run in group], group[0])
        for a, b in pairwise(there)
    ]


def _together(before: str, after: str, made: Sequence[Sequence[Pair]], run: One) -> Change:
    each = [fmean(pair.after - pair.before for pair in pairs) for pairs in made if pairs]
    every = [pair for pairs in made for pair in pairs]
    return compare_pairs(before, after, every, draw_of(run.data)), each


def between(first: Sequence[One], other: Sequence[One]) -> Change | None:
    """The last model of two groups on the tasks that both asked: runs of one seed against each
    other where both have it. None without a shared task."""
    alone = len(first) == 1 or len(other) == 1
    made = [
        same_tasks(a.rows[a.models[-1]], b.rows[b.models[-1]])
        for a in first
        for b in other
        if (alone or a.seed == b.seed) and a.models and b.models
    ]
    made = [pairs for pairs in made if pairs]
    return _together(first[0].label, other[0].label, made, first[0]) if made else None


def same_tasks(before: Sequence[Row], after: Sequence[Row]) -> list[Pair]:
    """Pairs of rows that answer the same task. Another seed's task may have the same id: its
    source, slices or prompt then differ."""
    known = {str(row["task_id"]): _mark(row) for row in before}
    return pairs_of(before, [r for r in after if known.get(str(r["task_id"])) == _mark(r)])


def _mark(row: Row) -> str:
    held = [row.get(name) for name in ("family", "source", "label", "slices", "prompt")]
    return json.dumps(held, sort_keys=True, default=str)


# --- the page ------------------------------------------------------------------------------------


def several(runs: Sequence[One], home: Path) -> str:
    """The page that compares runs; it will lie in the folder `home`, from which links lead on."""
    found = groups(runs)
    title = "Assay: " + ", ".join(run.label for run in runs)
    seeds = max(len(group) if are_seeds(group) else 1 for group in found)
    subtitle = f"{len(runs)} runs of {len(found)} settings" + (
        f", up to {seeds} seeds of one" if seeds > 1 else ""
    )
    settings = [["setting", *(run.label for run in runs)]]
    settings += [[name, *values] for name, values in differing(runs).items()]
    sections = [
        ("Results", _results(found, home)),
        ("What each stage changed", _stages(found)),
        ("Settings compared", _between(found)),
        ("Curves", _curves(runs)),
        ("Settings that differ", plain(settings, "Settings that differ", "words")),
    ]
    return document(title, subtitle, sections)


def _results(found: Sequence[Sequence[One]], home: Path) -> Markup:
    names = ordered(list(dict.fromkeys(n for g in found for run in g for n in run.models)))
    if not names:
        return EMPTY
    lines: list[Line] = []
    for group in found:
        lines += [("", _run_line(run, names, home)) for run in group]
        if are_seeds(group):
            lines.append(("pooled", _pooled_line(group, names)))
    heads = ["run", "seed", *(f"{name}: outcome" for name in names), "read"]
    note = (
        "Intervals are 95 %, clustered by source. A pooled line holds all answers of its runs; its "
        "interval speaks of other tasks, and the range of its runs of other seeds."
    )
    return together(pieces().table("Results", heads, lines), pieces().quiet(note))


def _run_line(run: One, names: Sequence[str], home: Path) -> list[str]:
    page, report = run.folder / PAGE, run.folder / "report.html"
    one = bool(run.data) and isinstance(run.data["rows"], list)
    links = Links(_address(page, home) if page.is_file() else "", one)
    cells = {part.name: part.cell for part in shown(run.data)} if run.data else {}
    made: list[str] = []
    for name in names:
        if name not in cells or name not in run.rows:
            made.append(NONE)
            continue
        text, bounds = number(cells[name]["mean_outcome"]), ends_text(cells[name]["interval"])
        made.append(pieces().cell(text, links.answers(name), bounds))
    read = pieces().link("report", _address(report, home)) if report.is_file() else NONE
    return [run.label, str(run.seed), *made, read]


def _address(path: Path, home: Path) -> str:
    return quote(relpath(path.resolve(), home.resolve()))


def _pooled_line(group: Sequence[One], names: Sequence[str]) -> list[str]:
    made: list[str] = []
    for name in names:
        found, each = pooled(group, name)
        span = f"runs {min(each):.3f} to {max(each):.3f}" if each else ""
        text = number(found["mean_outcome"])
        made.append(pieces().cell(text, "", ends_text(found["interval"]), span) if each else NONE)
    return [f"{len(group)} seeds pooled", "", *made, ""]


def _stages(found: Sequence[Sequence[One]]) -> Markup:
    lines: list[Line] = []
    for group in found:
        for run in group:
            lines += [("", _change(run.label, *made)) for made in stages([run])]
        if are_seeds(group):
            label = f"{len(group)} seeds pooled"
            lines += [("pooled", _change(label, *made)) for made in stages(group)]
    return _changes(lines, "run")


def _between(found: Sequence[Sequence[One]]) -> Markup:
    lines: list[Line] = []
    for other in found[1:]:
        if made := between(found[0], other):
            models = f"{found[0][0].models[-1]} and {other[0].models[-1]}"
            lines.append(("", _change(models, *made)))
    note = (
        "The last model of each setting on the tasks that both were asked, the first setting as "
        "given on the command line first. Runs of the same seed are compared with each other."
    )
    return together(_changes(lines, "last models"), pieces().quiet(note)) if lines else EMPTY


def _change(label: str, c: Comparison, each: Sequence[float]) -> list[str]:
    span = f"{fmean(each):+.3f} ({min(each):+.3f} to {max(each):+.3f})" if len(each) > 1 else NONE
    mark = interval_mark(c.outcome, -1.0, 1.0) if ends(c.outcome) else ""
    counts = (str(c.n), str(c.sources))
    changed = (str(c.gained), str(c.lost))
    return [label, f"{c.before} → {c.after}", *counts, signed(c.outcome), mark, span, *changed]


def _changes(lines: Sequence[Line], first: str) -> Markup:
    if not lines:
        return EMPTY
    heads = (first, "change", "tasks", "sources", "outcome [95 %]", "", "mean over runs (range)")
    return together(
        pieces().table(f"Changes by {first}", (*heads, "gained", "lost"), lines),
        pieces().quiet("Paired over the same tasks, with a bootstrap over their sources."),
    )


def _curves(runs: Sequence[One]) -> Markup:
    figures: list[Markup] = []
    for title, stage, key in CURVES:
        drawn = [
            (run.label, line_of(run.metrics, stage, key or validation_key(run.metrics)))
            for run in runs
        ]
        if lines := [(label, line) for label, line in drawn if line][:MOST_LINES]:
            figures.append(figure(title, lines, "step"))
    if not figures:
        return EMPTY
    more = len([run for run in runs if run.metrics]) > MOST_LINES
    note = pieces().quiet(f"The first {MOST_LINES} runs are drawn.") if more else EMPTY
    return together(charts(together(*figures)), note)
