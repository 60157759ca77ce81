"""examples/own_tools.py, copied outside the checkout: its tools answer, and models train on it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from assay_command import assay, rows, with_own_names
from places import ROOT

pytest.importorskip("torch")

from assay.family import use_families
from assay.task import Task, TaskError
from rollouts.event_loop import asyncio_run
from rollouts.prompts import ChatTokenizer
from rollouts.scripted_agents import OwnSolver
from rollouts.trajectory import Sampling
from train.examples import example_of

EXAMPLE = ROOT / "examples" / "own_tools.py"
FAMILY = ["--family", "own_tools.py"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the family's file and its tasks."""
    folder = tmp_path_factory.mktemp("shop")
    shutil.copy(EXAMPLE, folder / "own_tools.py")
    with_own_names(folder)
    assay(folder, "tasks", "shop", *FAMILY, "--out", "T", "--seed", "0", "count=16")
    return folder


def test_the_example_is_short() -> None:
    assert len(EXAMPLE.read_text("utf-8").splitlines()) <= 50


def test_the_tools_answer_a_scripted_model(built: Path) -> None:
    """Both tools in one episode; the reply of the second holds the gold answer."""
    from asking import chat_rollout

    from assay.family import score_answer, use_families
    from assay.task import read_tasks
    from rollouts.conversation import ChatReply
    from rollouts.environments import EnvironmentFactory
    from rollouts.event_loop import asyncio_run
    from rollouts.tool_calls import ToolCall
    from rollouts.trajectory import Sampling

    class Asks:
        """Lists the tables, selects the figs, and replies with what it was told."""

        async def chat(self, messages: Any, tools: Any, sampling: Any, seed: int) -> ChatReply:
            told = [str(m["content"]) for m in messages if m["role"] == "tool"]
            if not told:
                return ChatReply("", [ToolCall("tables", {}, id="a")], "eos")
            if len(told) == 1:
                sql = "SELECT boxes FROM stock WHERE fruit = 'fig'"
                return ChatReply("", [ToolCall("query", {"sql": sql}, id="b")], "eos")
            return ChatReply(str(json.loads(told[1])[0][0]), [], "eos")

    use_families([str(built / "own_tools.py")])
    tasks = read_tasks(built / "T" / "heldout.jsonl")
    shop = EnvironmentFactory(built / "T")
    groups = asyncio_run(chat_rollout(tasks, Asks(), Sampling(), 1, 0, maker=shop.maker))
    scores = [
        score_answer(task, group[0].answer()) for task, group in zip(tasks, groups, strict=True)
    ]
    assert [score.outcome for score in scores] == [1.0] * len(tasks)


def test_the_solver_makes_rollouts_to_learn_from(built: Path, tiny_folder: Path) -> None:
    """Calls that were run for real, which the student then learns as its template spells them."""
    words = ["--tasks", "T/train.jsonl", "--solver", "own", "--out", "solved.jsonl"]
    assay(built, "rollout", *FAMILY, *words)
    found = rows(built / "solved.jsonl")
    assert len(found) == 8 and {row["outcome"] for row in found} == {1.0}
    assert {call["kind"] for row in found for call in row["tool_calls"]} == {"ok"}
    learned = example_of(found[0], "row 1", ChatTokenizer(tiny_folder), built)
    mask = learned.mask or [1] * len(learned.answer)
    ids = [i for i, m in zip(learned.answer, mask, strict=True) if m]
    text = ChatTokenizer(tiny_folder).raw(ids)
    assert (
        "SELECT boxes" in text and text.count("<tool_call>") == 1 and "<tool_response>" not in text
    )


@pytest.mark.parametrize(
    ("solver", "said"),
    [
        ("lambda task, told: 7", "returned 7; wanted"),
        ("lambda task, told: told[3]", "raised IndexError"),
        ("None", "has no `solver`"),
    ],
)
def test_a_solver_that_cannot_be_used_is_said(tmp_path: Path, solver: str, said: str) -> None:
    name = f"lost_{len(solver)}"
    code = f"from assay.family import Family, Score\nNAME = {name!r}\n"
    code += "FAMILY = Family(NAME, lambda task, answer: Score.of(True), lambda task: '', "
    (tmp_path / "lost.py").write_text(f"{code}solver={solver})\n")
    use_families([str(tmp_path / "lost.py")])
    task = Task("t", name, "", "train", [{"role": "user", "content": "?"}], {})
    with pytest.raises(TaskError, match=said):
        asyncio_run(OwnSolver([task]).chat(task.prompt, [], Sampling(), 0))
