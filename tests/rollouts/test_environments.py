"""Tools of one's own as environments: they work together, fail alone, and leave files to score."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from asking import chat_rollout
from db_tools import FAILING, TOOLS, Echo, double, hang, query, tables, write_db
from harness import WarmFactory

from assay import family as families
from assay.task import Task, TaskError
from configs.machine import ToolsConfig
from rollouts.conversation import ChatReply
from rollouts.environment import Budget, ModelTurn
from rollouts.environments import TOOL_CALLS, EnvironmentFactory, ToolSettings, tool_settings
from rollouts.event_loop import asyncio_run
from rollouts.python_tool import NAME
from rollouts.sandbox import launcher
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
    folder: Path, env: Any, tools: tuple[str, ...], *said: list[ToolCall], **budget: float
) -> tuple[Trajectory, Says]:
    settings = tool_settings(ToolsConfig(run_s=budget.pop("run_s", 200.0)))
    shop = WarmFactory(folder, settings, env=env)
    task, engine, most = shop.equip(task_of(folder, *tools)), Says(*said), Budget(**budget)
    step = chat_rollout([task], engine, Sampling(), 1, 0, maker=shop.maker, budget=most)
    return asyncio_run(step)[0][0], engine


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


def test_a_task_that_names_no_tools_gets_all_of_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for env, names, seen in ((TOOLS, (), ["tables", "query", "answer"]), (tables, (), ["tables"])):
        assert play(tmp_path, env, names)[1].seen == seen
    own = replace(families.BUILT_IN["answer"], name="own", environment=[query])
    monkeypatch.setitem(families._added, "own", own)
    task = replace(task_of(tmp_path), family="own")  # a family brings its tools
    assert EnvironmentFactory(tmp_path).equip(task).tools == ("query",)
    assert EnvironmentFactory(tmp_path, env=tables).equip(task).tools == ("tables",)


def test_what_does_not_fit_is_an_answer_to_the_model(tmp_path: Path) -> None:
    bad = [call("query"), call("query", sql=["x"]), call("tables")]
    found, _ = play(tmp_path, TOOLS, ("query",), [*bad, ToolCall("", error="it is not valid JSON")])
    assert [text for _, text in answers(found)] == [
        "error: argument 'sql' is missing",
        "error: argument 'sql' must be text; got [\"x\"]",
        "error: there is no tool 'tables'; use query",
        "error: it is not valid JSON",
    ]
    assert dict(found.errors) == {"bad_arguments": 2, "unknown_tool": 1, "bad_call": 1}
    assert found.failure is None and found.stop == "eos"


RAISED = [SystemExit(3), TimeoutError("mine"), FileNotFoundError("x"), StopIteration(), TaskError()]


@pytest.mark.parametrize("error", RAISED)
def test_whatever_a_tool_raises_ends_nothing(tmp_path: Path, error: BaseException) -> None:
    @tool
    def plain() -> str:
        """Fail."""
        raise error

    @tool
    async def waiting() -> str:
        """Fail."""
        raise error

    found, _ = play(tmp_path, [plain, waiting], (), [call("plain"), call("waiting")])
    assert [kind for kind, _ in answers(found)] == ["tool_error"] * 2
    assert "Traceback" in found.tool_calls[0]["bug"] and found.errors == {"tool_error": 2}
    assert (found.failure, found.stop) == (None, "eos")


def test_a_tool_that_hangs_ends_at_its_deadline(tmp_path: Path) -> None:
    """Its own, or that of the episode's seconds."""
    hangs = [call("hang"), call("hang", how="loop"), call("wait"), call("tables")]
    found, _ = play(tmp_path, FAILING, (), hangs, run_s=0.3)
    assert [kind for kind, _ in answers(found)] == ["timeout", "timeout", "timeout", "ok"]
    assert "did not end within 0.3 s" in answers(found)[0][1]
    assert (found.failure, found.errors["timeout"]) == (None, 3)
    found, _ = play(tmp_path, hang, (), [call("hang")] * 3, run_s=60, seconds=0.3)
    assert [kind for kind, _ in answers(found)] == ["timeout", "time_up", "time_up"]
    assert found.stop == "time"


def test_own_tools_stand_beside_the_sandbox_and_not_beside_a_dialogue(tmp_path: Path) -> None:
    found, _ = play(tmp_path, double, (), [call("double", number="21")])
    assert answers(found) == [("ok", "42")] and found.notes["sandbox"] in ("full", "confined")
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
    head = "from rollouts.tools import tool\n@tool\ndef f(x: int) -> int:\n"
    rest = "    'Add one.'\n    return x + 1\nTOOLS = [f]\nPLAIN = [tool]\nNUMBER = 7\nEMPTY = []\n"
    own, bad = tmp_path / "own.py", tmp_path / "bad.py"
    own.write_text(f"{head}{rest}BOTH = [f, lambda task: f]\n")
    bad.write_text(f"{head}    return x\n")
    assert answers(play(tmp_path, str(own), ("f",), [call("f", x=1)])[0]) == [("ok", "2")]
    for spec, why in (
        (f"{own}:PLAIN", "tool is a plain function; put @tool above it"),
        (f"{own}:NUMBER", "int is no environment"),
        *((f"{own}:EMPTY", "holds no tools"), (f"{own}:BOTH", "stands alone")),
        (f"{own}:GONE", "it has no GONE"),
        (str(tmp_path / "nowhere.py"), r"--env .*nowhere\.py: no such file"),
        (str(bad), r"tool f \(.*bad.py line \d\): it has no docstring"),
    ):
        with pytest.raises(TaskError, match=why):
            EnvironmentFactory(tmp_path, env=spec)


# --- DARE's code tool in the real sandbox: fresh folders, files by name, refusals in words

ASKED = [{"role": "user", "content": "q"}]
FILES = {"data.csv": "in/data.csv"}
TASK = Task("t", "table", "class-IF", "train", ASKED, {}, tools=(NAME,), files=FILES)


def run(code: str, load: list[str] | None = None, save: list[str] | None = None) -> ToolCall:
    return ToolCall(NAME, {"code": code, "files_to_load": load or [], "files_to_save": save or []})


def converse(root: Path, turns: list[list[ToolCall]], **settings: Any) -> Any:
    (root / "in").mkdir()
    (root / "in" / "data.csv").write_text("a\n1\n")

    async def go() -> Any:
        shop = WarmFactory(root, ToolSettings(**settings))
        environment = shop.maker(TASK, 0, 3)
        opening = await environment.open()
        replies = [
            await environment.reply(ModelTurn("", calls, False, i, False))
            for i, calls in enumerate(turns)
        ]
        return opening, replies, await environment.close()

    return asyncio_run(go())


def told(replies: Any) -> list[dict[str, Any]]:
    return [json.loads(m["content"]) for r in replies for m in r.messages]


def test_files_travel_by_name_and_nothing_else_does(tmp_path: Path) -> None:
    first = "print(open('data.csv').read()); open('x.csv','w').write('7'); y = 1; print(0, end='')"
    last = "open('prediction.csv','w').write('p'); 1/0"
    _, replies, closing = converse(
        tmp_path,
        [
            [run(first, ["data.csv"], ["x.csv", "no.csv"])],
            [run("print(open('x.csv').read())\nprint(y)", ["x.csv"])],
            [run("open('data.csv')"), run(last, [], ["prediction.csv"])],
        ],
    )
    one, two, three, four = told(replies)
    said = {"stderr": "", "stdout": "a\n1\n\n0\nFile x.csv saved successfully.\n"}
    assert one == {"status": "Finished", "return_code": 0, **said}
    assert two["stdout"] == "7\n" and two["return_code"] == 1 and "NameError" in two["stderr"]
    assert "FileNotFoundError" in three["stderr"]
    assert "ZeroDivisionError" in four["stderr"] and "prediction.csv saved" in four["stdout"]
    assert closing.files == {"prediction.csv": b"p"} and closing.notes["last_call"] == "run_error"
    assert [dict(r.errors) for r in replies] == [{}, {"run_error": 1}, {"run_error": 2}]


def test_what_cannot_run_is_said_before_it_does(tmp_path: Path) -> None:
    assert not launcher.attempt(lambda: None) and "division" in launcher.attempt(lambda: 1 / 0)
    bad = [
        (ToolCall("", error="the tool call is not valid JSON"), "not valid JSON", "bad_call"),
        (ToolCall("bash", {}), "no tool 'bash'", "unknown_tool"),
        (ToolCall(NAME, {"code": "1"}), "'files_to_load' is missing", "bad_arguments"),
        (run("1", ["nope.csv"]), "'nope.csv' is not in the work folder", "bad_files"),
        (run("1", ["../data.csv"]), "not a bare file name", "bad_files"),
        (run("1", [], ["a/b"]), "not a bare file name", "bad_files"),
        (run("1", ["\udc80"]), "lone surrogate", "bad_files"),
        (run("1", [], ["main.py"]), "cannot be used", "bad_files"),
    ]
    _, (reply,), closing = converse(tmp_path, [[c for c, _, _ in bad]])
    for (_, words, kind), record, answer in zip(bad, reply.records, told([reply]), strict=True):
        assert words in answer["Error"] and record["kind"] == kind and record["seconds"] == 0
    assert not closing.files and closing.notes["last_call"] == "bad_files"


def test_time_and_the_bytes_of_saved_files_have_bounds(tmp_path: Path) -> None:
    """Turn after turn they stay in the trainer's memory, beside those of every other episode."""
    large = "import os\nopen({name!r}, 'wb').write(bytes(700_000))"
    slow = "import time\nopen('a','w').write('early')\nprint(1, flush=True)\ntime.sleep(9)"
    calls = [
        run(large.format(name="a"), [], ["a"]),
        run(large.format(name="b"), [], ["b"]),
        run("open('a', 'w').write('short')", [], ["a"]),
        run(large.format(name="prediction.csv"), [], ["prediction.csv"]),
        run("pass", ["a", "b"]),
    ]
    _, replies, closing = converse(tmp_path, [[one] for one in calls], folder_mb=1)
    first, second, third, fourth, fifth = told(replies)
    assert first["stdout"] == "File a saved successfully.\n"
    problem = "all saved files together would exceed 1 MB"
    assert second["stdout"] == f"File b not saved: {problem}.\n" and second["return_code"] == 0
    assert third["stdout"] == "File a saved successfully.\n"
    assert fourth["stdout"] == "File prediction.csv saved successfully.\n"
    assert "'b' is not in the work folder" in fifth["Error"]
    assert closing.files == {"prediction.csv": bytes(700_000)}
    (tmp_path / "late").mkdir()
    _, (reply,), closing = converse(tmp_path / "late", [[run(slow, [], ["a"])]], run_s=0.7)
    (answer,) = told([reply])
    assert answer["status"] == "TimeLimitExceeded" and answer["stdout"].startswith("1\n")
    assert dict(reply.errors) == {"timeout": 1} and closing.files == {}
