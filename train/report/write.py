"""Pages of runs: results.json, metrics.jsonl and run.json as static HTML files."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from assay.files import write_text
from assay.task import TaskError
from train.evaluation.results import check_results, comparisons, ordered, shown
from train.report.page import render
from train.report.several import One, several
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
