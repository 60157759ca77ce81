"""`assay report RUN...`: results, curves and rollouts of runs as static HTML pages."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay import console
from assay.family import use_families
from assay.task import TaskError
from train.evaluation.benchmarks import FAMILIES, benchmark
from train.evaluation.results import ResultsError, read_results, text_table
from train.report.inspect_log import write_logs
from train.report.page import tables_text
from train.report.write import seeds_table, write_page, write_rollouts, write_several
from train.view.sources import labels_of

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


def parser() -> argparse.ArgumentParser:
    made = console.parser("report", __doc__)
    made.add_argument(
        "runs",
        nargs="+",
        type=Path,
        metavar="RUN",
        help="run directory; several are also shown side by side, with the seeds of one setting "
        "pooled",
    )
    made.add_argument(
        "--out",
        type=Path,
        metavar="FILE.html",
        help="page of several runs (default: runs.html in the folder that holds the first)",
    )
    made.add_argument(
        "--no-view",
        action="store_true",
        help="do not write view.html, the page of rollouts that numbers link to",
    )
    made.add_argument(
        "--inspect",
        type=Path,
        metavar="DIR",
        help="also write each model's answers as DIR/RUN_MODEL.eval, a log that inspect opens",
    )
    made.add_argument(
        "--tasks",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="with --inspect: tasks with gold, beside those that the runs name",
    )
    made.add_argument(
        "--base-model",
        default="",
        metavar="NAME",
        help="of several runs: the model of a benchmark's leaderboard that the others are compared "
        "with",
    )
    console.add_family(made)
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0. Raises `ResultsError` for a folder that is no run."""
    options = parser().parse_args(argv)
    use_families(options.family)
    if options.tasks and not options.inspect:
        raise TaskError("--tasks goes with --inspect DIR; give both or neither")
    runs = {run: read_run(run) for run in options.runs}
    for label, (run, data) in zip(labels_of(list(runs)), runs.items(), strict=True):
        rollouts = None if options.no_view else write_rollouts(run)
        table = text_table(data) if data else "not evaluated"
        print(f"{run}\n{table}\nreport: {write_page(run, data)}")
        print(f"rollouts: {rollouts}\n" if rollouts else "")
        if own := tables_text(data):
            print(own)
        if options.inspect:
            for log in write_logs(run, data, options.inspect, label, options.tasks):
                print(f"inspect log: {log}")
        for bench in map(benchmark, FAMILIES):
            if more := bench.report and bench.report(run):
                print(f"{more}\n")
    evaluated = {str(run): data for run, data in runs.items() if data}
    if len(evaluated) > 1:
        print(seeds_table(evaluated))
    if len(runs) > 1:
        page = write_several(runs, options.out)
        for bench in map(benchmark, FAMILIES):
            more = bench.several
            if more and (text := more(list(runs), page.parent, options.base_model)):
                print(f"{text}\n")
        print(f"side by side: {page}")
    return 0
