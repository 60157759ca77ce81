"""`assay report RUN...`: a run's results and curves as one static HTML file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rewards.task import TaskError
from train.evaluation.results import ResultsError, read_results, text_table
from train.report.errors import write_errors
from train.report.write import seeds_table, write_page

# what shows that a folder is a run; one of them is enough
PIECES = ("results.json", "metrics.jsonl", "run.json")


def read_run(run: Path) -> dict[str, Any]:
    """The run's results, {} for one that was trained and not evaluated. Raises `ResultsError`."""
    if (run / PIECES[0]).is_file():
        return read_results(run / PIECES[0])
    if any((run / piece).is_file() for piece in PIECES[1:]):
        return {}
    raise ResultsError(
        f"{run}: results.json: cannot be read, and neither {' nor '.join(PIECES[1:])} is there; "
        "give a run directory"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0, or 2 with one sentence for a folder that is no run."""
    parser = argparse.ArgumentParser(prog="assay report", description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run directory")
    options = parser.parse_args(argv)
    try:
        runs = {str(run): read_run(run) for run in options.runs}
    except TaskError as error:
        print(f"assay report: {error}", file=sys.stderr)
        return 2
    for run, data in runs.items():
        table = text_table(data) if data else "not evaluated"
        print(f"{run}\n{table}\nreport: {write_page(Path(run), data)}\n")
        if errors := write_errors(Path(run)):
            print(f"{errors}\n")
    evaluated = {run: data for run, data in runs.items() if data}
    if len(evaluated) > 1:
        print(seeds_table(evaluated))
    return 0
