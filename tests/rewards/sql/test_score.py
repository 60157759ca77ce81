"""The query is the last closed block; whatever a model writes, something is said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import tables

from rewards.sql.score import LONGEST, extract, fenced


@pytest.mark.parametrize(
    ("text", "sql", "why"),
    [*tables("sql")["blocks"], (fenced("x" * (LONGEST + 1)), "", "too_long")],
)
def test_blocks(text: str, sql: str, why: str) -> None:
    found = extract(text)
    assert (found.sql, found.why) == (sql, why)


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=80), st.text(max_size=40))
def test_a_query_comes_back(sql: str, before: str) -> None:
    query = sql.replace("`", "").strip()
    found = extract(before.replace("`", "") + "\n" + fenced(query))
    assert (found.sql, found.why) == ((query, "ok") if query else ("", "empty"))


@given(st.text(alphabet="`sql \n;abc\r", max_size=120))
def test_no_text_raises(text: str) -> None:
    found = extract(text)
    assert (found.why == "ok") == bool(found.sql)
