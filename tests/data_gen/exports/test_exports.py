"""What each form takes and refuses, what a scorer takes along, and exported Harbor directories: the
same bytes, no gold in sight, the scores of `assay score`."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from db_tools import write_db
from places import ROOT, tables
from sql_tasks import sql_tasks
from travelling import (
    OWN,
    OWN_TOOLS,
    demo_tasks,
    exported,
    own_tasks,
    tasks_file,
    texts,
    tool_tasks,
)

from assay.family import BUILT_IN, load_family, score_answer
from assay.task import Answer, Task, TaskError
from data_gen.exports.cli import FORMS, Settings, carry, directory, directory_name
from data_gen.exports.cli import main as export
from data_gen.exports.episodes import OFFER_TOOLS, Episodes

USER = [{"role": "user", "content": "how many plums?"}]
DB_TOOLS = str(ROOT / "tests" / "support" / "db_tools.py")


def lake(answer: Any, kind: str = "numeric_exact", **more: Any) -> Task:
    gold = {"answer_type": kind, "answer": answer, "subtasks": []}
    task = Task(f"lake-{kind}", "answer", "lake", "train", USER, gold)
    return replace(task, **more)


LAKES = [lake(7), lake(0.25, "numeric_approximate"), lake("Bo", "string_exact")]
PLUMS = lake("8", id="plums", tools=("query",))


def run(form: str, folder: Path, tasks: list[Task], *words: str) -> tuple[int, dict[str, str]]:
    """(exit status, why by id) of an export into `folder/out`."""
    path, out = tasks_file(folder, tasks), folder / "out"
    status = export([form, "--tasks", str(path), "--out", str(out), *words])
    rows = map(json.loads, (out / "refused.jsonl").read_text(encoding="utf-8").splitlines())
    return status, {row["id"]: row["why"] for row in rows}


# --- forms and tools


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
    assert all(f"task {name}: needs the tools tables, query" in said for name, said in why.items())


def test_tools_that_tasks_do_not_name_are_offered_too(tmp_path: Path) -> None:
    bare = [replace(task, tools=()) for task in tool_tasks(2)]
    assert run("trl", tmp_path, bare) == (0, {})
    assert list(Episodes(tmp_path / "out").all_tools()) == ["tables", "query"]


def test_files_that_tools_read_travel(tmp_path: Path) -> None:
    home, out = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    write_db(home / "stock.db")
    tasks = [replace(PLUMS, id=name, files={"db": "stock.db"}) for name in ("a", "b")]
    assert run("inspect", home, tasks, "--env", f"{DB_TOOLS}:TOOLS") == (0, {})
    shutil.move(home / "out", out)
    shutil.rmtree(home)
    assert [p.name for p in out.rglob("*.db")] == ["stock.db"]  # one copy for both

    async def played() -> tuple[str, float | None]:
        episode = await Episodes(out).start("b")
        sql = "SELECT count FROM stock WHERE name = 'plum'"
        told = await episode.call("query", {"sql": sql})
        return told, (await episode.score('{"answer": 8}')).outcome

    assert asyncio.run(played()) == ('[["8"]]', 1.0)


@pytest.mark.parametrize("form", FORMS)
def test_files_that_no_tool_reads_go_to_harbor_alone(tmp_path: Path, form: str) -> None:
    (tmp_path / "lake").mkdir()
    bare = lake(8, files={"lake": "lake"})
    tasks = [replace(bare, id=name, tools=(name,)) for name in ("lake_agent", "ds_guru_few_shot")]
    status, why = run(form, tmp_path, [*tasks, replace(bare, id="bare"), *demo_tasks(6)[:1]])
    assert status == 3 and set(why) == {"bare", "lake_agent", "ds_guru_few_shot"}
    assert all("export it to harbor" in said for said in why.values())


# --- what a scorer takes along


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_built_in_scorers_take_no_builder_and_no_engine_along(name: str) -> None:
    load = carry(BUILT_IN[name])
    assert not [m for m in load.modules if m.partition(".")[0] not in ("rewards", "assay")]
    assert not [m for m in load.modules if m.startswith("rewards.gold") or m.endswith(".twin")]
    assert all("==" in package for package in load.packages)


def family(folder: Path, name: str, imports: str) -> str:
    (folder / f"{name}.py").write_text(
        f"from assay.family import Family, Score\n{imports}\n"
        "def score(task, answer):\n    return Score.of(answer.text == 'x')\n\n"
        f"FAMILY = Family('own_{name}', score, gold=lambda task: 'x')\n"
    )
    return str(folder / f"{name}.py")


def test_a_family_of_one_s_own_travels_with_what_it_imports(tmp_path: Path) -> None:
    import numpy

    load = carry(load_family(OWN))
    assert load.packages == () and load.family == "own_family:FAMILY"
    assert load.modules["own_family"][0] == Path(OWN).read_bytes()
    assert {"assay.family", "assay.task"} <= set(load.modules)
    pinned = carry(load_family(family(tmp_path, "pinned", "import numpy as np")))
    assert pinned.packages == (f"numpy=={numpy.__version__}",)
    big = load_family(family(tmp_path, "big", "if False:\n    import torch"))
    with pytest.raises(TaskError, match="too big to travel"):
        carry(big)


# --- Harbor directories

TRUTH = "row_id,kind\n1,a\n2,b\n3,a\n4,b\n"
GOLD = {"task_type": "class-MM", "truth_csv": TRUTH, "key_columns": ["row_id"], "targets": ["kind"]}
TABLE = Task("t", "table", "class-MM", "train", USER, GOLD)
SAID, FILES = (tables("exports")[name] for name in ("said", "files"))
RUN = """
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("score", sys.argv[1] + "/tests/score.py")
score = importlib.util.module_from_spec(spec)
spec.loader.exec_module(score)
for folder in sys.argv[2:]:
    score.main([folder, folder + "/out"])
used = [m for n, m in sys.modules.items() if n.partition(".")[0] in ("assay", "rewards")]
print(json.dumps(sorted({str(m.__file__) for m in used})))
"""


def made(task: Task, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return exported("harbor", folder, [task]) / directory_name(task)


def scored(task: Task, answers: list[Answer], at: Path) -> list[dict[str, Any]]:
    """What the exported scorer says of each answer, in a Python that knows no Assay."""
    task_folder, folders = made(task, at), list[str]()
    poison = ("json.py", "rewards.py", "vendor/json.py", "vendor/rewards/extra.py")
    for name in poison if task.family == "refinement" else ():
        # an agent may write below /tests before the tests come
        (task_folder / "tests" / name).write_text("raise SystemExit('mine')")
    for i, answer in enumerate(answers):
        folder = at / str(i)
        folder.mkdir()
        files = {} if task is TABLE else {"answer.txt": answer.text.encode()}
        for name, data in (files | answer.files).items():
            (folder / name).write_bytes(data)
        folders.append(str(folder))
    program = [sys.executable, "-I", "-c", RUN, str(task_folder), *folders]
    done = subprocess.run(program, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stderr
    used = json.loads(done.stdout.strip().splitlines()[-1])
    assert used and all(path.startswith(str(task_folder)) for path in used)
    return [json.loads((Path(f) / "out" / "details.json").read_text()) for f in folders]


def test_the_scorer_says_what_assay_says(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    sql = sql_tasks()[0]
    query = str(sql.gold["sql"])
    cases = [(sql, [query, f"```sql\n{query}\n```", "```sql\nSELECT 1\n```", "```sql\nSELEC\n```"])]
    cases += [(task, SAID) for task in LAKES]
    for tasks in (demo_tasks(12)[:2], own_tasks(2)):
        cases += [(task, texts(task, tasks[i - 1])) for i, task in enumerate(tasks)]
    answers = [(task, [Answer(text) for text in said]) for task, said in cases]
    files = [Answer(files={"prediction.csv": data}) for data in FILES]
    for i, (task, given) in enumerate([*answers, (TABLE, [*files, Answer(files={})])]):
        found = scored(task, given, tmp_path / str(i))
        assert found == [score_answer(task, answer).to_json() for answer in given]
        assert 0 < sum(row["outcome"] for row in found) < len(found)


def test_what_an_agent_leaves_is_no_reward(tmp_path: Path) -> None:
    """A link to gold is no answer; a reward that lay there before goes; a broken scorer leaves
    none."""
    folder, app, out = made(demo_tasks(6)[0], tmp_path), tmp_path / "app", tmp_path / "out"
    app.mkdir()
    (app / "answer.txt").symlink_to(folder / "solution" / "gold" / "answer.txt")
    program = [sys.executable, "-I", str(folder / "tests" / "score.py"), str(app), str(out)]
    assert subprocess.run(program, check=False, capture_output=True).returncode == 0
    assert json.loads((out / "reward.json").read_text())["reward"] == 0.0
    (out / "reward.json").write_text('{"reward": 1.0}')
    (out / "reward.txt").write_text("1")
    (folder / "tests" / "vendor" / "rewards" / "parse.py").write_text("raise OSError('gone')")
    done = subprocess.run(program, check=False, capture_output=True, text=True)
    assert done.returncode == 1 and "OSError" in done.stderr
    assert list(out.iterdir()) == []


def agent_sees(task: Task) -> dict[str, bytes]:
    hidden = ("tests/", "solution/", "task.toml")
    files = {name: data for name, data, _ in directory(task, Path(), Settings())}
    return {name: data for name, data in files.items() if not name.startswith(hidden)}


def test_what_an_agent_sees_does_not_depend_on_gold() -> None:
    task = demo_tasks(6)[0]
    other = {"status": "KEEP", "text": "something else", "input_text": task.gold["input_text"]}
    assert agent_sees(replace(task, gold=other)) == agent_sees(task)
    assert agent_sees(lake(8)) == agent_sees(lake(7))
    assert set(agent_sees(task)) == {"instruction.md", "environment/Dockerfile"}


def test_the_same_tasks_give_the_same_bytes(tmp_path: Path) -> None:
    trees: list[dict[str, tuple[bytes, int]]] = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        out = exported("harbor", tmp_path / name, [*demo_tasks(6), *own_tasks(4), *LAKES])
        files = [p for p in sorted(out.rglob("*")) if p.is_file()]
        trees.append({str(p.relative_to(out)): (p.read_bytes(), p.stat().st_mode) for p in files})
    assert trees[0] == trees[1] and len(trees[0]) > 60


def test_files_and_facts_lie_where_prompts_and_harbor_look(tmp_path: Path) -> None:
    (tmp_path / "one" / "deep").mkdir(parents=True)
    (tmp_path / "one" / "deep" / "x.csv").write_text("a\n1\n")
    odd = lake(7, id='a "b"\n\\c\x7f', meta={"licence": "MIT"}, files={"lake": "one"})
    folder = made(replace(odd, tools=("lake_agent",)), tmp_path)
    assert (folder / "environment/files/data/deep/x.csv").read_text() == "a\n1\n"
    dockerfile = (folder / "environment/Dockerfile").read_text()
    assert dockerfile.splitlines()[-1] == "COPY files/ /app/" and "pip" not in dockerfile
    row = tomllib.loads((folder / "task.toml").read_text(encoding="utf-8"))
    assert row["metadata"]["assay_id"] == odd.id and row["metadata"]["licence"] == "MIT"
    assert row["environment"]["network_mode"] == "no-network"


def test_a_task_that_cannot_go_is_listed_and_the_others_go(tmp_path: Path) -> None:
    lost = lake(7, id="lost", files={"lake": "nowhere"})
    status, why = run("harbor", tmp_path, [lost, *LAKES[1:]])
    assert status == 3 and set(why) == {"lost"} and "nowhere" in why["lost"]
    there = {p.name for p in (tmp_path / "out").iterdir() if p.is_dir()}
    assert there == set(map(directory_name, LAKES[1:]))
