"""The files of a task, read a second time."""

from __future__ import annotations

import sqlite3

import pytest

duckdb = pytest.importorskip("duckdb")

from data_gen.proof.compare import put  # noqa: E402


def test_a_sqlite_file_is_read_on_a_connection_whose_last_answer_was_not_read_to_its_end() -> None:
    held = sqlite3.connect(":memory:")
    held.execute("create table train_set (row_id integer, a text)")
    held.executemany("insert into train_set values (?, ?)", [(1, "x"), (2, "y")])
    db = duckdb.connect()
    for table in ("one", "two"):
        db.execute("select count(*) from range(5)").fetchone()
        put(db, table, "source/train_v1.sqlite", held.serialize())
        assert db.execute(f"select count(*) from {table}").fetchone()[0] == 2
