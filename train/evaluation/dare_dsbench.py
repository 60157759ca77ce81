# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""DSBench's own number of its data-modelling competitions, by the scripts of the user's copy.

A competition's script (`evaluation/NAME_eval.py`) scores the submission; the score is then the
share of the way from the baseline's to the best one, `max(0, (s - b) / (g - b))`, both of which the
copy has under `save_performance`. A competition without a submission that can be scored has 0.
The prediction was parsed in the confined process before; the scripts see a file of our own.
"""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from assay.task import Task, TaskError
from rewards.dare.read import ReaderLost, Unreadable, read_prediction
from rewards.dare.score import FILE, read_gold
from rollouts.trajectory import Trajectory
from train.evaluation.contract import Row

SECONDS = 300.0


def more(task: Task, run: Trajectory, home: Path | None) -> Row:
    """The competition of a task, and DSBench's own number where its copy is at hand."""
    if "competition" not in task.meta:
        return {}
    row: Row = {"competition": task.meta["competition"]}
    if home is not None and run.failure is None:
        row["relative_gap"] = relative_gap(home, task, run.files.get(FILE))
    return row


def relative_gap(home: Path, task: Task, prediction: bytes | None) -> float | None:
    """DSBench's number of a competition's prediction file; None where the reader broke down.

    Raises `TaskError` for a copy that lacks what the competition needs.
    """
    name = str(task.meta["competition"])
    best, base = (_kept(home / "save_performance" / kind / name) for kind in ("GT", "baseline"))
    answers = home / "data" / "answers" / name / "test_answer.csv"
    script = home / "evaluation" / f"{name}_eval.py"
    for path in (answers, script):
        if not path.is_file():
            said = f"dare.dsbench={home}: {path} is not there"
            raise TaskError(f"{said}; give DSBench's data_modeling")
    if prediction is None:
        return 0.0
    try:
        frame = _submission(task, prediction, answers)
    except ReaderLost:
        return None
    except (Unreadable, KeyError, ValueError):
        return 0.0
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / name).mkdir()
        frame.to_csv(work / "submission.csv", index=False)
        words = ["--answer_file", answers.resolve(), "--predict_file", work / "submission.csv"]
        words += ["--path", work, "--name", name]
        try:
            subprocess.run(
                [sys.executable, str(script.resolve()), *map(str, words)],
                cwd=work,
                timeout=SECONDS,
                check=False,
                capture_output=True,
            )
            score = float((work / name / "result.txt").read_text("utf-8"))
        except (OSError, ValueError, subprocess.TimeoutExpired):
            return 0.0
    return 0.0 if math.isnan(score) else max(0.0, (score - base) / (best - base))


def _kept(folder: Path) -> float:
    """A score that DSBench's copy keeps."""
    try:
        return float((folder / "result.txt").read_text("utf-8"))
    except (OSError, ValueError):
        raise TaskError(
            f"dare.dsbench: {folder}/result.txt holds no number; unpack save_performance.zip there"
        ) from None


def _submission(task: Task, prediction: bytes, answers: Path) -> Any:
    """The prediction under the competition's own key, in the order of its answers: its script
    compares row by row."""
    import pandas as pd

    gold = read_gold(task.gold)
    said = read_prediction(prediction, (*gold.key_columns, *gold.targets))
    keys = pd.read_csv(task.files["val_v2.csv"])[["row_id", task.meta["key"]]]
    found = keys.merge(said[["row_id", *gold.targets]], on="row_id", validate="one_to_one")
    wanted = pd.read_csv(answers)[[task.meta["key"]]]
    return wanted.merge(found.drop(columns="row_id"), on=task.meta["key"], how="left")


def line(rows: Sequence[Row]) -> str:
    """What is said of competitions, "" where there are none."""
    mine = [row for row in rows if row["more"].get("competition")]
    if not mine:
        return ""
    scores = [float(row["outcome"]) for row in mine if row["outcome"] is not None]
    gaps = [g for row in mine if (g := row["more"].get("relative_gap")) is not None]
    own = f"{100 * fmean(gaps):.2f}" if gaps else "– (dare.dsbench=DIR)"
    names = len({row["more"]["competition"] for row in mine})
    shown = f"{100 * fmean(scores):.2f}" if scores else "–"
    return (
        f"DSBench, {names} competitions: mean over competitions {shown} by DARE-bench's metric; "
        f"by DSBench's own number {own}"
    )
