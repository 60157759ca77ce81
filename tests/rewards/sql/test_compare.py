"""Results of queries are equal as execution accuracy says, and no others are."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import tables

from rewards.sql.data import Cell, Row, stored
from rewards.sql.score import LONGEST, bird_equal, equal, extract, fenced, same_cell

TABLES = tables("sql")

cells: st.SearchStrategy[Cell] = st.one_of(
    st.none(),
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=False, width=32),
    st.text(max_size=4),
    st.binary(max_size=3),
)


@st.composite
def results(draw: st.DrawFn) -> list[Row]:
    width = draw(st.integers(1, 4))
    return draw(st.lists(st.tuples(*[cells] * width), min_size=1, max_size=8))


@given(results(), st.randoms(use_true_random=False), st.booleans())
def test_columns_may_be_exchanged_and_rows_where_no_order_is_asked(
    rows: list[Row], rng: Random, ordered: bool
) -> None:
    exchange = rng.sample(range(len(rows[0])), len(rows[0]))
    other = [tuple(row[at] for at in exchange) for row in rows]
    if not ordered:
        rng.shuffle(other)
    assert equal(rows, other, ordered)
    assert equal(other, rows, ordered)
    assert equal(rows, other, ordered, published=True)


@given(results(), st.data())
def test_a_row_more_or_another_cell_is_another_result(rows: list[Row], data: st.DataObject) -> None:
    assert not equal(rows, [*rows, rows[0]], False)
    at = data.draw(st.integers(0, len(rows) - 1))
    column = data.draw(st.integers(0, len(rows[0]) - 1))
    other = list(rows)
    changed: list[Cell] = list(rows[at])
    changed[column] = "another text"
    other[at] = tuple(changed)
    assert not equal(rows, other, False) and not bird_equal(rows, other)


@pytest.mark.parametrize(("one", "two", "same", "published"), TABLES["cells"])
def test_cells(one: Cell, two: Cell, same: bool, published: bool) -> None:
    assert same_cell(one, two) == same == same_cell(two, one)
    assert same_cell(one, two, published=True) == published


def test_a_stored_fraction_is_equal_only_to_itself() -> None:
    known = stored((500000.1, 500000.2, 1, None, "a"))
    for gold in (500000.1, 500000.2):
        assert not same_cell(gold, 500000.15, known=known)
        assert same_cell(gold, gold * 100 / 100, known=known)
    assert same_cell(500000.15, 500000.1501, known=known)  # computed, on both sides
    small = stored((3e-10, 5e-10))
    assert not same_cell(4e-10, 3e-10, known=small) and same_cell(4e-10, 3e-10)


def test_one_exchange_of_columns_has_to_fit_all_rows() -> None:
    gold: list[Row] = [(1, 2), (3, 4)]
    assert not equal(gold, [(1, 2), (4, 3)], False)
    assert equal([(1, 2, 5), (2, 1, 6)], [(2, 1, 5), (1, 2, 6)], False)
    assert not bird_equal(gold, [(2, 1), (4, 3)]) and equal(gold, [(2, 1), (4, 3)], False)


def test_a_partner_is_given_up_for_a_row_that_has_no_other() -> None:
    gold: list[Row] = [(1 + 8e-7,), (1.0,)]  # the first fits both, the second the first alone
    assert equal(gold, [(1 + 5e-7,), (1 + 1.6e-6,)], False)
    assert not equal(gold, [(1 + 1.6e-6,), (1 + 1.7e-6,)], False)


@pytest.mark.parametrize(
    ("text", "sql", "why"), [*TABLES["blocks"], (fenced("x" * (LONGEST + 1)), "", "too_long")]
)
def test_the_query_is_the_last_closed_block(text: str, sql: str, why: str) -> None:
    found = extract(text)
    assert (found.sql, found.why) == (sql, why)
