"""`assay report RUN...`: results.json and metrics.jsonl of a run as one static HTML file."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from train.evaluation.results import (
    ResultsError,
    check_results,
    comparisons,
    ordered,
    read_results,
    show_interval,
    summarise,
    text_table,
)
from train.report.errors import write_errors
from train.report.page import render
from train.run.log import read_metrics
from train.run.record import read_run_record


def write_report(run_dir: Path, data: Mapping[str, Any]) -> Path:
    """Write `results.json` and `report.html` into `run_dir`; returns the page's path."""
    check_results(data)
    run_dir.mkdir(parents=True, exist_ok=True)
    _replace(run_dir / "results.json", json.dumps(data, ensure_ascii=False) + "\n")
    return write_page(run_dir, data)


def write_page(run_dir: Path, data: Mapping[str, Any]) -> Path:
    """Write `report.html` from `data` and the log and record that are in `run_dir`."""
    title = f"Assay: {run_dir.resolve().name}"
    page = render(title, data, read_metrics(run_dir), read_run_record(run_dir))
    return _replace(run_dir / "report.html", page)


def seeds_table(runs: Mapping[str, Mapping[str, Any]]) -> str:
    """Several runs side by side: mean RS of each row, and what each stage changed in each run."""
    names = ordered(list(dict.fromkeys(n for data in runs.values() for n in data["rows"])))
    lines = [f"{len(runs)} runs: mean over runs (lowest to highest)"]
    for name in names:
        found = [summarise(name, d["rows"][name]) for d in runs.values() if name in d["rows"]]
        rs, even = [s.rs.value for s in found], [s.balanced for s in found]
        lines.append(
            f"  {name:<18} RS {mean(rs):.3f} ({min(rs):.3f} to {max(rs):.3f})"
            f"  balanced RS {mean(even):.3f} ({min(even):.3f} to {max(even):.3f})"
        )
    for run, data in runs.items():
        for c in comparisons(data):
            lines.append(
                f"  {run}: {c.before} → {c.after} balanced {show_interval(c.balanced, True)}"
            )
    return "\n".join(lines)


def _replace(path: Path, text: str) -> Path:
    temporary = path.with_name(path.name + ".tmp")
    # a model's output may hold lone surrogates, which UTF-8 cannot
    temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
    temporary.replace(path)
    return path


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="assay report", description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run directory")
    options = parser.parse_args(argv)
    runs: dict[str, dict[str, Any]] = {}
    try:
        for run in options.runs:
            runs[str(run)] = read_results(run / "results.json")
    except ResultsError as error:
        print(f"assay report: {error}", file=sys.stderr)
        return 2
    for run, data in runs.items():
        print(f"{run}\n{text_table(data)}\nreport: {write_page(Path(run), data)}\n")
        if errors := write_errors(Path(run)):
            print(f"{errors}\n")
    if len(runs) > 1:
        print(seeds_table(runs))
    return 0
