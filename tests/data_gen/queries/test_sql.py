"""`assay tasks sql`: two ways to gold that notice each other, other readings told apart or
refused, and tasks that every command takes."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from assay_command import here, rows
from places import ROOT, tables

pytest.importorskip("duckdb")

from assay.family import BUILT_IN, score_answer
from assay.tables.load import load
from assay.task import Answer, Task, read_tasks
from data_gen.queries import sql_build, sql_tasks, sql_write
from data_gen.queries.lake import Folder, Lake, open_lakes
from data_gen.queries.sql_build import LIKE, without_like
from data_gen.queries.sql_plans import (
    ONE,
    TWO,
    Filter,
    NoPlan,
    Plan,
    Unit,
    draft,
    identifier,
    joined,
    made,
    plain_words,
)
from data_gen.queries.sql_tasks import Refused, Second, agreed, told_apart
from data_gen.queries.sql_write import question, written
from data_gen.splits import SPLITS
from rewards.sql.data import Column, Database, Table, packed, unpacked
from rewards.sql.run import Failed, run
from rewards.sql.score import fenced

# customers with missing values, and orders that mostly name a customer
QUERIES = ROOT / "tests/data/queries"
SHOP = QUERIES / "shop"
SQL = BUILT_IN["sql"]
ROWS = 1000


def opened(folder: Path) -> Lake:
    return open_lakes([Folder(folder, bare=True)], map)[0]


def units(lake: Lake) -> list[Unit]:
    found = [made(t, load(t.reading, lake.folder), ROWS, 12) for t in lake.tables]
    assert not any(isinstance(m, str) for m in found)
    single = [Unit((m,)) for m in found if not isinstance(m, str)]
    pairs = [
        joined(single[p].made[0], single[link.other].made[0], link)
        for p, links in enumerate(lake.links)
        for link in links[:1]
    ]
    return [*single, *(p for p in pairs if p is not None)]


def drafts(of: list[Unit], each: int = 6) -> Iterator[tuple[Unit, Plan]]:
    for unit in of:
        for kind in TWO if unit.link else ONE:
            rng = Random(f"{kind} {len(unit.made)}")
            for _ in range(each):
                try:
                    yield unit, draft(unit, kind, rng)
                except NoPlan:
                    continue


@pytest.fixture(scope="module")
def lake() -> Lake:
    return opened(SHOP)


@pytest.fixture(scope="module")
def shop(lake: Lake) -> list[Unit]:
    return units(lake)


@pytest.fixture(scope="module")
def second(lake: Lake) -> Iterator[Second]:
    found = Second(lake.folder)
    yield found
    found.close()


@pytest.fixture(scope="module")
def customers(shop: list[Unit]) -> tuple[Unit, dict[str, Any]]:
    unit = next(u for u in shop if u.made[0].table.name == "customers")
    return unit, {f.name: f for f in unit.made[0].fields}


# --- the two ways


def test_both_ways_agree_on_plain_drafts_in_many_words(shop: list[Unit], second: Second) -> None:
    kinds, starts, turned = set[str](), set[str](), 0
    for unit, plan in drafts(shop):
        one, text = written(plan, unit), question(plan, unit, Random(plan.shape))
        assert "{" not in text and "  " not in text and "None" not in text, text
        assert text[0].isupper() or text[0].isdigit()
        for part in plan.filters:
            assert part.field.words in text and sql_write.SIGNS[part.sign] in text
        starts.add(" ".join(text.split()[:2]))
        found = run(unit.database, one.sql)
        assert not isinstance(found, Failed), one.sql
        if any(cell is None for row in found for cell in row):
            continue  # refused before
        agreed(plan, unit, found, one, second, ROWS)
        kinds.add(plan.kind)
        if one.ordered and found[::-1] != found:
            with pytest.raises(Refused, match="proof"):
                agreed(plan, unit, found[::-1], one, second, ROWS)
            turned += 1
    assert kinds == {*ONE, *TWO} and len(starts) >= 20 and turned


BROKEN = tables("queries")["a_broken_query"]


@pytest.mark.parametrize(("old", "new"), BROKEN.values(), ids=BROKEN)
def test_a_broken_query_is_noticed(old: str, new: str, shop: list[Unit], second: Second) -> None:
    changed = 0
    for unit, plan in drafts(shop, 8):
        good = written(plan, unit)
        bad = replace(good, sql=good.sql.replace(old, new))
        found, true = run(unit.database, bad.sql), run(unit.database, good.sql)
        if bad.sql == good.sql or isinstance(found, Failed) or isinstance(true, Failed):
            continue
        if not sql_tasks.equal(true, found, good.ordered):
            with pytest.raises(Refused, match="proof"):
                agreed(plan, unit, found, bad, second, ROWS)
            changed += 1
        if changed == 2:
            break
    assert changed


# the first reader broken at the frame that it returns; what it is of
FAULTS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "a row lost": ("customers", lambda f: f.drop(index=f.index[40])),
    "no value read as 0": ("customers", lambda f: f.assign(income=f["income"].fillna(0.0))),
    "case folded": ("customers", lambda f: f.assign(city=f["city"].str.lower())),
    "columns exchanged": (
        "orders",
        lambda f: f.rename(columns={"price": "quantity", "quantity": "price"}),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_first_reader_is_noticed(
    name: str, lake: Lake, shop: list[Unit], second: Second
) -> None:
    """Every answer that changes is refused."""
    of, fault = FAULTS[name]
    (table, right), *_ = [p for p in zip(lake.tables, shop, strict=False) if of in p[0].key]
    read = made(table, fault(load(table.reading, lake.folder)), ROWS, 12)
    assert not isinstance(read, str), read
    broken, changed = Unit((read,)), 0
    for _, plan in drafts([right]):
        one = written(plan, right)
        found, true = run(broken.database, one.sql), run(right.database, one.sql)
        if isinstance(found, Failed) or isinstance(true, Failed):
            continue
        if any(cell is None for rows in (found, true) for line in rows for cell in line):
            continue  # refused before
        agreed(plan, right, true, one, second, ROWS)
        if not sql_tasks.equal(true, found, one.ordered):
            with pytest.raises(Refused, match="proof"):
                agreed(plan, broken, found, one, second, ROWS)
            changed += 1
    assert changed


# --- one reading


def told(unit: Unit, plan: Plan, text: str) -> tuple[str, ...]:
    focus, one = sql_write.focus_of(plan, unit), written(plan, unit)
    tried = [unit.database, *sql_tasks.twins(unit.database, focus, 3, range(sql_tasks.WIDE))]
    return told_apart(one, text, tried, [run(d, one.sql) for d in tried])  # type: ignore[misc]


def test_a_reading_that_differs_needs_words_or_a_clause(customers: Any) -> None:
    """Also on a twin alone: no income is exactly the bound, so "more than" and "at least" agree on
    the data."""
    unit, fields = customers
    plan = Plan("count", (Filter(fields["income"], ">", 3000.05),))
    count = "SELECT COUNT(*) FROM customers WHERE income {} 3000.05"
    assert len({str(run(unit.database, count.format(sign))) for sign in (">", ">=")}) == 1
    assert told(unit, plan, "How many rows have an income of more than 3000.05?") == ()
    with pytest.raises(Refused, match="ambiguous: the bound itself"):
        told(unit, plan, "How many rows have an income from 3000.05 on?")
    group = Plan("group", group=fields["segment"], measure=fields["income"], summary="mean")
    clauses = told(unit, group, "For each segment, the mean income")
    assert any("segment" in c for c in clauses) and any("income" in c for c in clauses)
    top = Plan("top", (), (fields["customer"],), measure=fields["age"], limit=3)
    assert any("is equal" in c for c in told(unit, top, "the first 3 by age"))
    by_city = Plan("group", group=fields["city"], measure=fields["age"], summary="mean")
    assert told(unit, by_city, "For each city, the mean age") == ()
    few = Plan("group", (Filter(fields["age"], ">", 70),), group=fields["city"])
    clauses = told(unit, few, "For each city, the number of rows where age is more than 70")
    assert "Leave out any city without such rows." in clauses


def test_what_is_refused() -> None:
    """Ranks among equals, and fewer rows than asked for."""
    lake = opened(QUERIES / "cards")
    (unit,), second = units(lake), Second(lake.folder)
    card = {f.name: f for f in unit.made[0].fields}
    few = (Filter(card["gain"], "<", 0.1),)
    equal = "all that is ranked is equal"
    for plan, why in (
        (Plan("top", few, (card["suit"],), measure=card["gain"], limit=5), "fewer rows than are"),
        (Plan("group", group=card["suit"]), "one figure for all groups"),
        (Plan("best_group", group=card["suit"], limit=3), equal),
        (Plan("top", (), (card["card"],), measure=card["gain"], limit=3), equal),
    ):
        one = written(plan, unit)
        with pytest.raises(Refused, match=why):
            found = sql_tasks.gold_rows(plan, unit, one)
            agreed(plan, unit, found, one, second, ROWS)
            sql_tasks.clauses_needed(plan, unit, one, question(plan, unit, Random(1)), found, 1)
    second.close()


@pytest.mark.parametrize(
    ("original", "words", "name"), tables("queries")["names_keep_their_letters"]
)
def test_names_keep_their_letters(original: str, words: str, name: str) -> None:
    assert (plain_words(original), identifier(original, set())) == (words, name)
    assert identifier(original, {name}) == f"{name}_2"


# --- the command


def build(
    out: Path, *folders: Path, count: int = 24, more: str = "--heldout-share 0"
) -> list[Task]:
    words = ["--tables", *map(str, folders), "--out", str(out), "--count", str(count)]
    assert sql_build.main([*words, "--workers", "1", *more.split()]) == 0
    return read_tasks(out / "train.jsonl")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("sql")
    more = "--heldout-share 0 --validation-share 0 --stated-licence CC0-1.0"
    build(top / "out", SHOP, more=more)
    return top / "out"


@pytest.fixture(scope="module")
def tasks(out: Path) -> list[Task]:
    return read_tasks(out / "train.jsonl")


def tables_of(task: Task) -> tuple[Table, ...]:
    return unpacked(str(task.gold["database"])).tables


def test_tasks_carry_what_they_need_and_pay_gold_alone(tasks: list[Task]) -> None:
    assert len(tasks) == 24 == len({t.id for t in tasks})
    assert len({t.meta["kind"] for t in tasks}) >= 10
    for task in tasks:
        assert task.meta["licence"] == "CC0-1.0" and task.meta["source"] == "shop"
        asked = task.prompt[0]["content"]
        assert "CREATE TABLE" in asked and task.meta["question"] in asked and "```sql" in asked
        assert all(clause in asked for clause in task.meta["clauses"])
        assert str(task.gold["sql"]) not in asked and not task.files
        if task.meta["kind"] in ("top", "top_each", "above_average"):  # it says which rows they are
            assert len({*map(tuple, task.gold["result"])}) == len(task.gold["result"])
        assert score_answer(task, Answer(str(SQL.gold(task)))).reward == 1.0
        lists = [f"SELECT * FROM {t.name}" for t in tables_of(task)]
        columns = [(c.name, t.name) for t in tables_of(task) for c in t.columns]
        lists += [f"SELECT DISTINCT {column} FROM {table}" for column, table in columns]
        for sql in [*lists, "SELECT 42", "SELECT NULL WHERE 0"]:
            assert score_answer(task, Answer(fenced(sql))).reward == 0.0, sql


def test_every_command_takes_the_tasks(out: Path, tasks: list[Task], tmp_path: Path) -> None:
    file = str(out / "train.jsonl")
    lines = [json.dumps({"id": t.id, "output": SQL.gold(t)}) for t in tasks]
    (tmp_path / "outputs.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    scored = here(tmp_path, "score", "--tasks", file, "outputs.jsonl").splitlines()
    assert [json.loads(line)["reward"] for line in scored] == [1.0] * len(tasks)
    here(tmp_path, "audit", "--tasks", file)
    here(tmp_path, "eval", "--tasks", file, "--model", "gold", "--out", "eval")
    assert all(row["outcome"] == 1.0 for row in rows(tmp_path / "eval" / "rows.jsonl"))
    here(tmp_path, "push", str(out), "--out", "set")
    here(tmp_path, "tasks", "check", file, "--against", file, status=1)


def test_splits_by_table_and_the_same_bytes_for_any_number_of_workers(tmp_path: Path) -> None:
    made: list[dict[str, bytes]] = []
    for workers in ("1", "2"):
        out = tmp_path / f"out{workers}"
        more = f"--heldout-share 0.4 --validation-share 0.1 --workers {workers}"
        build(out, SHOP, QUERIES / "shops", count=9, more=more)
        made.append({p.name: p.read_bytes() for p in sorted(out.glob("*.json*"))})
    assert made[0] == made[1] and {"train.jsonl", "certificate.json"} <= made[0].keys()
    sides = {n: {t.meta["source"] for t in read_tasks(out / f"{n}.jsonl")} for n in SPLITS}
    assert sides["train"] and sides["heldout"] and not sides["train"] & sides["heldout"]
    proof = json.loads((out / "certificate.json").read_text())
    assert proof["ok"] and proof["shared"]["train and heldout"] == {"tables": 0}


def test_all_rows_are_asked_about_or_what_is_left_out_is_said(tmp_path: Path) -> None:
    made = build(tmp_path / "all", QUERIES / "firmen", count=6)
    assert {len(tables_of(t)[0].rows) for t in made} == {1200}
    assert not any("rows" in t.meta for t in made)
    said = "firmen: first 500 of 1,200 rows"
    made = build(tmp_path / "cut", QUERIES / "firmen", count=6, more="--heldout-share 0 --rows 500")
    proof = json.loads((tmp_path / "cut" / "certificate.json").read_text())
    assert all(t.meta["rows"] == [said] for t in made)
    assert proof["sql"]["rows_left_out"] == {"firmen/firmen.csv": said}


def test_a_relational_database_gives_joins(tmp_path: Path) -> None:
    (tmp_path / "clinic").mkdir()
    with closing(sqlite3.connect(tmp_path / "clinic" / "clinic.sqlite")) as db:
        db.executescript((QUERIES / "clinic.sql").read_text("utf-8"))
        db.commit()
    made = build(tmp_path / "out", tmp_path / "clinic", count=12)
    both = [t.prompt[0]["content"] for t in made if t.meta["tables_asked"] == "2"]
    assert both and all("REFERENCES doctor (doctor_id)" in p for p in both)


def test_a_table_like_a_held_out_one_is_in_no_other_split(tasks: list[Task]) -> None:
    """The same customers again, some rows fewer and under another name."""
    held = replace(next(t for t in tasks if t.meta["tables_asked"] == "1"), split="heldout")
    (table,) = tables_of(held)
    fewer = replace(table, name="again", rows=table.rows[: len(table.rows) * 3 // 4])
    rng = Random(8)
    columns = (Column("word", "TEXT"), Column("a", "REAL"), Column("b", "REAL"))
    cells = tuple((f"w{i}", rng.gauss(0, 1), rng.gauss(5, 2)) for i in range(50))
    kin, own = (
        replace(held, id=n, split="train", gold={**held.gold, "database": packed(Database((t,)))})
        for n, t in (("kin", fewer), ("own", Table("numbers", columns, cells)))
    )
    reasons: Counter[str] = Counter()
    assert [t.id for t in without_like([kin, own, held], reasons)] == [held.id, "own"]
    assert reasons[LIKE] == 1
