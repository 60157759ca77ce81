"""DS-Guru, the free agent and the short script over a small lake, through the common episode."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from krama_data import cases, needs_krama
from said import act
from small_lake import CODE, PLAN, make_task
from thought_forms import FORMS as FORMS_OF_THOUGHT
from thought_forms import filled

from assay.family import THOUGHT, score_answer
from assay.task import Task, json_line
from rollouts.environments import ToolSettings
from rollouts.krama.index import index_lake
from rollouts.krama.lake import answer_of, blocks, explain
from rollouts.krama.script import task_text
from rollouts.tool_calls import FORMATS
from rollouts.trajectory import Trajectory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux only")


@pytest.mark.parametrize("case", cases("contract"), ids=lambda c: c["note"])
@needs_krama
def test_contract_conformance(case: dict[str, Any]) -> None:
    want, found = case["expected"], blocks(case["model_text"])
    if "raises" in want:
        with pytest.raises((KeyError, TypeError)) as caught:
            explain(found.plan, case["stdout"], case["stderr"])
        assert type(caught.value).__name__ == want["raises"]
        return
    got = explain(found.plan, case["stdout"], case["stderr"])
    assert (found.code, found.plan, got) == (want["code"], want["plan_text"], want["explanation"])


def test_an_answer_under_an_unreadable_plan_counts_for_us_but_not_for_the_release() -> None:
    response, published = answer_of("no plan", '{"main-task": 3}', failed=False)
    assert response == {"answer": 3}
    assert published["answer"].startswith("SUT failed")
    assert answer_of("[1]", '{"main-task": 3}', failed=False) == ({"answer": 3}, {})
    assert answer_of("[]", "[1]", failed=False)[0] == {}


def play(task: Task, replies: list[str], turns: int = 5) -> Trajectory:
    return act(task, replies, turns)[0]


def test_few_shot_repairs_its_pipeline_and_earns_sub_task_credit(lake: Path) -> None:
    task = make_task(lake, "ds_guru_few_shot")
    bad = "```python\nprint(open('data/rain_amherst.csv').read()[:4])\nraise ValueError('M')\n```"
    run = play(task, [PLAN + bad, CODE])
    score = score_answer(task, run.answer())
    assert (run.failure, run.turns, run.stop) == (None, 2, "done")
    assert (score.outcome, score.reward) == (1.0, 1.0)
    assert score.parts["subtask_credit"] == 1.0
    shown = run.messages[1]["content"]
    assert "'M' stands among" in shown  # the marker deep in the column is in the snippet
    repair = run.messages[3]["content"]
    assert "ValueError: M" in repair
    assert "Year" in repair.partition("Output:")[2]
    wrong = make_task(lake, "ds_guru_few_shot", answer=9.9)
    partial = score_answer(wrong, run.answer())
    assert (partial.outcome, partial.reward) == (0.0, pytest.approx(0.2))
    doubted = score_answer(make_task(lake, "x", doubt="ties"), run.answer())
    assert (doubted.outcome, doubted.reward) == (1.0, 0.0)
    assert lake.joinpath("rain_amherst.csv").read_text("utf-8").startswith("Year")


def test_one_shot_gets_one_try_and_no_context_no_snippet(lake: Path) -> None:
    one = play(make_task(lake, "ds_guru_one_shot"), ["no blocks"])
    assert (one.turns, one.stop, one.notes["ended"]) == (1, "done", "no_code")
    bare = play(make_task(lake, "ds_guru_no_context"), [PLAN + CODE])
    assert "line 9: M" not in bare.messages[1]["content"]
    assert "data/rain_boston.csv" in bare.messages[1]["content"]
    assert json.loads(bare.files["answer.json"])["response"] == {"answer": 1.5}
    spent = play(make_task(lake, "ds_guru_few_shot"), ["nothing"])
    assert spent.turns == 5
    left = json.loads(spent.files["answer.json"])
    assert left["response"] == {}
    assert left["published"]["answer"] == "Pipeline not successful after 5 tries."


def test_code_that_was_only_thought_of_is_not_run(lake: Path) -> None:
    for form in ("a python block in the thought", "opened by the template", "gpt-oss", "Hunyuan"):
        run = play(
            make_task(lake, "ds_guru_one_shot"), [filled(FORMS_OF_THOUGHT[form], PLAN + CODE)]
        )
        assert score_answer(make_task(lake, "x"), run.answer()).outcome == 1.0
    cut = f"<think>{PLAN}{CODE}"
    run = play(make_task(lake, "ds_guru_few_shot"), [cut, PLAN + CODE])
    assert (
        dict(run.errors) == {THOUGHT: 1}
        and "before its reasoning did" in run.messages[3]["content"]
    )
    for agent in ("ds_guru_one_shot", "lake_script"):
        assert play(make_task(lake, agent), [cut]).notes["ended"] == THOUGHT


DEEP = "[" * 700 + "]" * 700


def test_deeply_nested_output_of_a_pipeline_is_an_unreadable_answer(lake: Path) -> None:
    task = make_task(lake, "ds_guru_few_shot")
    for printed in (f'{{"main-task": {DEEP}}}', '{"main-task": [' * 700, "[" * 100_000):
        run = play(task, [PLAN + f"```python\nprint({printed!r})\n```"])
        assert (run.failure, run.stop, run.notes["ended"]) == (None, "done", "no_answer")
        assert score_answer(task, run.answer()).outcome == 0.0
    plan = f"```json\n{DEEP}\n```\n"
    assert play(task, [plan + CODE]).failure is None


def test_odd_arguments_of_the_free_agent_are_answered_and_scored(lake: Path) -> None:
    task = make_task(lake, "lake_agent")
    calls = [
        '{"name": "read", "arguments": {"path": "notes.txt", "start": 10000000000000000000}}',
        f'{{"name": "read", "arguments": {{"path": "notes.txt", "start": 1{"0" * 4000}}}}}',
        f'{{"name": "read", "arguments": {{"path": "notes.txt", "start": -1{"0" * 4000}}}}}',
        f'{{"name": "final_answer", "arguments": {{"answer": {"[" * 400}{"]" * 400}}}}}',
        '{"name": "read", "arguments": {"path": "\\ud83d"}}',
        '{"name": "\\ud83d", "arguments": {}}',
        '{"name": "run", "arguments": {"code": "print(1) # \\ud83d"}}',
        '{"name": "final_answer", "arguments": {"answer": "\\ud83d"}}',
    ]
    run = play(task, [f"<tool_call>\n{call}\n</tool_call>" for call in calls], turns=20)
    said = [str(m["content"]) for m in run.messages if m["role"] != "assistant"]
    assert (run.failure, run.stop, run.turns) == (None, "done", 8)
    assert "argument 'start' must be at most" in said[2]
    assert dict(run.errors) == {"bad_arguments": 3, "bad_call": 1, "no_file": 1, "unknown_tool": 1}
    score = score_answer(task, run.answer())
    assert score.outcome == 0.0
    line = json_line(run.to_json(score, task))
    assert json.loads(line)["messages"] == run.messages


def test_the_free_agent_lists_peeks_reads_runs_and_answers(lake: Path) -> None:
    write = FORMATS["hermes"].write
    code = CODE.removeprefix("```python\n").removesuffix("```")
    run = play(
        make_task(lake, "lake_agent"),
        [
            write("list_files", {"pattern": "rain*"}),
            write("peek", {"path": "data/sites.csv"}) + write("read", {"path": "notes.txt"}),
            write("read", {"path": "../../etc/passwd"}) + write("fly", {}) + write("peek", {}),
            write("run", {"code": code}),
            write("final_answer", {"answer": "1.5", "found": {"years": 30}}),
        ],
        turns=20,
    )
    said = [m["content"] for m in run.messages if m["role"] != "assistant"]
    assert "rain_amherst.csv" in said[2]
    assert "sites.csv" not in said[2]
    assert "column names in line 2" in said[3]
    assert "[number_mark]" in said[3]
    assert "Rain is in inches." in said[4]
    assert "there is no file" in said[5]
    assert dict(run.errors) == {"no_file": 1, "unknown_tool": 1, "bad_arguments": 1}
    score = score_answer(make_task(lake, "lake_agent"), run.answer())
    assert (score.outcome, score.parts["subtask_credit"]) == (1.0, 1.0)


@pytest.mark.parametrize("tool", ["ds_guru_few_shot", "lake_agent"])
def test_the_reference_agent_hands_in_the_gold_pipeline(lake: Path, tool: str) -> None:
    from assay.task import TaskError
    from rollouts.scripted_agents import reference_reply

    code = CODE.removeprefix("```python\n").removesuffix("```")
    task = make_task(lake, tool, pipeline=code)
    replies = [reference_reply(task, turn, FORMATS["hermes"]) for turn in range(2)]
    run = play(task, replies)
    score = score_answer(task, run.answer())
    assert (score.outcome, score.reward, run.failure) == (1.0, 1.0, None)
    if tool != "lake_agent":  # the published system could read its plan too
        assert json.loads(run.files["answer.json"])["published"]["answer"] == 1.5
    with pytest.raises(TaskError, match="holds no pipeline"):
        reference_reply(make_task(lake, tool), 0, FORMATS["hermes"])


# the short episode: one script, one line for each step, the answer last

LOAD = 'import pandas as pd\nt = pd.read_csv("data/rain_amherst.csv")\nprint(len(t) - 1)\n'


def test_the_last_line_is_the_answer_and_the_others_are_results_of_steps(lake: Path) -> None:
    task = make_task(lake, "lake_script")
    run = play(task, [f"```python\n{LOAD}print(1.5)\n```"])
    score = score_answer(task, run.answer())
    assert (run.turns, run.stop, run.notes["ended"]) == (1, "done", "ran")
    assert (score.outcome, score.reward, score.parts["subtask_credit"]) == (1.0, 1.0, 1.0)
    wrong = score_answer(make_task(Path("x"), "lake_script", answer=9.9), run.answer())
    assert (wrong.outcome, wrong.reward) == (0.0, pytest.approx(0.2))


def test_what_was_printed_before_an_error_is_credited_and_is_no_answer(lake: Path) -> None:
    task = make_task(lake, "lake_script", answer=30)
    run = play(task, [f"```python\n{LOAD}raise ValueError\n```"])
    score = score_answer(task, run.answer())
    assert (run.notes["ended"], score.outcome, score.parts["answered"]) == ("error", 0.0, 0.0)
    assert score.parts["subtask_credit"] == 1.0


@pytest.mark.parametrize(
    ("reply", "ended"),
    [
        ("no block", "no_code"),
        ("```python\nprint(1)", "no_code"),
        ("```python\n1\n```", "no_answer"),
    ],
)
def test_a_reply_without_an_answer_is_wrong(lake: Path, reply: str, ended: str) -> None:
    task = make_task(lake, "lake_script")
    run = play(task, [reply])
    assert (run.failure, run.notes["ended"]) == (None, ended)
    assert score_answer(task, run.answer()).outcome == 0.0
    assert json.loads(run.files["answer.json"])["response"] == {}


def test_the_prompt_shows_named_files_and_not_how_many_rows_they_have(lake: Path) -> None:
    index = index_lake(lake)
    text = task_text("The mean of 'Samples' in sites.csv?", index, ToolSettings())
    assert "data/sites.csv: fields between commas, names in line 2\nSite,Town,Kind,Samples" in text
    assert text.count("\nSite ") == 2
    assert "60" not in text and "rain" not in text
    every = task_text("How much rain fell?", index, ToolSettings())
    assert "data/rain_amherst.csv" in every and "data/notes.txt" in every
