"""`--json` of a run: everything a person reads goes to standard error, one object to standard
output."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from train.run.log import read_metrics


@contextlib.contextmanager
def machine_output(asked: bool) -> Generator[Callable[[str | Path], None]]:
    """Gives a function that takes the folder of a run that is done; with `asked`, what was printed
    in between went to standard error, and the folder's summary goes to standard output."""
    if not asked:
        yield lambda folder: None
        return
    done: list[Path] = []
    with contextlib.redirect_stdout(sys.stderr):
        yield lambda folder: done.append(Path(folder))
    for folder in done:
        print(json.dumps(summary(folder), ensure_ascii=False))


def summary(folder: Path) -> dict[str, Any]:
    """A run in short: its folder, its models, the last logged numbers of each stage, its report."""
    last = {str(row.get("stage")): row for row in read_metrics(folder)}
    models = [name for name in ("sft", "rl", "model", "best") if (folder / name).is_dir()]
    report = folder / "report.html"
    return {
        "out": str(folder),
        "models": {name: str(folder / name) for name in models},
        "last": last,
        "report": str(report) if report.is_file() else None,
    }
