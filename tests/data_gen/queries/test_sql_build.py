"""`assay tasks sql` from tables to tasks that every command takes."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from assay_command import here, rows
from sql_world import write_shop

pytest.importorskip("pandas")
pytest.importorskip("duckdb")

from assay.family import BUILT_IN, score_answer
from assay.task import Answer, Task, TaskError, read_tasks
from data_gen.queries import sql_build as build
from data_gen.queries.sql_build import LIKE, without_like
from data_gen.queries.sql_write import pieces
from data_gen.splits import SPLITS
from rewards.sql.data import Column, Database, Table, packed, unpacked
from rewards.sql.score import fenced

SQL = BUILT_IN["sql"]


def build_shop(top: Path, *words: str, seed: int = 0) -> Path:
    folder = top / f"shop{seed}"
    if not folder.is_dir():
        write_shop(folder, seed)
    out = top / "out"
    given = ["--tables", str(folder), "--out", str(out), "--count", "24", "--workers", "1"]
    assert build.main([*given, *words]) == 0
    return out


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = ("--heldout-share", "0", "--validation-share", "0", "--stated-licence", "CC0-1.0")
    return build_shop(tmp_path_factory.mktemp("sql"), *words)


@pytest.fixture(scope="module")
def tasks(out: Path) -> list[Task]:
    return read_tasks(out / "train.jsonl")


def test_tasks_carry_what_they_need(tasks: list[Task]) -> None:
    assert len(tasks) == 24 == len({t.id for t in tasks})
    assert len({t.meta["kind"] for t in tasks}) >= 10
    for task in tasks:
        assert task.meta["licences"] == ["CC0-1.0"] and task.meta["source"] == "shop0"
        asked = task.prompt[0]["content"]
        assert "CREATE TABLE" in asked and task.meta["question"] in asked and "```sql" in asked
        assert all(clause in asked for clause in task.meta["clauses"])
        assert str(task.gold["sql"]) not in asked and not task.files


def test_gold_is_paid_and_nothing_else(tasks: list[Task]) -> None:
    for task in tasks:
        assert score_answer(task, Answer(str(SQL.gold(task)))).reward == 1.0
        columns = [c.name for t in _tables(task) for c in t.columns]
        lists = [f"SELECT * FROM {t.name}" for t in _tables(task)]
        lists += [f"SELECT DISTINCT {c} FROM {t.name}" for t in _tables(task) for c in columns]
        for sql in [*lists, "SELECT 42", "SELECT NULL WHERE 0"]:
            assert score_answer(task, Answer(fenced(sql))).reward == 0.0, sql


def _tables(task: Task) -> tuple[Table, ...]:
    return unpacked(str(task.gold["database"])).tables


def test_the_same_bytes_for_any_number_of_workers(tmp_path: Path) -> None:
    write_shop(tmp_path / "shop3", 3)
    write_shop(tmp_path / "other", 4)
    made: list[dict[str, bytes]] = []
    for workers in ("1", "2"):
        out = tmp_path / f"out{workers}"
        given = ["--tables", str(tmp_path / "shop3"), str(tmp_path / "other"), "--out", str(out)]
        assert build.main([*given, "--count", "6", "--workers", workers]) == 0
        made.append({p.name: p.read_bytes() for p in sorted(out.glob("*.json*"))})
    assert made[0] == made[1] and {"train.jsonl", "certificate.json"} <= made[0].keys()


def test_tables_that_can_be_joined_stay_on_one_side(tmp_path: Path) -> None:
    for seed in range(4):
        write_shop(tmp_path / f"shop{seed}", seed)
    folders = [str(tmp_path / f"shop{seed}") for seed in range(4)]
    out = tmp_path / "out"
    shares = ["--heldout-share", "0.4", "--validation-share", "0.1", "--count", "12"]
    assert build.main(["--tables", *folders, "--out", str(out), *shares, "--workers", "1"]) == 0
    sides = {n: {t.meta["source"] for t in read_tasks(out / f"{n}.jsonl")} for n in SPLITS}
    assert sides["train"] and sides["heldout"] and not sides["train"] & sides["heldout"]
    proof = json.loads((out / "certificate.json").read_text())
    assert proof["ok"] and proof["shared"]["train and heldout"] == {"tables": 0}


def test_short_prompts(tmp_path: Path) -> None:
    out = build_shop(tmp_path, "--short", "--heldout-share", "0", seed=2)
    for task in read_tasks(out / "train.jsonl"):
        assert pieces(task.prompt[0]["content"]) <= 325 and task.meta["tables_asked"] == "1"
        assert all(len(t.columns) <= 8 for t in _tables(task))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--out", "x"], "no tables"),
        (["--out", "x", "--carried", "--rows", "3"], "--rows"),
        (["--out", "x", "--tables", "/nowhere"], "no such folder"),
    ],
)
def test_a_bad_request_is_said(words: list[str], why: str) -> None:
    with pytest.raises(TaskError, match=why):
        build.main(words)


def test_every_command_takes_the_tasks(out: Path, tasks: list[Task], tmp_path: Path) -> None:
    file = str(out / "train.jsonl")
    answers = tmp_path / "outputs.jsonl"
    lines = [json.dumps({"id": t.id, "output": SQL.gold(t)}) for t in tasks]
    answers.write_text("\n".join(lines) + "\n", encoding="utf-8")
    scored = here(tmp_path, "score", "--tasks", file, "outputs.jsonl").splitlines()
    assert [json.loads(line)["reward"] for line in scored] == [1.0] * len(tasks)
    here(tmp_path, "audit", "--tasks", file)
    here(tmp_path, "eval", "--tasks", file, "--model", "gold", "--out", "eval")
    assert all(row["outcome"] == 1.0 for row in rows(tmp_path / "eval" / "rows.jsonl"))
    here(tmp_path, "push", str(out), "--out", "set")
    here(tmp_path, "tasks", "check", file, "--against", file, status=1)


def test_a_table_like_a_held_out_one_is_in_no_other_split(tasks: list[Task]) -> None:
    """The same customers again, some rows fewer and under another name."""
    held = replace(next(t for t in tasks if t.meta["tables_asked"] == "1"), split="heldout")
    (table,) = _tables(held)
    fewer = Database((replace(table, name="again", rows=table.rows[: len(table.rows) * 3 // 4]),))
    kin = replace(held, id="kin", split="train", gold={**held.gold, "database": packed(fewer)})
    other = _numbers()
    own = replace(held, id="own", split="train", gold={**held.gold, "database": packed(other)})
    reasons: Counter[str] = Counter()
    assert [t.id for t in without_like([kin, own, held], reasons)] == [held.id, "own"]
    assert reasons[LIKE] == 1


def _numbers() -> Database:
    rng = Random(8)
    rows = tuple((f"w{i}", rng.gauss(0, 1), rng.gauss(5, 2)) for i in range(50))
    columns = (Column("word", "TEXT"), Column("a", "REAL"), Column("b", "REAL"))
    return Database((Table("numbers", columns, rows),))
