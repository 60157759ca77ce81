"""A value written down never stands for a column of the result, whatever the schema."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from places import tables

from rewards.sql.data import Cell, Column, Database, Table, hidden_database, packed
from rewards.sql.family import literal
from rewards.sql.score import (
    MORE,
    TWINS,
    case_of,
    constants,
    count_hidden,
    fenced,
    read_gold,
    score_query,
)
from rewards.weights import SqlReward

TABLES = tables("sql")

KINDS: dict[str, tuple[Column, st.SearchStrategy[Cell]]] = {
    "stamp": (Column("a", "INTEGER"), st.integers(1_700_000_000, 1_700_000_900)),
    "code": (Column("a", "INTEGER"), st.integers(1, 5)),
    "one": (Column("a", "INTEGER"), st.just(7)),
    "price": (Column("a", "REAL"), st.integers(1, 9_000).map(lambda v: v / 100)),
    "far": (Column("a", "REAL"), st.integers(1, 900).map(lambda v: 500_000 + v / 1000)),
    "tiny": (Column("a", "REAL"), st.integers(1, 900).map(lambda v: v * 1e-12)),
    "town": (Column("a", "TEXT"), st.sampled_from(("Arden", "Corva", "Hexham", "Zoll"))),
    "word": (Column("a", "TEXT"), st.just("EUR")),
    "day": (
        Column("a", "TEXT", date=True),
        st.integers(0, 90).map(lambda d: (date(2024, 1, 1) + timedelta(d)).isoformat()),
    ),
}
QUERIES = TABLES["hidden_databases_queries"]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=6)
@given(data=st.data(), query=st.sampled_from(QUERIES), seed=st.integers(0, 9))
def test_a_constant_in_place_of_a_column_is_never_paid(
    kind: str, data: st.DataObject, query: tuple[str, bool], seed: int
) -> None:
    column, values = KINDS[kind]
    sql, ordered = query
    cells = data.draw(st.lists(st.tuples(values, st.integers(1, 99)), min_size=12, max_size=40))
    table = Table("t", (column, Column("b", "INTEGER")), tuple(cells))
    gold = {"sql": sql, "ordered": ordered, "database": packed(Database((table,))), "seed": seed}
    rows = case_of(read_gold(gold), None).rows
    assert score_query(gold, fenced(sql), False, SqlReward()).reward == 1.0
    width = len(rows[0]) if rows else 0
    names = ", ".join(f"c{at}" for at in range(width))
    for at in range(width):
        for value in list({row[at] for row in rows})[:5]:
            said = ", ".join(literal(value) if c == at else f"c{c}" for c in range(width))
            cheat = f"WITH g({names}) AS ({sql}) SELECT {said} FROM g"
            assert score_query(gold, fenced(cheat), False, SqlReward()).reward == 0.0, cheat


def test_more_twins_are_drawn_while_a_constant_could_stand_for_a_column() -> None:
    rows = tuple(("EUR" if i % 9 else "USD", i % 2, float(i)) for i in range(40))
    columns = (Column("a", "TEXT"), Column("b", "INTEGER"), Column("c", "REAL"))
    base = packed(Database((Table("t", columns, rows),)))
    for seed in range(5):
        sql = "SELECT a, b FROM t WHERE c > 20 ORDER BY c DESC LIMIT 1"
        gold = read_gold({"sql": sql, "ordered": True, "database": base, "seed": seed})
        count = count_hidden(gold)
        assert TWINS <= count <= TWINS + MORE
        assert not constants([case_of(gold, n).rows for n in (None, *range(count))])
    same = "SELECT a FROM t WHERE a = 'EUR' LIMIT 1"
    asked = {"sql": same, "ordered": True, "database": base, "focus": [["t", "a", "EUR"]]}
    assert count_hidden(read_gold(asked)) == TWINS  # the question says the value
    assert constants([[(1, "a"), (2, "a")], [], [(1, "a")]]) == {"a"}
    assert count_hidden(read_gold({**asked, "twins": 0})) == 0


def test_numbers_beyond_the_machine_are_kept_within_it() -> None:
    rows = tuple((2**63 - 1 - i, float(10**308) * (i % 2), i * 1e-11) for i in range(40))
    columns = (Column("a", "INTEGER"), Column("b", "REAL"), Column("c", "REAL"))
    for number in range(6):
        made = hidden_database(Database((Table("t", columns, rows),)), (), 3, number).table("t")
        assert all(isinstance(v, int) and abs(v) < 2**63 for v in made.values("a"))
        assert len(set(made.values("c"))) > 8 and min(made.values("c")) >= 0
