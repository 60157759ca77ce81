"""DARE's code tool in the real sandbox: fresh folders, files by name, refusals in words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness import WarmFactory

from assay.task import Task
from rollouts.environment import ModelTurn
from rollouts.environments import ToolSettings
from rollouts.event_loop import asyncio_run
from rollouts.python_tool import NAME
from rollouts.sandbox import launcher
from rollouts.tool_calls import ToolCall

ASKED = [{"role": "user", "content": "q"}]
FILES = {"data.csv": "in/data.csv"}
TASK = Task("t", "table", "class-IF", "train", ASKED, {}, tools=(NAME,), files=FILES)


def call(code: str, load: list[str] | None = None, save: list[str] | None = None) -> ToolCall:
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


def answers(replies: Any) -> list[dict[str, Any]]:
    return [json.loads(m["content"]) for r in replies for m in r.messages]


def test_files_travel_by_name_and_nothing_else_does(tmp_path: Path) -> None:
    first = (
        "print(open('data.csv').read()); open('x.csv','w').write('7'); y = 1; print('end', end='')"
    )
    _, replies, closing = converse(
        tmp_path,
        [
            [call(first, ["data.csv"], ["x.csv", "no.csv"])],
            [call("print(open('x.csv').read())\nprint(y)", ["x.csv"])],
            [
                call("open('data.csv')"),
                call("open('prediction.csv','w').write('p'); 1/0", [], ["prediction.csv"]),
            ],
        ],
    )
    one, two, three, four = answers(replies)
    assert one == {
        "status": "Finished",
        "return_code": 0,
        "stderr": "",
        "stdout": "a\n1\n\nend\nFile x.csv saved successfully.\n",
    }
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
        (call("1", ["nope.csv"]), "'nope.csv' is not in the work folder", "bad_files"),
        (call("1", ["../data.csv"]), "not a bare file name", "bad_files"),
        (call("1", [], ["a/b"]), "not a bare file name", "bad_files"),
        (call("1", ["\udc80"]), "lone surrogate", "bad_files"),
        (call("1", [], ["main.py"]), "cannot be used", "bad_files"),
    ]
    _, (reply,), closing = converse(tmp_path, [[c for c, _, _ in bad]])
    for (_, words, kind), record, answer in zip(bad, reply.records, answers([reply]), strict=True):
        assert words in answer["Error"] and record["kind"] == kind and record["seconds"] == 0
    assert not closing.files and closing.notes["last_call"] == "bad_files"


def test_time_is_up_but_saved_files_count(tmp_path: Path) -> None:
    code = "import time\nopen('prediction.csv','w').write('early')\nprint(1, flush=True)\n"
    code += "time.sleep(9)"
    _, (reply,), closing = converse(
        tmp_path, [[call(code, [], ["prediction.csv"])]], run_s=0.7, brief=True
    )
    (answer,) = answers([reply])
    assert answer["status"] == "TimeLimitExceeded" and answer["stdout"].startswith("1\n")
    assert closing.files == {"prediction.csv": b"early"} and dict(reply.errors) == {"timeout": 1}


def test_all_saved_files_together_have_a_bound(tmp_path: Path) -> None:
    """Turn after turn they stay in the trainer's memory, beside those of every other episode."""
    large = "import os\nopen({name!r}, 'wb').write(bytes(700_000))"
    calls = [
        call(large.format(name="a"), [], ["a"]),
        call(large.format(name="b"), [], ["b"]),
        call("print(open('data.csv').read())", ["data.csv"], ["*"]),
        call("open('a', 'w').write('short')", [], ["a"]),
        call(large.format(name="prediction.csv"), [], ["prediction.csv"]),
        call("import os; print(os.path.getsize('a'))", ["a", "b"]),
    ]
    _, replies, closing = converse(tmp_path, [[one] for one in calls], folder_mb=1)
    first, second, third, fourth, fifth, sixth = answers(replies)
    assert first["stdout"] == "File a saved successfully.\n"
    problem = "all saved files together would exceed 1 MB"
    assert second["stdout"] == f"File b not saved: {problem}.\n" and second["return_code"] == 0
    assert third["stdout"] == "a\n1\n\n"
    assert fourth["stdout"] == "File a saved successfully.\n"
    assert fifth["stdout"] == "File prediction.csv saved successfully.\n"
    assert "'b' is not in the work folder" in sixth["Error"]
    assert closing.files == {"prediction.csv": bytes(700_000)}
