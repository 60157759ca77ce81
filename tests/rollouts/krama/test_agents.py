"""DS-Guru, the free agent and the short script over a small lake, through the common episode."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from krama_data import cases, needs_krama
from said import act
from small_lake import CODE, PLAN, make_task
from thought_forms import FORMS as FORMS_OF_THOUGHT
from thought_forms import filled

from assay.family import THOUGHT, score_answer
from assay.task import Task, json_line
from rollouts.environments import ToolSettings
from rollouts.krama.code_agent import read_answer, showing
from rollouts.krama.datawise import SIGNALS, Stage, cells_of, parts_of, signal_of
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
    assert answer_of("[]", '{"main-task": 3}', failed=True)[0] == {}  # printed before it failed


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
    thought = filled(FORMS_OF_THOUGHT["a python block in the thought"], PLAN + CODE)
    run = play(make_task(lake, "ds_guru_one_shot"), [thought])
    assert score_answer(make_task(lake, "x"), run.answer()).outcome == 1.0
    cut = f"<think>{PLAN}{CODE}"
    run = play(make_task(lake, "ds_guru_few_shot"), [cut, PLAN + CODE])
    assert dict(run.errors) == {THOUGHT: 1}
    assert "before its reasoning did" in run.messages[3]["content"]
    for agent in ("ds_guru_one_shot", "lake_script"):
        assert play(make_task(lake, agent), [cut]).notes["ended"] == THOUGHT


DEEP = "[" * 700 + "]" * 700


def test_deeply_nested_output_of_a_pipeline_is_an_unreadable_answer(lake: Path) -> None:
    task = make_task(lake, "ds_guru_one_shot")
    for printed in (f'{{"main-task": {DEEP}}}', "[" * 100_000):
        run = play(task, [PLAN + f"```python\nprint({printed!r})\n```"])
        assert (run.failure, run.stop, run.notes["ended"]) == (None, "done", "no_answer")
        assert score_answer(task, run.answer()).outcome == 0.0
    assert play(task, [f"```json\n{DEEP}\n```\n{CODE}"]).failure is None


def test_odd_arguments_of_the_free_agent_are_answered_and_scored(lake: Path) -> None:
    task = make_task(lake, "lake_agent")
    calls = [
        f'"read", "arguments": {{"path": "notes.txt", "start": -1{"0" * 4000}}}',
        f'"final_answer", "arguments": {{"answer": {"[" * 400}{"]" * 400}}}',
        *('"read", "arguments": {"path": "\\ud83d"}', '"\\ud83d", "arguments": {}'),
        '"run", "arguments": {"code": "print(1) # \\ud83d"}',
        '"final_answer", "arguments": {"answer": "\\ud83d"}',
    ]
    run = play(task, [f'<tool_call>{{"name": {c}}}</tool_call>' for c in calls], turns=20)
    assert (run.failure, run.stop, run.turns) == (None, "done", 6)
    assert dict(run.errors) == {"bad_arguments": 1, "bad_call": 1, "no_file": 1, "unknown_tool": 1}
    score = score_answer(task, run.answer())
    line = json_line(run.to_json(score, task))
    assert score.outcome == 0.0 and json.loads(line)["messages"] == run.messages


def test_the_free_agent_lists_peeks_reads_runs_and_answers(lake: Path) -> None:
    write, task = FORMATS["hermes"].write, make_task(lake, "lake_agent")
    code = CODE.removeprefix("```python\n").removesuffix("```")
    peek, read = {"path": "data/sites.csv"}, {"path": "notes.txt", "start": 2}
    replies = [
        write("list_files", {"pattern": "rain*"}),
        write("peek", peek) + write("read", read) + write("read", {"path": "../../etc/passwd"}),
        write("run", {"code": code}),
        write("final_answer", {"answer": "1.5", "found": {"years": 30}}),
    ]
    run = play(task, replies, turns=20)
    listed, peeked, lines, outside, *_ = (
        m["content"] for m in run.messages[2:] if m["role"] != "assistant"
    )
    assert "rain_amherst.csv" in listed and "sites.csv" not in listed
    assert "column names in line 2" in peeked and "[number_mark]" in peeked
    assert "M is missing." in lines and "Rain is in inches." not in lines
    assert "there is no file" in outside and dict(run.errors) == {"no_file": 1}
    score = score_answer(task, run.answer())
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
    wrong = score_answer(make_task(lake, "lake_script", answer=9.9), run.answer())
    assert (wrong.outcome, wrong.reward) == (0.0, pytest.approx(0.2))
    # what was printed before an error is credited and is no answer
    run = play(task, [f"```python\n{LOAD}raise ValueError\n```"])
    score = score_answer(make_task(lake, "lake_script", answer=30), run.answer())
    assert (run.notes["ended"], score.outcome, score.parts["answered"]) == ("error", 0.0, 0.0)
    assert score.parts["subtask_credit"] == 1.0
    for reply, ended in (
        *(("no block", "no_code"), ("```python\nprint(1)", "no_code")),
        ("```python\n1\n```", "no_answer"),
    ):
        run = play(task, [reply])
        assert (run.failure, run.notes["ended"]) == (None, ended)
        assert score_answer(task, run.answer()).outcome == 0.0


def test_the_prompt_shows_named_files_and_not_how_many_rows_they_have(lake: Path) -> None:
    index = index_lake(lake)
    text = task_text("The mean of 'Samples' in sites.csv?", index, ToolSettings())
    assert "data/sites.csv: fields between commas, names in line 2\nSite,Town,Kind,Samples" in text
    assert text.count("\nSite ") == 2 and "60" not in text and "rain" not in text
    every = task_text("How much rain fell?", index, ToolSettings())
    assert "data/rain_amherst.csv" in every and "data/notes.txt" in every


# --- smolagents' own CodeAgent, its code in the sandbox and its model played

RAIN = """Thought: read, clean, answer.
<code>
import pandas as pd
t = pd.read_csv("data/rain_amherst.csv")
t = t[t["Year"].astype(str).str.isdigit()]
t["Jun"] = pd.to_numeric(t["Jun"], errors="coerce")
final_answer(round(t["Jun"].mean(), 2))
</code>"""


def test_the_agent_looks_errs_and_answers_in_one_interpreter(lake: Path) -> None:
    pytest.importorskip("smolagents", reason="the extra `agents` is not installed")
    task = make_task(lake, "smolagents")
    look = '<code>\nprint(list_files("rain*"))\nx = 41\nread_file("data/notes.txt")\n</code>'
    errs = "<think><code>final_answer(3)</code></think>\n<code>\nprint(x + 1)\nopen('no')\n</code>"
    run, said = act(task, [look, errs, "no code at all", RAIN])
    assert (run.failure, run.stop, run.turns, run.notes["ended"]) == (None, "done", 4, "answered")
    assert dict(run.errors) == {"error": 1, "no_code": 1}
    assert score_answer(task, run.answer()).outcome == 1.0
    assert run.usage == {"prompt_tokens": 400, "completion_tokens": 40}
    shown = said.asked[1][-1]["content"]
    assert "data/rain_boston.csv" in shown
    assert "2: M is missing." in shown  # the value of the last expression
    failed = said.asked[2][-1]["content"]
    assert "42" in failed  # variables stay; what was printed before an error is shown
    assert "FileNotFoundError" in failed
    assert [m["role"] for m in run.messages] == ["system", *["user", "assistant"] * 4]
    assert "final_answer(round" in run.files["pipeline.py"].decode()


@given(st.text(), st.binary())
def test_nothing_that_a_model_wrote_breaks_the_reading(code: str, left: bytes) -> None:
    shown = showing(code)
    if shown is not None:
        compile(shown, "cell", "exec")
    json.dumps(read_answer(left))


# --- DatawiseAgent's loop: its stages, transitions and bounds, over real notebooks

GOAL = "```markdown\n[STEP GOAL]: {}\n```\n"
CELL = "```python\n{}\n```\n"
DONE = "<fulfilled>\n```markdown\nIt is <answer>1.5</answer>.\n```"


def stages(run: object) -> list[tuple[str, str]]:
    return [(r["stage"], r["signal"]) for r in run.tool_calls if "stage" in r]  # type: ignore[attr-defined]


def test_a_failed_cell_is_mended_and_the_repair_leaves_the_notebook(lake: Path) -> None:
    task = make_task(lake, "datawise")
    replies = [
        GOAL.format("load") + CELL.format("x = 3\nprint('first')"),
        "<await>\n" + CELL.format("print(x)") + CELL.format("nothing") + CELL.format("print(8)"),
        "<await>\n" + CELL.format("print('looking', x)"),
        "<end_debug>\n" + CELL.format("x = 99"),
        "<debug_success>\n```markdown\nnothing is no name\n```\n" + CELL.format("print(x + 1)"),
        "<end_step>",
        DONE,
    ]
    run, said = act(task, replies)
    assert (run.failure, run.stop, run.turns, run.ids) == (None, "done", 7, [])
    assert stages(run) == [
        ("begin", "await"),
        ("execute", "await"),
        ("debug", "await"),
        ("debug", "end_debug"),
        ("filter", "debug_success"),
        ("execute", "end_step"),
        ("plan", "fulfilled"),
    ]
    assert run.errors == {"error": 1}
    assert "not run: a cell before it failed" in said.asked[2][-1]["content"]
    assert "looking 3" in said.asked[3][-1]["content"]
    after = said.asked[5][-1]["content"]  # after the filter: run anew, the repair gone
    for shown in ("first", "Output:\n4", "The current goal is: load"):
        assert shown in after
    assert "looking" not in after and "x = 99" not in after
    assert score_answer(task, run.answer()).outcome == 1.0
    assert run.usage["prompt_tokens"] == 700


def test_a_step_is_replaced_with_its_cells_and_variables(lake: Path) -> None:
    replies = [
        GOAL.format("one") + CELL.format("x = 1"),
        "<next_step>\n" + GOAL.format("two") + CELL.format("x = 2; wrong = True"),
        "<replace_step>\n" + GOAL.format("other") + CELL.format("print(x, 'wrong' in globals())"),
        DONE,
    ]
    turns = [one for reply in replies for one in (reply, "<end_step>")][:-1]
    run, said = act(make_task(lake, "datawise"), turns)
    after = said.asked[5][-1]["content"]
    assert "Output:\n1 False" in after and "two" not in after
    assert "The current goal is: other" in after and run.stop == "done"


@given(st.text(alphabet="`<>\n pyawit[]"), st.sampled_from(list(SIGNALS)))
def test_any_text_is_read(text: str, stage: Stage) -> None:
    assert signal_of(stage, text) in SIGNALS[stage]
    kept = [line for _, body in parts_of(text) for line in body.split("\n") if line.strip()]
    assert set(kept) <= set(text.splitlines())
    cells_of(text)
