"""What each form takes and refuses: tools of one's own, built-in tools, files."""

from __future__ import annotations

import asyncio
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from db_tools import write_db
from travelling import OWN_TOOLS, demo_tasks, tasks_file, tool_tasks

from assay.task import Task, TaskError
from data_gen.exports.cli import FORMS, OFFER_TOOLS
from data_gen.exports.cli import main as export
from data_gen.exports.episodes import Episodes

GOLD = {"answer": "8", "answer_type": "numeric_exact"}
USER = [{"role": "user", "content": "how many plums?"}]
PLUMS = Task("plums", "answer", "own", "train", USER, GOLD, tools=("query",))
DB_TOOLS = str(Path(__file__).resolve().parents[2] / "support" / "db_tools.py")


def run(form: str, folder: Path, tasks: list[Task], *words: str) -> tuple[int, dict[str, str]]:
    """(exit status, why by id) of an export into `folder/out`."""
    path, out = tasks_file(folder, tasks), folder / "out"
    status = export([form, "--tasks", str(path), "--out", str(out), *words])
    rows = map(json.loads, (out / "refused.jsonl").read_text(encoding="utf-8").splitlines())
    return status, {row["id"]: row["why"] for row in rows}


@pytest.mark.parametrize("form", ["harbor", *FORMS])
def test_tasks_with_own_tools_are_offered_them_or_refused_by_name(
    tmp_path: Path, form: str
) -> None:
    tasks = [*tool_tasks(2), *demo_tasks(6)[:1]]
    status, why = run(form, tmp_path, tasks, "--family", OWN_TOOLS)
    if form in OFFER_TOOLS:
        assert (status, why) == (0, {})
        return
    assert status == 3 and set(why) == {task.id for task in tasks[:2]}
    for name, said in why.items():
        assert f"task {name}: needs the tools tables, query" in said
        assert "export it to trl, inspect, gym" in said


@pytest.mark.parametrize("form", ["harbor", "verifiers"])
def test_nothing_is_written_where_none_is_left(tmp_path: Path, form: str) -> None:
    with pytest.raises(TaskError, match="needs the tools tables, query"):
        run(form, tmp_path, tool_tasks(2))
    assert not any((tmp_path / "out").glob("*"))


def test_tools_that_tasks_do_not_name_are_offered_too(tmp_path: Path) -> None:
    bare = [replace(task, tools=()) for task in tool_tasks(2)]
    assert run("trl", tmp_path, bare) == (0, {})
    episodes = Episodes(tmp_path / "out")
    assert list(episodes.all_tools()) == ["tables", "query"]


def test_files_that_tools_read_travel(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    write_db(home / "stock.db")
    tasks = [replace(PLUMS, id=name, files={"db": "stock.db"}) for name in ("a", "b")]
    assert run("inspect", home, tasks, "--env", f"{DB_TOOLS}:TOOLS") == (0, {})
    out = tmp_path / "elsewhere"
    shutil.move(home / "out", out)
    shutil.rmtree(home)
    assert [p.name for p in out.rglob("*.db")] == ["stock.db"]  # one copy for both

    async def played() -> tuple[str, float | None]:
        episode = await Episodes(out).start("b")
        sql = "SELECT count FROM stock WHERE name = 'plum'"
        told = await episode.call("query", {"sql": sql})
        return told, (await episode.score('{"answer": 8}')).outcome

    told, outcome = asyncio.run(played())
    assert (told, outcome) == ('[["8"]]', 1.0)


@pytest.mark.parametrize("form", list(FORMS))
def test_files_that_no_tool_reads_are_refused(tmp_path: Path, form: str) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "a.csv").write_text("x\n1\n")
    lake = replace(PLUMS, tools=(), files={"lake": "lake"})
    built = [replace(lake, id=name, tools=(name,)) for name in ("lake_agent", "ds_guru_few_shot")]
    tasks = [replace(lake, id="bare"), *built, *demo_tasks(6)[:1]]
    status, why = run(form, tmp_path, tasks)
    assert status == 3 and set(why) == {"bare", "lake_agent", "ds_guru_few_shot"}
    assert f"its files (lake) cannot be read in {form}" in why["bare"]
    for name in ("lake_agent", "ds_guru_few_shot"):
        assert f"its tool {name} is built into Assay's own loop" in why[name]
    assert all("export it to harbor" in said for said in why.values())


def test_harbor_takes_lakes_with_built_in_tools(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "a.csv").write_text("x\n1\n")
    task = replace(PLUMS, tools=("lake_agent",), files={"lake": "lake"})
    assert run("harbor", tmp_path, [task]) == (0, {})
    (found,) = (tmp_path / "out").rglob("files/data/a.csv")
    assert found.read_text() == "x\n1\n"


def test_an_environment_that_answers_messages_is_refused(tmp_path: Path) -> None:
    tasks = [PLUMS, *demo_tasks(6)[:1]]
    with pytest.raises(TaskError, match=r"Echo answers whole messages.*use assay rollout"):
        run("inspect", tmp_path, tasks, "--env", f"{DB_TOOLS}:Echo")


@pytest.mark.parametrize(("form", "name"), [("trl", "hand_in"), ("gym", "verify")])
def test_names_that_a_form_uses_itself_are_refused(tmp_path: Path, form: str, name: str) -> None:
    file = tmp_path / "named.py"
    file.write_text(
        f'from assay import tool\n\n@tool\ndef {name}(x: str) -> str:\n    """Say it."""\n'
        f"    return x\n\nTOOLS = [{name}]\n"
    )
    tasks = [replace(PLUMS, tools=(name,))]
    with pytest.raises(TaskError, match=f"{form} takes no tool named '{name}'"):
        run(form, tmp_path, tasks, "--env", str(file))
    assert run("inspect", tmp_path, tasks, "--env", str(file)) == (0, {})


def test_gold_in_files_of_own_tools_is_taken_and_scored(tmp_path: Path) -> None:
    file = tmp_path / "notes.py"
    file.write_text(NOTES)
    tasks = [Task("n", "notes", "", "train", USER, {"note": "8"}, ("write",))]
    words = ["--family", str(file)]
    for form in OFFER_TOOLS:
        assert run(form, tmp_path, tasks, *words) == (0, {})

    async def played(text: str) -> float | None:
        episode = await Episodes(tmp_path / "out").start("n")
        assert await episode.call("write", json.dumps({"text": text})) == "done"
        assert await episode.call("write", {"text": text}) == "error: the episode is over"
        return (await episode.score("it is written")).outcome

    assert [asyncio.run(played(text)) for text in ("8", "9")] == [1.0, 0.0]


NOTES = '''
from assay import Context, Family, Score, Task, tool
from assay.task import Answer


@tool
def write(ctx: Context, text: str) -> None:
    """Write the note."""
    ctx.files["note.txt"] = text
    ctx.finish()


def score(task: Task, answer: Answer) -> Score:
    return Score.of(answer.files.get("note.txt", b"").decode() == task.gold["note"])


def gold(task: Task) -> Answer:
    return Answer(files={"note.txt": task.gold["note"].encode()})


FAMILY = Family("notes", score, gold, environment=[write])
'''
