"""Tasks as rows of parquet: the same tasks come back, whatever stands in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.task import Task, TaskError, json_line
from data_gen.sharing.columns import read_parquet, row_of, task_of, write_parquet

pytest.importorskip("pyarrow")
TEXT = st.text(st.characters(), max_size=12) | st.just("half a \ud800 character")
VALUE: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
OBJECT: Any = st.dictionaries(TEXT, VALUE, max_size=3)
MESSAGE = st.fixed_dictionaries({"role": TEXT, "content": TEXT}, optional={"name": TEXT})
TASKS = st.builds(
    Task,
    id=TEXT,
    family=TEXT,
    track=TEXT,
    split=TEXT,
    prompt=st.lists(MESSAGE, max_size=2),
    gold=OBJECT,
    tools=st.lists(TEXT, max_size=2).map(tuple),
    files=st.dictionaries(TEXT, TEXT, max_size=2),
    group=st.none() | TEXT,
    meta=OBJECT,
)


@settings(max_examples=60, deadline=None)
@given(tasks=st.lists(TASKS, min_size=1, max_size=5))
def test_every_task_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, tasks: list[Task]
) -> None:
    path = tmp_path_factory.mktemp("rows") / "x.parquet"
    with open(path, "wb") as out:
        assert write_parquet(out, map(row_of, tasks)) == len(tasks)
    found = [json_line(task.to_json()) for task in read_parquet(path, "x")]
    assert found == [json_line(task.to_json()) for task in tasks]


def test_a_plain_task_needs_no_second_copy() -> None:
    task = Task("é", "sql", "t", "train", [{"role": "user", "content": "q"}], {"a": [1.5, None]})
    assert row_of(task)["exact"] is None
    odd = Task("1", "sql", "t", "train", [{"role": "user", "content": "q", "name": "x"}], {})
    assert '"name": "x"' in row_of(odd)["exact"]


@pytest.mark.parametrize("change", [{"gold": "{"}, {"prompt": None}, {"id": 3}, {"exact": "[]"}])
def test_a_row_that_is_no_task_is_named(change: dict[str, Any]) -> None:
    row = row_of(Task("1", "sql", "t", "train", [], {})) | change
    with pytest.raises(TaskError, match=r"^x row 4:"):
        task_of(row, "x row 4")


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(TaskError, match="x: not a parquet file"):
        list(read_parquet(tmp_path / "x.parquet", "x"))
