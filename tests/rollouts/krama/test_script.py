"""The short episode: one script, one line for each step, the answer last."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from said import act
from small_lake import make_lake, make_task

from assay.family import score_answer
from assay.task import Task
from rollouts.environments import ToolSettings
from rollouts.krama.index import index_lake
from rollouts.krama.script import task_text
from rollouts.trajectory import Trajectory

linux = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux only")
LOAD = 'import pandas as pd\nt = pd.read_csv("data/rain_amherst.csv")\nprint(len(t) - 1)\n'


def play(task: Task, reply: str) -> Trajectory:
    return act(task, [reply])[0]


@linux
def test_the_last_line_is_the_answer_and_the_others_are_results_of_steps(tmp_path: Path) -> None:
    task = make_task(make_lake(tmp_path / "lake"), "lake_script")
    run = play(task, f"```python\n{LOAD}print(1.5)\n```")
    score = score_answer(task, run.answer())
    assert (run.turns, run.stop, run.notes["ended"]) == (1, "done", "ran")
    assert (score.outcome, score.reward, score.parts["subtask_credit"]) == (1.0, 1.0, 1.0)
    wrong = score_answer(make_task(Path("x"), "lake_script", answer=9.9), run.answer())
    assert (wrong.outcome, wrong.reward) == (0.0, pytest.approx(0.2))


@linux
def test_what_was_printed_before_an_error_is_credited_and_is_no_answer(tmp_path: Path) -> None:
    task = make_task(make_lake(tmp_path / "lake"), "lake_script", answer=30)
    run = play(task, f"```python\n{LOAD}raise ValueError\n```")
    score = score_answer(task, run.answer())
    assert (run.notes["ended"], score.outcome, score.parts["answered"]) == ("error", 0.0, 0.0)
    assert score.parts["subtask_credit"] == 1.0


@linux
@pytest.mark.parametrize(
    ("reply", "ended"),
    [
        ("no block", "no_code"),
        ("```python\nprint(1)", "no_code"),
        ("```python\n1\n```", "no_answer"),
    ],
)
def test_a_reply_without_an_answer_is_wrong(tmp_path: Path, reply: str, ended: str) -> None:
    task = make_task(make_lake(tmp_path / "lake"), "lake_script")
    run = play(task, reply)
    assert (run.failure, run.notes["ended"]) == (None, ended)
    assert score_answer(task, run.answer()).outcome == 0.0
    assert json.loads(run.files["answer.json"])["response"] == {}


def test_the_prompt_shows_named_files_and_not_how_many_rows_they_have(tmp_path: Path) -> None:
    index = index_lake(make_lake(tmp_path / "lake"))
    text = task_text("The mean of 'Samples' in sites.csv?", index, ToolSettings())
    assert "data/sites.csv: fields between commas, names in line 2\nSite,Town,Kind,Samples" in text
    assert text.count("\nSite ") == 2
    assert "60" not in text and "rain" not in text
    every = task_text("How much rain fell?", index, ToolSettings())
    assert "data/rain_amherst.csv" in every and "data/notes.txt" in every
