"""Rows as parquet and back."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.rows import json_line, parquet_rows, write_lines

pq = pytest.importorskip("pyarrow.parquet", reason="needs the parquet extra")

PLAIN = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False)
VALUE = st.recursive(
    PLAIN | st.text(max_size=3) | st.text(st.characters(categories=["Cs"]), max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=6,
)
ROW = st.dictionaries(st.sampled_from("abc"), VALUE, max_size=3)


def kept(rows: list[dict[str, Any]]) -> bytes:
    out = io.BytesIO()
    write_lines(out, io.BytesIO(b"".join(map(json_line, rows))))
    return out.getvalue()


@settings(max_examples=60)
@given(st.lists(ROW, min_size=1, max_size=5))
def test_rows_come_back_as_json_holds_them(rows: list[dict[str, Any]]) -> None:
    data = kept(rows)
    found = list(parquet_rows("x", io.BytesIO(data)))
    wanted = [json.loads(json_line(row)) for row in rows]
    assert found == wanted or (not any(rows) and found == [])
    assert kept(rows) == data


def test_columns_of_one_type_have_it_and_others_hold_json() -> None:
    message = {"role": "user", "content": "hi"}
    one = {"id": "a", "n": 1, "x": 1, "messages": [message], "ids": [1, 2], "gold": {"a": 1}}
    two = {"id": "b", "n": 2, "x": 0.5, "messages": [message] * 2, "ids": [], "gold": {"b": 1}}
    schema = pq.ParquetFile(io.BytesIO(kept([one, two]))).schema_arrow
    said = {field.name: str(field.type) for field in schema}
    assert said["id"] == said["gold"] == "string" and said["ids"].startswith("list<")
    assert (said["n"], said["x"]) == ("int64", "double") and "struct<role" in said["messages"]
