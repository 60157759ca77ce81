"""DatawiseAgent's loop: its stages, transitions and bounds, over real notebooks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from said import act
from small_lake import make_task

from assay.family import score_answer
from rollouts.krama import datawise
from rollouts.krama.datawise import SIGNALS, Stage, cells_of, parts_of, signal_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux only")
GOAL = "```markdown\n[STEP GOAL]: {}\n```\n"
CODE = "```python\n{}\n```\n"
DONE = "<fulfilled>\n```markdown\nIt is <answer>1.5</answer>.\n```"


def stages(run: object) -> list[tuple[str, str]]:
    return [(r["stage"], r["signal"]) for r in run.tool_calls if "stage" in r]  # type: ignore[attr-defined]


def test_a_failed_cell_is_mended_and_the_repair_leaves_the_notebook(lake: Path) -> None:
    task = make_task(lake, "datawise")
    replies = [
        GOAL.format("load") + CODE.format("x = 3\nprint('first')"),
        "<await>\n" + CODE.format("print(x)") + CODE.format("nothing") + CODE.format("print(8)"),
        "<await>\n" + CODE.format("print('looking', x)"),
        "<end_debug>\n" + CODE.format("x = 99"),
        "<debug_success>\n```markdown\nnothing is no name\n```\n" + CODE.format("print(x + 1)"),
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
    assert "first" in after
    assert "looking" not in after
    assert "x = 99" not in after
    assert "Output:\n4" in after
    assert "The current goal is: load" in after
    assert score_answer(task, run.answer()).outcome == 1.0
    assert run.usage["prompt_tokens"] == 700


def test_a_step_is_replaced_with_its_cells_and_variables(lake: Path) -> None:
    task = make_task(lake, "datawise")
    replies = [
        GOAL.format("one") + CODE.format("x = 1"),
        "<end_step>",
        "<next_step>\n" + GOAL.format("two") + CODE.format("x = 2; wrong = True"),
        "<end_step>",
        "<replace_step>\n" + GOAL.format("other") + CODE.format("print(x, 'wrong' in globals())"),
        "<end_step>",
        DONE,
    ]
    run, said = act(task, replies)
    after = said.asked[5][-1]["content"]
    assert "Output:\n1 False" in after
    assert "two" not in after
    assert "The current goal is: other" in after
    assert run.stop == "done"


def test_bounds_of_the_loop_end_it(lake: Path) -> None:
    """A model that always says the same: 6 executions of a step at most, 8 messages of a repair,
    two failed repairs of a step, 15 plans and executions."""
    task = make_task(lake, "datawise")
    run, _ = act(task, [GOAL.format("x") + CODE.format("pass")])
    assert stages(run).count(("execute", "await")) == 12
    assert [s for s, _ in stages(run)].count("plan") == 2
    assert (len(stages(run)), run.stop, run.notes["ended"]) == (15, "done", "no_answer")
    run, _ = act(task, ["<debug_failure>\n" + CODE.format("1 / 0")], turns=60)
    kinds = [s for s, _ in stages(run)]
    assert kinds[:11] == ["begin", *["debug"] * datawise.REPAIRS, "filter", "execute"]
    assert run.stop in ("done", "turns")
    assert score_answer(task, run.answer()).outcome == 0.0


def test_cells_and_signals_of_a_message() -> None:
    text = "<end_step>\nwords\n```markdown\n<await>\n```\n```py\nprint('```')\n\nx\n``` \n```\ny"
    assert [(c.code, c.text) for c in cells_of(text)] == [
        (False, "<await>"),
        (True, "print('```')\n\nx"),
        (True, "y"),
    ]
    assert signal_of("execute", text) == "end_step"
    assert signal_of("execute", "[AWAIT] go on") == "await"
    assert signal_of("plan", "nothing") == "replace_step"
    assert [(c.code, c.text) for c in cells_of("<fulfilled> It is done.")] == [
        (False, "It is done.")
    ]
    assert cells_of("<end_step>\n") == []


@given(st.text(alphabet="`<>\n pyawit[]"), st.sampled_from(list(SIGNALS)))
def test_any_text_is_read(text: str, stage: Stage) -> None:
    assert signal_of(stage, text) in SIGNALS[stage]
    kept = [line for _, body in parts_of(text) for line in body.split("\n") if line.strip()]
    assert set(kept) <= set(text.splitlines())
    cells_of(text)
