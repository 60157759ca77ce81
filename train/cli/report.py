"""`assay report RUN...`: a run's results and curves as one static HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rewards import console
from rewards.families import use_families
from train.evaluation.benchmarks import BENCHMARKS
from train.evaluation.results import ResultsError, read_results, text_table
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
    """Exit status 0. Raises `ResultsError` for a folder that is no run."""
    parser = console.parser("report", __doc__)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run directory")
    console.add_family(parser)
    options = parser.parse_args(argv)
    use_families(options.family)
    runs = {str(run): read_run(run) for run in options.runs}
    for run, data in runs.items():
        table = text_table(data) if data else "not evaluated"
        print(f"{run}\n{table}\nreport: {write_page(Path(run), data)}\n")
        for benchmark in BENCHMARKS.values():
            if more := benchmark.report and benchmark.report(Path(run)):
                print(f"{more}\n")
    evaluated = {run: data for run, data in runs.items() if data}
    if len(evaluated) > 1:
        print(seeds_table(evaluated))
    return 0
