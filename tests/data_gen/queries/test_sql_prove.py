"""The two ways to gold notice each other's mistakes; other readings are told apart or refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from sql_world import write_shop

pytest.importorskip("pandas")
pytest.importorskip("duckdb")

from assay.tables.load import load
from data_gen.queries import database, sql_write
from data_gen.queries import sql_proof as prove
from data_gen.queries.database import Unit, joined, made
from data_gen.queries.lake import Folder, Lake, open_lake, open_lakes
from data_gen.queries.sql_plans import ONE, TWO, Filter, NoPlan, Plan, draft
from data_gen.queries.sql_proof import Refused, Second, agreed, told_apart
from data_gen.queries.sql_write import question, written
from rewards.sql.hidden_databases import hidden_database
from rewards.sql.run import Failed, run

ROWS = 1000
Units = list[Unit]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return open_lake(write_shop(tmp_path_factory.mktemp("sql") / "shop"))


@pytest.fixture(scope="module")
def second(lake: Lake) -> Iterator[Second]:
    found = Second(lake.folder)
    yield found
    found.close()


def units(lake: Lake) -> Units:
    found = [made(t, load(t.reading, lake.folder), ROWS, 12) for t in lake.tables]
    assert not any(isinstance(m, str) for m in found)
    single = [Unit((m,)) for m in found if not isinstance(m, str)]
    pairs = [
        joined(single[p].made[0], single[link.other].made[0], link)
        for p, links in enumerate(lake.links)
        for link in links[:1]
    ]
    return [*single, *(p for p in pairs if p is not None)]


def drafts(of: Units, each: int = 6) -> Iterator[tuple[Unit, Plan]]:
    for unit in of:
        for kind in TWO if unit.link else ONE:
            rng = Random(f"{kind} {len(unit.made)}")
            for _ in range(each):
                try:
                    yield unit, draft(unit, kind, rng)
                except NoPlan:
                    continue


def rows_of(unit: Unit, plan: Plan) -> Any:
    return run(unit.database, written(plan, unit).sql)


def test_both_ways_agree_on_plain_drafts(lake: Lake, second: Second) -> None:
    seen: set[str] = set()
    for unit, plan in drafts(units(lake)):
        rows = rows_of(unit, plan)
        assert not isinstance(rows, Failed), written(plan, unit).sql
        if any(cell is None for row in rows for cell in row):
            continue  # refused before
        agreed(plan, unit, rows, written(plan, unit), second, ROWS)
        seen.add(plan.kind)
    assert seen == {*ONE, *TWO}


MUTANTS = {
    "mean for total": ("SUM(", "AVG("),
    "total for mean": ("AVG(", "SUM("),
    "smallest for largest": ("MAX(", "MIN("),
    "a bound that counts": (" > ", " >= "),
    "a bound that does not": (" <= ", " < "),
    "the other sign": (" < ", " > "),
    "every value counted": ("COUNT(DISTINCT ", "COUNT("),
    "equal values kept": ("SELECT DISTINCT", "SELECT"),
    "the wrong end": (" DESC", ""),
    "one row less": ("LIMIT 3", "LIMIT 2"),
    "rows without a match": (" JOIN ", " LEFT JOIN "),
    "whole numbers": ("100.0 *", "100 *"),
    "what is there for what is not": ("EXCEPT", "INTERSECT"),
    "exists for does not": ("NOT EXISTS", "EXISTS"),
    "one of those that are equal": ("RANK()", "ROW_NUMBER()"),
    "years for months": ("'%m'", "'%Y'"),
    "years for decades": (" / 10 * 10", ""),
    "one condition for both": (" AND ", " OR "),
    "missing values in the order": ("IS NOT NULL", "IS NULL"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_query_is_noticed(name: str, lake: Lake, second: Second) -> None:
    old, new = MUTANTS[name]
    changed = 0
    for unit, plan in drafts(units(lake), 12):
        good = written(plan, unit)
        bad = replace(good, sql=good.sql.replace(old, new))
        rows, true = run(unit.database, bad.sql), run(unit.database, good.sql)
        if isinstance(rows, Failed) or isinstance(true, Failed) or bad.sql == good.sql:
            continue
        if prove.equal(true, rows, good.ordered):
            continue
        changed += 1
        with pytest.raises(Refused, match="proof"):
            agreed(plan, unit, rows, bad, second, ROWS)
    assert changed > 0


def _nothing_as_zero(column: Any) -> Any:
    found = REAL_CELLS(column)
    return found and [0 if c is None and not isinstance(found[0], str) else c for c in found]


def _cut(column: Any) -> Any:
    found = REAL_CELLS(column)
    return found and [int(c) if isinstance(c, float) else c for c in found]


def _in_capitals(column: Any) -> Any:
    found = REAL_CELLS(column)
    return found and [c.upper() if isinstance(c, str) else c for c in found]


def _one_down(column: Any) -> Any:
    found = REAL_CELLS(column)
    return found and [found[-1], *found[:-1]]


REAL_CELLS = database.cells_of


@pytest.mark.parametrize("broken", [_nothing_as_zero, _cut, _in_capitals, _one_down])
def test_a_broken_database_is_noticed(
    broken: Callable[[Any], Any], lake: Lake, second: Second, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = units(lake)
    with monkeypatch.context() as patch:
        # one column alone is moved: a table whose rows are all moved is the same table
        only = {"income", "price", "city", "channel"}
        patch.setattr(
            database, "cells_of", lambda c: broken(c) if c.name in only else REAL_CELLS(c)
        )
        bad = units(lake)
    changed = 0
    for (unit, plan), (other, _) in zip(drafts(good), drafts(good), strict=True):
        del other
        place = next(i for i, u in enumerate(good) if u is unit)
        true, rows = rows_of(unit, plan), run(bad[place].database, written(plan, unit).sql)
        if isinstance(rows, Failed) or prove.equal(true, rows, written(plan, unit).ordered):
            continue
        changed += 1
        with pytest.raises(Refused, match="proof"):
            agreed(plan, unit, rows, written(plan, unit), second, ROWS)
    assert changed > 0


def _told(unit: Unit, plan: Plan, text: str) -> tuple[str, ...]:
    focus = prove.focus_of(plan, unit)
    tried = [unit.database, *prove.twins(unit.database, focus, 3, range(prove.WIDE))]
    one = written(plan, unit)
    golds = [run(d, one.sql) for d in tried]
    return told_apart(one, text, tried, golds)  # type: ignore[arg-type]


def test_a_reading_that_differs_on_a_twin_alone_needs_words(lake: Lake) -> None:
    """No income is exactly the bound, so "more than" and "at least" agree on the data."""
    unit = next(u for u in units(lake) if u.made[0].table.name == "customers")
    income = next(f for f in unit.made[0].fields if f.name == "income")
    plan = Plan("count", (Filter(income, ">", 3000.05),))
    strict, loose = (
        run(unit.database, f"SELECT COUNT(*) FROM customers WHERE income {s} 3000.05")
        for s in (">", ">=")
    )
    assert strict == loose
    assert _told(unit, plan, "How many rows have an income of more than 3000.05?") == ()
    with pytest.raises(Refused, match="ambiguous: the bound itself"):
        _told(unit, plan, "How many rows have an income from 3000.05 on?")


def test_missing_values_and_ties_get_a_clause_where_they_can_matter(lake: Lake) -> None:
    unit = next(u for u in units(lake) if u.made[0].table.name == "customers")
    fields = {f.name: f for f in unit.made[0].fields}
    text = "For each segment, the mean income"
    group = Plan("group", group=fields["segment"], measure=fields["income"], summary="mean")
    clauses = _told(unit, group, text)
    assert any("segment" in c for c in clauses) and any("income" in c for c in clauses)
    top = Plan("top", (), (fields["customer"],), measure=fields["age"], limit=3)
    assert any("is equal" in c for c in _told(unit, top, "the first 3 by age"))
    by_city = Plan("group", group=fields["city"], measure=fields["age"], summary="mean")
    assert _told(unit, by_city, "For each city, the mean age") == ()


def test_the_twins_of_a_unit_join_as_their_schema_says(lake: Lake) -> None:
    pair = next(u for u in units(lake) if u.link)
    database = hidden_database(pair.database, (), 1, 0)
    assert [t.name for t in database.tables] == [m.table.name for m in reversed(pair.made)]
    assert rows_of(pair, next(p for u, p in drafts([pair]) if p.kind == "join"))


def test_nothing_is_ranked_where_all_is_equal_and_no_more_rows_than_there_are(
    tmp_path: Path,
) -> None:
    lines = [
        f"card {i * 7 % 240},{'abcdef'[i % 6] * 3},{i % 12},{min(i * 37 % 101, 70) / 7:.3f}"
        for i in range(240)
    ]
    (tmp_path / "cards.csv").write_text(
        "\n".join(["card,suit,round_no,gain", *lines]) + "\n", "utf-8"
    )
    lake = open_lake(tmp_path)
    unit, fields = next((u, {f.name: f for f in u.made[0].fields}) for u in units(lake))
    found = Second(lake.folder)

    def why(plan: Plan) -> str:
        one = written(plan, unit)
        with pytest.raises(Refused) as caught:
            rows = prove.gold_rows(plan, unit, one)
            prove.agreed(plan, unit, rows, one, found, ROWS)
            prove.clauses_needed(plan, unit, one, question(plan, unit, Random(1)), rows, 1)
        return str(caught.value.why)

    gains = Filter(fields["gain"], "<", 0.1)
    few = Plan("top", (gains,), (fields["suit"],), measure=fields["gain"], limit=5)
    assert why(few) == "fewer rows than are asked for"
    assert why(Plan("group", group=fields["suit"])) == "one figure for all groups"
    assert why(Plan("best_group", group=fields["suit"], limit=3)) == "all that is ranked is equal"
    top = Plan("top", (), (fields["card"],), measure=fields["gain"], limit=3)
    assert why(top) == "all that is ranked is equal"
    found.close()


def test_a_column_named_as_a_query_names_its_own_is_shown(tmp_path: Path) -> None:
    lines = [f"{i + 1},{'abc'[i % 3] * 4},{150 + i * 37 % 101 / 4}" for i in range(60)]
    (tmp_path / "runs.csv").write_text("\n".join(["place,club,minutes", *lines]) + "\n", "utf-8")
    lake = open_lake(tmp_path)
    unit = units(lake)[0]
    fields = {f.name: f for f in unit.made[0].fields}
    shown, group = (fields["place"],), fields["club"]
    plan = Plan("top_each", (), shown, group, fields["minutes"], limit=2, down=False)
    found = Second(lake.folder)
    verdict = agreed(plan, unit, rows_of(unit, plan), written(plan, unit), found, ROWS)
    assert verdict == "agreed"
    found.close()


def test_what_has_no_match_is_asked_only_where_nearly_all_keys_match(lake: Lake) -> None:
    pair = next(u for u in units(lake) if u.link and u.made[0].table.name == "orders")
    assert draft(pair, "unmatched", Random(1)).kind == "unmatched"
    other = replace(pair.made[1].table, rows=pair.made[1].table.rows[:40])
    short = replace(pair, made=(pair.made[0], replace(pair.made[1], table=other)))
    with pytest.raises(NoPlan):
        draft(short, "unmatched", Random(1))


def test_the_cells_of_a_table_are_not_counted(tmp_path: Path) -> None:
    cells = [(a, b, c) for a in "abcd" for b in "pqrs" for c in "xyz"]
    rows = [f"{a * 3},{b * 3},{c * 3},{7 + i * i % 83}" for i, (a, b, c) in enumerate(cells)]
    (tmp_path / "t.csv").write_text("\n".join(["dose_of,kind,place,Freq", *rows]) + "\n", "utf-8")
    (lake,) = open_lakes([Folder(tmp_path, bare=True)], map)
    unit = units(lake)[0]
    for kind in ("count", "share", "having"):
        with pytest.raises(NoPlan):
            draft(unit, kind, Random(1))


def test_a_value_with_an_apostrophe_is_written_once(lake: Lake) -> None:
    unit = next(u for u in units(lake) if u.made[0].table.name == "customers")
    city = next(f for f in unit.made[0].fields if f.name == "city")
    plan = Plan("count", (Filter(city, "=", "L'Aquila"),))
    assert 'city is "L\'Aquila"' in question(plan, unit, Random(1))


def test_questions_have_many_openings_and_no_empty_words(lake: Lake) -> None:
    starts: set[str] = set()
    for unit, plan in drafts(units(lake)):
        text = question(plan, unit, Random(plan.shape))
        assert "{" not in text and "  " not in text and "None" not in text, text
        assert text[0].isupper() or text[0].isdigit()
        for found in plan.filters:
            assert found.field.words in text and sql_write.SIGNS[found.sign] in text
        starts.add(" ".join(text.split()[:2]))
    assert len(starts) >= 20
