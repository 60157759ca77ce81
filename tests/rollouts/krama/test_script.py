"""The short episode: one script, one line for each step, the answer last."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_lake import make_lake, make_task

from assay.family import score_answer
from assay.task import Task
from rollouts.engines.scripted import CannedEngine
from rollouts.environment import Budget
from rollouts.environments import EnvironmentFactory, ToolSettings
from rollouts.episode import Episode
from rollouts.krama.index import index_lake
from rollouts.krama.script import printed, task_text
from rollouts.scripted_agents import reference_reply
from rollouts.tool_calls import FORMATS
from rollouts.trajectory import Sampling, Trajectory

linux = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux only")
LOAD = 'import pandas as pd\nt = pd.read_csv("data/rain_amherst.csv")\nprint(len(t) - 1)\n'


def play(task: Task, reply: str) -> Trajectory:
    async def go() -> Trajectory:
        shop = EnvironmentFactory(Path("/"))
        shop.announce([task])
        engine = CannedEngine([{"match": "", "replies": [reply]}])
        try:
            one = Episode(task, 0, 0, shop.maker, Budget(turns=3))
            return await one.play(engine, Sampling(512))
        finally:
            await shop.close()

    return asyncio.run(go())


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


def test_the_agent_that_knows_gold_writes_its_script(tmp_path: Path) -> None:
    task = make_task(tmp_path, "lake_script", pipeline="print(1.5)\n")
    assert reference_reply(task, 0, FORMATS["hermes"]) == "```python\nprint(1.5)\n```"


@given(st.lists(st.text()))
def test_printed_lines_hold_no_blanks_around_them(lines: list[str]) -> None:
    found = printed("\n".join(lines))
    assert all(line and line == line.strip() for line in found)
    assert printed("\n".join(found)) == found
