"""What intervals over SQL tasks are clustered by."""

from __future__ import annotations

from dataclasses import replace

from sql_tasks import sql_tasks

from assay.family import source_of
from rewards.sql.family import SQL


def test_tasks_are_clustered_by_their_tables_and_not_by_their_folder() -> None:
    task = sql_tasks()[0]
    two = [replace(task, meta={"source": "lake", "database": f"lake/{n}.csv"}) for n in "ab"]
    assert [source_of(SQL, t) for t in two] == ["lake/a.csv", "lake/b.csv"]
    assert source_of(SQL, replace(task, meta={"source": "lake"})) == "lake"
