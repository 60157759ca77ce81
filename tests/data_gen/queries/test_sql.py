"""`assay tasks sql`: two ways to gold that notice each other, other readings told apart or
refused, and tasks that every command takes."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from assay_command import here, rows
from lake_files import write_lines

pytest.importorskip("pandas")
pytest.importorskip("duckdb")

from assay.family import BUILT_IN, score_answer
from assay.tables.load import load
from assay.task import Answer, Task, read_tasks
from data_gen.pipeline import pieces
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

CITIES = ("Lyon", "Bern", "Oslo", "Kyiv", "Rome", "Graz", "Turin", "Basel")


def write_shop(folder: Path, seed: int = 0) -> Path:
    """Customers with missing values, and orders that mostly name a customer."""
    rng = Random(seed)
    folder.mkdir(parents=True)
    people = [f"Customer {seed}-{i}" for i in range(60)]
    with open(folder / "customers.csv", "w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["customer", "city", "segment", "age", "income", "since"])
        for name in people:
            segment = rng.choice(["retail", "trade", "public", ""])
            income = round(rng.gauss(3000, 900), 1) if rng.random() < 0.9 else ""
            since = rng.randint(1981, 2019)
            row = [name, rng.choice(CITIES), segment, rng.randint(18, 80), income, since]
            out.writerow(row)
    with closing(sqlite3.connect(folder / "sales.sqlite")) as db:
        db.execute("CREATE TABLE orders (order_date, customer, channel, price, quantity)")
        for _ in range(300):
            day = f"20{rng.randint(18, 23)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
            who = rng.choice(people[:50]) if rng.random() < 0.97 else "Walk-in"
            row = (
                day,
                who,
                rng.choice(("web", "shop", "phone")),
                round(rng.expovariate(1 / 50), 2),
                rng.randint(1, 40),
            )
            db.execute("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", row)
        db.commit()
    return folder


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


def rows_of(unit: Unit, plan: Plan) -> Any:
    return run(unit.database, written(plan, unit).sql)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return opened(write_shop(tmp_path_factory.mktemp("sql") / "shop"))


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
    kinds, starts = set[str](), set[str]()
    for unit, plan in drafts(shop):
        found, text = rows_of(unit, plan), question(plan, unit, Random(plan.shape))
        assert "{" not in text and "  " not in text and "None" not in text, text
        assert text[0].isupper() or text[0].isdigit()
        for one in plan.filters:
            assert one.field.words in text and sql_write.SIGNS[one.sign] in text
        starts.add(" ".join(text.split()[:2]))
        assert not isinstance(found, Failed), written(plan, unit).sql
        if not any(cell is None for row in found for cell in row):  # these are refused before
            agreed(plan, unit, found, written(plan, unit), second, ROWS)
            kinds.add(plan.kind)
    assert kinds == {*ONE, *TWO} and len(starts) >= 20


BROKEN = {
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


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_query_is_noticed(name: str, shop: list[Unit], second: Second) -> None:
    changed = 0
    for unit, plan in drafts(shop, 8):
        good = written(plan, unit)
        bad = replace(good, sql=good.sql.replace(*BROKEN[name]))
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
    apostrophe = Plan("count", (Filter(fields["city"], "=", "L'Aquila"),))
    assert 'city is "L\'Aquila"' in question(apostrophe, unit, Random(1))


def test_what_is_refused(tmp_path: Path) -> None:
    """Ranks among equals, fewer rows than asked for, counts of cells; and a column named as a query
    names its own is no reason."""
    cards = (
        f"card {i * 7 % 240},{'abcdef'[i % 6] * 3},{i % 12},{min(i * 37 % 101, 70) / 7:.3f}"
        for i in range(240)
    )
    write_lines(tmp_path / "cards.csv", "card,suit,round_no,gain", cards)
    runs = (f"{i + 1},{'abc'[i % 3] * 4},{150 + i * 37 % 101 / 4}" for i in range(60))
    write_lines(tmp_path / "runs.csv", "place,club,minutes", runs)
    crossed = [(a, b, c) for a in "abcd" for b in "pqrs" for c in "xyz"]
    cells = (f"{a * 3},{b * 3},{c * 3},{7 + i * i % 83}" for i, (a, b, c) in enumerate(crossed))
    write_lines(tmp_path / "t.csv", "dose_of,kind,place,Freq", cells)
    lake = opened(tmp_path)
    by_name = {u.made[0].table.name: u for u in units(lake)}
    fields = {n: {f.name: f for f in u.made[0].fields} for n, u in by_name.items()}
    second = Second(lake.folder)
    unit, card = by_name["cards"], fields["cards"]
    gains = Filter(card["gain"], "<", 0.1)
    for plan, why in (
        (
            Plan("top", (gains,), (card["suit"],), measure=card["gain"], limit=5),
            "fewer rows than are asked for",
        ),
        (Plan("group", group=card["suit"]), "one figure for all groups"),
        (Plan("best_group", group=card["suit"], limit=3), "all that is ranked is equal"),
        (
            Plan("top", (), (card["card"],), measure=card["gain"], limit=3),
            "all that is ranked is equal",
        ),
    ):
        one = written(plan, unit)
        with pytest.raises(Refused) as caught:
            found = sql_tasks.gold_rows(plan, unit, one)
            agreed(plan, unit, found, one, second, ROWS)
            text = question(plan, unit, Random(1))
            sql_tasks.clauses_needed(plan, unit, one, text, found, 1)
        assert str(caught.value.why) == why
    unit, club = by_name["runs"], fields["runs"]
    plan = Plan(
        "top_each", (), (club["place"],), club["club"], club["minutes"], limit=2, down=False
    )
    one = written(plan, unit)
    assert agreed(plan, unit, rows_of(unit, plan), one, second, ROWS) == "agreed"
    for kind in ("count", "share", "having"):
        with pytest.raises(NoPlan):
            draft(by_name["t"], kind, Random(1))
    second.close()


def test_names_keep_their_letters() -> None:
    for original, words, name in (
        ("Gründung", "Gründung", "gründung"),
        ("Tage überfällig", "Tage überfällig", "tage_überfällig"),
        ("power kW", "power kW", "power_kw"),
        ("売上", "売上", "売上"),
        ("ชื่อ", "ชื่อ", "ชื่อ"),
        ("Umsatz (Mio. €)", "'Umsatz (Mio. €)'", "umsatz_mio"),
        ("floorArea", "floor area", "floor_area"),
        ("TOTAL_SALES", "total sales", "total_sales"),
    ):
        assert (plain_words(original), identifier(original, set())) == (words, name)
    assert identifier("Größe", {"größe"}) == "größe_2"


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
    build(top / "out", write_shop(top / "shop0"), more=more)
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
        assert task.meta["licence"] == "CC0-1.0" and task.meta["source"] == "shop0"
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
    folders = [write_shop(tmp_path / f"shop{seed}", seed) for seed in range(2)]
    made: list[dict[str, bytes]] = []
    for workers in ("1", "2"):
        out = tmp_path / f"out{workers}"
        more = f"--heldout-share 0.4 --validation-share 0.1 --workers {workers}"
        build(out, *folders, count=9, more=more)
        made.append({p.name: p.read_bytes() for p in sorted(out.glob("*.json*"))})
    assert made[0] == made[1] and {"train.jsonl", "certificate.json"} <= made[0].keys()
    sides = {n: {t.meta["source"] for t in read_tasks(out / f"{n}.jsonl")} for n in SPLITS}
    assert sides["train"] and sides["heldout"] and not sides["train"] & sides["heldout"]
    proof = json.loads((out / "certificate.json").read_text())
    assert proof["ok"] and proof["shared"]["train and heldout"] == {"tables": 0}


def test_short_prompts(tmp_path: Path) -> None:
    shop = write_shop(tmp_path / "shop2", 2)
    for task in build(tmp_path / "out", shop, count=8, more="--short --heldout-share 0"):
        assert pieces(task.prompt[0]["content"]) <= 325 and task.meta["tables_asked"] == "1"
        assert all(len(t.columns) <= 8 for t in tables_of(task))


def test_all_rows_are_asked_about_or_what_is_left_out_is_said(tmp_path: Path) -> None:
    lines = (
        f"{('Köln', 'Wien', 'Zürich', 'Graz')[i * i % 7 % 4]},{1900 + i * 37 % 110},"
        f"{i * i * 13 % 97},2023-{i % 12 + 1:02d}-{i % 28 + 1:02d}"
        for i in range(1200)
    )
    write_lines(tmp_path / "own" / "firmen.csv", "Ort,Gründung,Tage überfällig,day", lines)
    made = build(tmp_path / "all", tmp_path / "own", more="--heldout-share 0")
    proof = json.loads((tmp_path / "all" / "certificate.json").read_text())
    assert {len(tables_of(t)[0].rows) for t in made} == {1200}
    assert proof["sql"]["rows_left_out"] == {} and not any("rows" in t.meta for t in made)
    assert "Tage überfällig" in " ".join(str(t.meta["question"]) for t in made)
    for task in (t for t in made if t.meta["kind"] == "date_part"):
        words = str(task.meta["question"])
        part = next(p for p in ("year", "month", "decade") if f"Return the {p} " in words)
        assert all("Leave out any" not in c or f"any {part} " in c for c in task.meta["clauses"])
    said = "firmen: first 500 of 1,200 rows"
    made = build(tmp_path / "cut", tmp_path / "own", count=6, more="--heldout-share 0 --rows 500")
    proof = json.loads((tmp_path / "cut" / "certificate.json").read_text())
    assert all(t.meta["rows"] == [said] for t in made)
    assert proof["sql"]["rows_left_out"] == {"own/firmen.csv": said}
    assert said in (tmp_path / "cut" / "refused.jsonl").read_text()


def test_a_relational_database_gives_joins(tmp_path: Path) -> None:
    (tmp_path / "clinic").mkdir()
    with closing(sqlite3.connect(tmp_path / "clinic" / "clinic.sqlite")) as db:
        db.executescript(
            "create table doctor(doctor_id integer primary key, name text, ward text);"
            "create table visit(visit_id integer primary key, doctor_id integer references doctor,"
            " outcome text, cost real);"
        )
        doctors = [(i + 1, f"Dr {chr(65 + i)}ble", ("cardio", "ortho")[i % 2]) for i in range(14)]
        db.executemany("insert into doctor values (?, ?, ?)", doctors)
        visits = [
            (i + 1, i * i % 13 + 1, ("healed", "referred")[i * i % 5 % 2], 20 + i * i % 301 / 4)
            for i in range(400)
        ]
        db.executemany("insert into visit values (?, ?, ?, ?)", visits)
        db.commit()
    made = build(tmp_path / "out", tmp_path / "clinic")
    both = [t.prompt[0]["content"] for t in made if t.meta["tables_asked"] == "2"]
    assert both and "clinic.sqlite [doctor]" in {k for t in made for k in t.meta["keys"]}
    assert all("REFERENCES doctor (doctor_id)" in p and "CREATE TABLE doctor" in p for p in both)


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
