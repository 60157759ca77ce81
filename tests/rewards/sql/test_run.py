"""Queries that a model wrote read the database and do nothing else."""

from __future__ import annotations

import multiprocessing

import pytest
from places import tables
from sql_tasks import cars

from rewards.sql import run as sql_run
from rewards.sql.run import Failed, Limits, run

TABLES = tables("sql")

DATA = cars()
_DOUBLED = ", ".join(f"c{i} AS (SELECT 1 FROM c{i - 1} x, c{i - 1} y)" for i in range(1, 40))
HARMFUL = TABLES["run_harmful"] | {
    "SELECT " + "(" * 500 + "1" + ")" * 500: "sql_error",
    "SELECT " + " + ".join(["1"] * 3000): "sql_error",
    "SELECT " + ", ".join(["1"] * 300): "sql_error",
    " UNION ALL ".join(["SELECT 1"] * 200): "sql_error",
}


@pytest.mark.parametrize("sql", HARMFUL)
def test_a_harmful_query_is_refused_and_the_next_one_runs(sql: str) -> None:
    found = run(DATA, sql)
    assert isinstance(found, Failed) and found.error == HARMFUL[sql], found
    assert run(DATA, "SELECT COUNT(*) FROM cars") == [(120,)]


def test_a_planner_without_end_is_ended_by_its_processor_time() -> None:
    sql = f"WITH c0 AS (SELECT 1), {_DOUBLED} SELECT COUNT(*) FROM c39"
    found = run(DATA, sql, Limits(cpu_s=0.5))
    assert isinstance(found, Failed) and found.error in ("too_slow", "sql_error")
    assert run(DATA, "SELECT 1") == [(1,)]


def test_values_come_back_as_they_are() -> None:
    sql = "SELECT x'00ff', NULL, 1e999, 'ü', 9223372036854775807, 0.1, -0.0, ''"
    assert run(DATA, sql) == [
        (b"\x00\xff", None, float("inf"), "ü", 9223372036854775807, 0.1, -0.0, "")
    ]
    assert run(DATA, "VALUES (1), (2)") == [(1,), (2,)]


def test_a_killed_process_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(DATA, "SELECT 1") == [(1,)]
    assert sql_run.RUNNER._running is not None
    process, _ = sql_run.RUNNER._running
    process.kill()
    process.wait()
    assert run(DATA, "SELECT 2") == [(2,)]


def _child(queue: multiprocessing.Queue[object]) -> None:
    queue.put(run(DATA, "SELECT COUNT(*) FROM makers"))


def test_a_forked_process_has_a_runner_of_its_own() -> None:
    assert run(DATA, "SELECT 1") == [(1,)]
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_child, args=(queue,))
    child.start()
    assert queue.get(timeout=60) == [(8,)]
    child.join()
    assert run(DATA, "SELECT 3") == [(3,)]
