"""`assay view RUN|ROLLOUTS...`: rollouts to read, as one static HTML page or from a server that
follows a run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from assay import console
from assay.family import use_families
from assay.task import TaskError
from train.view.book import Run, bind, open_runs
from train.view.page import write_page
from train.view.sources import PAGE


def parser() -> argparse.ArgumentParser:
    made = console.parser("view", __doc__)
    add = made.add_argument
    add(
        "runs",
        nargs="+",
        type=Path,
        metavar="RUN|ROLLOUTS",
        help="run directories, evaluations, files of rollouts; two are compared",
    )
    add(
        "--out",
        type=Path,
        metavar="FILE.html|DIR",
        help="one file, or a folder whose parts are loaded when needed (default: view.html in the "
        "run's directory)",
    )
    add("--serve", action="store_true", help="serve on 127.0.0.1 and follow the runs; no file")
    add("--port", type=int, default=0, help="with --serve; 0: any free one")
    add(
        "--tasks",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="tasks with gold, beside those that the runs name",
    )
    add("--model", type=Path, metavar="DIR", help="folder with the tokenizer.json of the rollouts")
    console.add_family(made)
    return made


def default_out(places: Sequence[Path]) -> Path:
    """Beside what is shown: in the run's directory, else in this one."""
    if len(places) > 1:
        return Path(PAGE)
    place = places[0]
    return place / PAGE if place.is_dir() else place.with_suffix(".view.html")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0. Raises `TaskError` for what holds no rollouts or cannot be read."""
    options = parser().parse_args(argv)
    use_families(options.family)
    if options.serve and options.out:
        raise TaskError("--serve writes no file; leave out --out or --serve")
    runs = open_runs(options.runs, options.tasks, options.model)
    title = "Assay: " + " and ".join(run.label for run in runs)
    if options.serve:
        return _serve(runs, title, options.port)
    for run in runs:
        run.refresh()
    book = bind(runs, title)
    if not book.rollouts:
        raise TaskError(f"{runs[0].place}: no rollouts yet; use --serve to wait for them")
    page = write_page(book, options.out or default_out(options.runs))
    size = page.stat().st_size / 1e6
    print(f"{page}: {len(book.rollouts)} rollouts of {len(book.bodies)} tasks, {size:.1f} MB")
    return 0


def _serve(runs: Sequence[Run], title: str, port: int) -> int:
    from train.view.page import Followed, Server

    followed = Followed(runs, title)
    with Server(followed, port) as server:
        print(f"{server.url} (Ctrl-C ends it)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("ended", file=sys.stderr)
    return 0
