"""Tools of one's own as environments: they work together, fail alone, and leave files to score."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from asking import chat_rollout
from db_tools import FAILING, TOOLS, Echo, double, hang, query, tables, write_db
from harness import WarmFactory

from assay.task import Task, TaskError
from configs.machine import ToolsConfig
from rollouts.conversation import ChatReply
from rollouts.environments import TOOL_CALLS, EnvironmentFactory, tool_settings
from rollouts.event_loop import asyncio_run
from rollouts.tool_calls import ToolCall
from rollouts.tools import tool
from rollouts.trajectory import Sampling, Trajectory

GOLD = {"answer": "8", "answer_type": "numeric_exact"}


def task_of(folder: Path, *tools: str) -> Task:
    if not (folder / "stock.db").exists():
        write_db(folder / "stock.db")
    prompt = [{"role": "user", "content": "how many plums?"}]
    return Task("t", "answer", "own", "train", prompt, GOLD, tools=tools, files={"db": "stock.db"})


class Says:
    """A chat engine that makes these calls, one message each, and then stops."""

    def __init__(self, *messages: list[ToolCall]) -> None:
        self.messages, self.seen = messages, []

    async def chat(self, messages: Any, tools: Any, sampling: Sampling, seed: int) -> ChatReply:
        self.seen = [t["function"]["name"] for t in tools]
        turn = sum(m["role"] == "assistant" for m in messages)
        calls = list(self.messages[turn]) if turn < len(self.messages) else []
        return ChatReply("" if calls else "8", calls, "eos")


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(name, arguments, id=f"c-{name}")


def play(
    folder: Path, env: Any, tools: tuple[str, ...], *said: list[ToolCall], run_s: float = 200.0
) -> tuple[Trajectory, Says]:
    shop = WarmFactory(folder, tool_settings(ToolsConfig(run_s=run_s)), env=env)
    task, engine = shop.equip(task_of(folder, *tools)), Says(*said)

    groups = asyncio_run(chat_rollout([task], engine, Sampling(), 1, 0, maker=shop.maker))
    return groups[0][0], engine


def answers(trajectory: Trajectory) -> list[tuple[str, str]]:
    return [(row["kind"], row["answer"]) for row in trajectory.tool_calls]


def test_two_tools_over_a_database_work_together_and_leave_a_file(tmp_path: Path) -> None:
    select = "select count from stock where name = 'plum'"
    found, engine = play(
        tmp_path,
        TOOLS,
        ("tables", "query", "answer"),
        [call("tables"), call("query", sql=select, limit="1")],
        [call("answer", value=8), call("tables")],
    )
    assert engine.seen == ["tables", "query", "answer"]
    assert answers(found) == [("ok", '["stock"]'), ("ok", '[["8"]]'), ("ok", "received")]
    assert (found.stop, found.failure, dict(found.errors)) == ("done", None, {})
    assert found.answer().files["answer.txt"] == b"8"
    kept = json.loads(found.files[TOOL_CALLS])
    assert [row["name"] for row in kept] == ["tables", "query", "answer"]


def test_a_task_that_names_no_tools_gets_all_of_the_list(tmp_path: Path) -> None:
    _, engine = play(tmp_path, TOOLS, ())
    assert engine.seen == ["tables", "query", "answer"]
    _, engine = play(tmp_path, tables, ("tables",))
    assert engine.seen == ["tables"]


def test_what_does_not_fit_is_an_answer_to_the_model(tmp_path: Path) -> None:
    found, _ = play(
        tmp_path,
        TOOLS,
        ("query",),
        [
            call("query"),
            call("query", sql=["x"]),
            call("query", sql="x", limit=2.5),
            call("query", sql="x", more=1),
            call("tables"),
            ToolCall("", error="the tool call is not valid JSON"),
        ],
    )
    assert [text for _, text in answers(found)] == [
        "error: argument 'sql' is missing",
        "error: argument 'sql' must be text; got [\"x\"]",
        "error: argument 'limit' must be a whole number; got 2.5",
        "error: there is no argument 'more'; the arguments are sql, limit",
        "error: there is no tool 'tables'; use query",
        "error: the tool call is not valid JSON",
    ]
    assert dict(found.errors) == {"bad_arguments": 4, "unknown_tool": 1, "bad_call": 1}
    assert found.failure is None and found.stop == "eos"


@pytest.mark.parametrize(
    "error",
    [SystemExit(3), TimeoutError("mine"), FileNotFoundError("x"), StopIteration("x"), TaskError()],
)
def test_whatever_a_tool_raises_ends_nothing(tmp_path: Path, error: BaseException) -> None:
    @tool
    def plain() -> str:
        """Fail."""
        raise error

    @tool
    async def waiting() -> str:
        """Fail."""
        raise error

    both = [call("plain"), call("waiting")]
    found, _ = play(tmp_path, [plain, waiting], ("plain", "waiting"), both)
    assert [kind for kind, _ in answers(found)] == ["tool_error"] * 2
    assert "Traceback" in found.tool_calls[0]["bug"] and found.errors == {"tool_error": 2}
    assert (found.failure, found.stop) == (None, "eos")


def test_a_tool_that_hangs_ends_at_its_deadline(tmp_path: Path) -> None:
    found, _ = play(
        tmp_path,
        FAILING,
        ("hang", "wait", "tables"),
        [call("hang"), call("hang", how="loop"), call("wait"), call("tables")],
        run_s=0.3,
    )
    kinds = [kind for kind, _ in answers(found)]
    assert kinds == ["timeout", "timeout", "timeout", "ok"]
    assert "did not end within 0.3 s" in answers(found)[0][1]
    assert (found.failure, found.errors["timeout"]) == (None, 3)


def test_the_budget_of_seconds_holds_within_a_message(tmp_path: Path) -> None:
    from rollouts.environment import Budget

    shop = EnvironmentFactory(tmp_path, tool_settings(ToolsConfig(run_s=60, workers=1)), env=hang)
    step = chat_rollout(
        [task_of(tmp_path, "hang")],
        Says([call("hang"), call("hang"), call("hang")]),
        Sampling(),
        1,
        0,
        maker=shop.maker,
        budget=Budget(seconds=0.3),
    )
    ((found,),) = asyncio_run(step)
    assert [kind for kind, _ in answers(found)] == ["timeout", "time_up", "time_up"]
    assert found.stop == "time"


def test_a_tool_runs_code_in_the_sandbox(tmp_path: Path) -> None:
    found, _ = play(tmp_path, double, ("double",), [call("double", number="21")])
    assert answers(found) == [("ok", "42")]
    assert found.notes["sandbox"] in ("full", "confined")


def test_own_tools_stand_beside_the_code_tool_and_not_beside_a_dialogue(tmp_path: Path) -> None:
    run = {"code": "print(6 * 7)", "files_to_load": [], "files_to_save": []}
    names = ("python_executor", "tables")
    calls = [call("tables"), call("python_executor", **run), call("nothing")]
    found, engine = play(tmp_path, TOOLS, names, calls)
    assert engine.seen == ["python_executor", "tables"]
    assert "42" in found.tool_calls[1]["answer"] and found.tool_calls[0]["answer"] == '["stock"]'
    assert dict(found.errors) == {"unknown_tool": 1}
    for tools, why in (
        (("ds_guru_one_shot", "tables"), "reads no tool calls, so tables cannot be offered"),
        (("python_executor", "lake_agent"), "do not work together"),
        (("tables", "nowhere"), "no environment has nowhere; there is tables, query, answer"),
    ):
        with pytest.raises(TaskError, match=why):
            play(tmp_path, TOOLS, tools)


def test_a_class_is_an_environment_of_its_own(tmp_path: Path) -> None:
    found, engine = play(tmp_path, Echo, ())
    assert (engine.seen, found.stop, found.files) == (["echo"], "done", {"said.txt": b"8"})


def test_specs_of_files_are_read_and_refused_in_one_sentence(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(
        "from rollouts.tools import tool\n"
        "@tool\ndef f(x: int) -> int:\n    'Add one.'\n    return x + 1\n"
        "def g(x: int) -> int:\n    return x\n"
        "TOOLS = [f]\nPLAIN = [g]\nNUMBER = 7\nEMPTY = []\nBOTH = [f, lambda task: f]\n"
    )
    found, _ = play(tmp_path, str(own), ("f",), [call("f", x=1)])
    assert answers(found) == [("ok", "2")]
    for name, why in (
        ("PLAIN", "g is a plain function; put @tool above it"),
        ("NUMBER", "int is no environment"),
        ("EMPTY", "holds no tools"),
        ("BOTH", "stands alone"),
        ("GONE", "it has no GONE"),
    ):
        with pytest.raises(TaskError, match=why):
            EnvironmentFactory(tmp_path, env=f"{own}:{name}")
    with pytest.raises(TaskError, match=r"--env .*nowhere\.py: no such file"):
        EnvironmentFactory(tmp_path, env=str(tmp_path / "nowhere.py"))
    bad = tmp_path / "bad.py"
    bad.write_text("from rollouts.tools import tool\n@tool\ndef f(x: int) -> int:\n    return x\n")
    with pytest.raises(TaskError, match=r"tool f \(.*bad.py line \d\): it has no docstring"):
        EnvironmentFactory(tmp_path, env=str(bad))


def test_a_family_brings_its_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from assay import family as families

    own = replace(families.BUILT_IN["answer"], name="own", environment=[query])
    monkeypatch.setitem(families._added, "own", own)
    task = replace(task_of(tmp_path), family="own")
    assert EnvironmentFactory(tmp_path).equip(task).tools == ("query",)
    assert EnvironmentFactory(tmp_path, env=tables).equip(task).tools == ("tables",)
