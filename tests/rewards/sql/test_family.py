"""Gold scores 1; what is written down, listed or guessed is not paid."""

from __future__ import annotations

from dataclasses import replace

import pytest
from places import tables
from sql_tasks import QUERIES, cars, sql_task, sql_tasks

from assay.family import BUILT_IN, score_answer, source_of
from assay.task import Answer, Task, TaskError
from rewards.sql import score as scoring
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
from rewards.sql.run import RunnerLost, run
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


@pytest.mark.parametrize(
    ("name", "sql", "outcome", "reward", "why"),
    [
        ("count", QUERIES["count"][0].replace("*", "price"), 1.0, 1.0, "ok"),
        # no car costs that, on a twin some do: right by chance earns what any query that runs does
        ("count", QUERIES["count"][0].replace(">=", ">"), 1.0, 0.02, "only_these_values"),
        ("group", QUERIES["group"][0] + " ORDER BY 2", 1.0, 1.0, "ok"),
        ("top", f"SELECT name FROM ({QUERIES['top'][0]}) ORDER BY name", None, None, ""),
        ("count", "DELETE FROM cars", 0.0, 0.0, "refused: DELETE is not allowed"),
        ("count", "SELECT colour FROM cars", 0.0, 0.0, "sql_error: no such column"),
        ("count", "SELECT 1; SELECT 2", 0.0, 0.0, "several"),
        ("count", "SELECT 42", 0.0, 0.02, ""),
    ],
)
def test_queries_are_paid_for_what_they_do(
    name: str, sql: str, outcome: float | None, reward: float | None, why: str
) -> None:
    found = scored(sql_task(name), sql, runs=0.02)
    assert found[2].startswith(why)
    if outcome is None:  # the order counts where it is asked for
        assert found[2] in ("wrong_order", "only_these_values")
    else:
        assert found[:2] == (outcome, reward)


def test_what_cannot_be_scored_is_said() -> None:
    cut = score_answer(sql_task("count"), Answer("```sql\nSELECT", truncated=True))
    assert (cut.outcome, cut.why) == (0.0, "truncated")
    with pytest.raises(TaskError, match="runs"):
        SqlReward(runs=1.5)


def test_the_machine_is_told_from_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object) -> None:
        raise RunnerLost("no process")

    task = sql_task("count", seed=77)
    monkeypatch.setattr(scoring, "run", lost)
    score = score_answer(task, Answer(fenced("SELECT 1")))
    assert (score.outcome, score.reward) == (None, None) and "no process" in score.why


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


def test_the_difference_is_explained() -> None:
    task = sql_task("group")
    said = {
        QUERIES["group"][0]: "right on this database and on its twins",
        "SELECT maker FROM cars": "1 columns, gold has 2",
        "SELECT colour": "returns nothing",
        QUERIES["group"][0].replace("10", "30"): "missing",
    }
    for sql, words in said.items():
        assert words in explain(task, Answer(fenced(sql))).finding.said
    assert "No query" in explain(task, Answer("none")).finding.said
    chance = explain(task, Answer(hard_coded(task))).finding.said
    assert "another of the same schema" in chance


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


def test_tasks_are_clustered_by_their_tables_and_not_by_their_folder() -> None:
    task = sql_task("count")
    two = [replace(task, meta={"source": "lake", "database": f"lake/{n}.csv"}) for n in "ab"]
    assert [source_of(SQL, t) for t in two] == ["lake/a.csv", "lake/b.csv"]
    assert source_of(SQL, replace(task, meta={"source": "lake"})) == "lake"
