"""Gold scores 1; what is written down, listed or guessed is not paid."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
from places import tables
from sql_tasks import QUERIES, cars, sql_task, sql_tasks

from assay.family import BUILT_IN, score_answer
from assay.task import Answer, Task, TaskError
from rewards.sql.data import (
    Column,
    Database,
    Table,
    hidden_database,
    packed,
    quoted,
    read_tables,
    unpacked,
)
from rewards.sql.family import hard_coded
from rewards.sql.run import RUNNER, run
from rewards.sql.score import equal, fenced
from rewards.weights import SqlReward
from train.view.explain_sql import explain

TABLES = tables("sql")

SQL = BUILT_IN["sql"]


def scored(task: Task, sql: str, **weights: float) -> tuple[float | None, float | None, str]:
    score = score_answer(task, Answer(fenced(sql)), {"sql": SqlReward(**weights)})
    return score.outcome, score.reward, score.why


@pytest.mark.parametrize("name", QUERIES)
def test_gold_scores_one_and_its_rows_written_down_earn_nothing(name: str) -> None:
    task = sql_task(name)
    assert scored(task, QUERIES[name][0]) == (1.0, 1.0, "ok")
    score = score_answer(task, Answer(hard_coded(task)))
    assert (score.outcome, score.reward, score.why) == (1.0, 0.0, "only_these_values")


@pytest.mark.parametrize(("name", "sql", "outcome", "reward", "why"), TABLES["paid_queries"])
def test_queries_are_paid_for_what_they_do(
    name: str, sql: str, outcome: float, reward: float, why: str
) -> None:
    """Right by chance, on no hidden database, earns what any query that runs does."""
    found = scored(sql_task(name), sql, runs=0.02)
    assert found[:2] == (outcome, reward) and found[2].startswith(why)


def test_a_machine_that_starts_no_process_gives_no_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RUNNER, "_running", None)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    score = score_answer(sql_task("count", seed=77), Answer(fenced("SELECT 1")))
    assert (score.outcome, score.reward) == (None, None) and "does not start" in score.why


def test_gold_that_gives_other_rows_here_has_no_outcome() -> None:
    task = sql_task("count", result=[[1]])
    for answer in (Answer(str(SQL.gold(task))), Answer("nothing")):
        score = score_answer(task, answer)
        assert score.outcome is None and "other rows" in score.why
    assert score_answer(sql_task(sql="SELECT colour"), Answer("x")).outcome is None


@pytest.mark.parametrize(("gold", "field"), TABLES["gold_that_cannot_be_used_is_named"])
def test_gold_that_cannot_be_used_is_named(gold: dict[str, object], field: str) -> None:
    task = sql_task("count")
    with pytest.raises(TaskError, match=field):
        score_answer(replace(task, gold={**task.gold, **gold}), Answer(fenced("SELECT 1")))


def test_a_database_is_packed_and_read_back() -> None:
    data = cars()
    assert unpacked(packed(data)) == data and packed(data) == packed(unpacked(packed(data)))
    odd = Table("odd name", (Column("order", "BLOB"), Column('q"q', "TEXT")), ((b"\0", "ü"),))
    assert unpacked(packed(Database((odd,)))) == Database((odd,))
    assert run(Database((odd,)), f"SELECT {quoted('order')} FROM {quoted('odd name')}") == [
        (b"\0",)
    ]
    with pytest.raises(TaskError, match="cell for every column"):
        read_tables([{"name": "t", "columns": [["a", "TEXT"]], "rows": [["x", "y"]]}])


def test_remembered_gold_fails_on_the_twin_of_a_task() -> None:
    twin_of = SQL.audited.twin
    assert twin_of is not None
    for task in sql_tasks():
        other = twin_of(task, 1)
        assert other is not None
        assert score_answer(other, Answer(str(SQL.gold(other)))).reward == 1.0
        assert score_answer(other, Answer(str(SQL.gold(task)))).outcome == 0.0


def test_tables_may_stand_in_gold_as_they_are() -> None:
    tables = [{"name": "t", "columns": [["a", "INTEGER"]], "rows": [[i] for i in range(20)]}]
    gold = {"sql": "SELECT SUM(a) FROM t WHERE a > 3", "ordered": False, "tables": tables}
    task = Task("own", "sql", "t", "train", [{"role": "user", "content": "?"}], gold)
    assert scored(task, "SELECT TOTAL(a) FROM t WHERE a >= 4") == (1.0, 1.0, "ok")
    assert scored(task, "SELECT 184")[:2] == (1.0, 0.0)


def test_a_query_equal_under_the_schema_is_equal_on_every_twin() -> None:
    gold = "SELECT COUNT(*) FROM cars"
    for other in ("SELECT COUNT(DISTINCT name) FROM cars", "SELECT COUNT(stock) FROM cars"):
        for number in range(6):
            made = hidden_database(cars(), (), 3, number)
            assert equal(run(made, gold), run(made, other), False)  # type: ignore[arg-type]


def test_the_difference_is_explained() -> None:
    gold = QUERIES["group"][0]
    said = "right on this database and on its twins", "gold has 2", "returns nothing", "missing"
    asked = gold, "SELECT maker FROM cars", "SELECT colour", gold.replace("10", "30")
    for sql, words in zip(asked, said, strict=True):
        assert words in explain(sql_task("group"), Answer(fenced(sql))).finding.said
