"""Tables of files as tables of a database: names and words in any script, and all of their rows."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sql_world import write_shop

pytest.importorskip("pandas")
pytest.importorskip("duckdb")

from assay.task import Task, read_tasks
from data_gen.queries import sql_build as build
from data_gen.queries.database import identifier, plain_words
from rewards.sql.data import unpacked


@pytest.mark.parametrize(
    ("original", "words", "name"),
    [
        ("Gründung", "Gründung", "gründung"),
        ("Tage überfällig", "Tage überfällig", "tage_überfällig"),
        ("power kW", "power kW", "power_kw"),
        ("売上", "売上", "売上"),
        ("ชื่อ", "ชื่อ", "ชื่อ"),
        ("Umsatz (Mio. €)", "'Umsatz (Mio. €)'", "umsatz_mio"),
        ("floorArea", "floor area", "floor_area"),
        ("TOTAL_SALES", "total sales", "total_sales"),
    ],
)
def test_names_keep_their_letters(original: str, words: str, name: str) -> None:
    assert (plain_words(original), identifier(original, set())) == (words, name)


def test_names_that_meet_are_told_apart() -> None:
    assert identifier("Größe", {"größe"}) == "größe_2"


def _asked(folder: Path, out: Path, *words: str) -> tuple[list[Task], dict[str, Any], str]:
    given = ["--tables", str(folder), "--out", str(out), "--count", "24", "--workers", "1"]
    shares = ["--heldout-share", "0", "--validation-share", "0"]
    assert build.main([*given, *shares, *words]) == 0
    proof = json.loads((out / "certificate.json").read_text())
    return read_tasks(out / "train.jsonl"), proof, (out / "refused.jsonl").read_text()


def _long(folder: Path) -> Path:
    folder.mkdir()
    lines = ["Ort,Gründung,Tage überfällig,day"]
    for i in range(1200):
        town = ("Köln", "Wien", "Zürich", "Graz")[i * i % 7 % 4]
        lines.append(
            f"{town},{1900 + i * 37 % 110},{i * i * 13 % 97},2023-{i % 12 + 1:02d}-{i % 28 + 1:02d}"
        )
    (folder / "firmen.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def test_all_rows_are_asked_about(tmp_path: Path) -> None:
    tasks, proof, _ = _asked(_long(tmp_path / "own"), tmp_path / "out")
    assert {len(unpacked(t.gold["database"]).tables[0].rows) for t in tasks} == {1200}
    assert proof["sql"]["rows_left_out"] == {} and not any("rows" in t.meta for t in tasks)
    text = " ".join(str(t.meta["question"]) for t in tasks)
    assert "Tage überfällig" in text and "berf llig" not in text
    for task in (t for t in tasks if t.meta["kind"] == "date_part"):
        part = next(
            p for p in ("year", "month", "decade") if f"Return the {p} " in task.meta["question"]
        )
        assert all("Leave out any" not in c or f"any {part} " in c for c in task.meta["clauses"])


def test_rows_that_are_left_out_are_said(tmp_path: Path) -> None:
    said = "firmen: first 500 of 1,200 rows"
    tasks, proof, refused = _asked(_long(tmp_path / "own"), tmp_path / "out", "--rows", "500")
    assert all(t.meta["rows"] == [said] for t in tasks)
    assert proof["sql"]["rows_left_out"] == {"own/firmen.csv": said} and said in refused


def test_lists_of_rows_say_which_rows_they_are(tmp_path: Path) -> None:
    tasks, _, _ = _asked(write_shop(tmp_path / "shop"), tmp_path / "out")
    for task in tasks:
        if task.meta["kind"] in ("top", "top_each", "above_average"):
            rows = [tuple(row) for row in task.gold["result"]]
            assert len(set(rows)) == len(rows)


def test_a_relational_database_gives_joins(tmp_path: Path) -> None:
    folder = tmp_path / "clinic"
    folder.mkdir()
    with closing(sqlite3.connect(folder / "clinic.sqlite")) as db:
        db.executescript(
            "create table doctor(doctor_id integer primary key, name text, ward text);"
            "create table visit(visit_id integer primary key, doctor_id integer references doctor,"
            " outcome text, cost real);"
        )
        rows = [(i + 1, f"Dr {chr(65 + i)}ble", ("cardio", "ortho")[i % 2]) for i in range(14)]
        db.executemany("insert into doctor values (?, ?, ?)", rows)
        visits = [
            (i + 1, i * i % 13 + 1, ("healed", "referred")[i * i % 5 % 2], 20 + i * i % 301 / 4)
            for i in range(400)
        ]
        db.executemany("insert into visit values (?, ?, ?, ?)", visits)
        db.commit()
    tasks, _, _ = _asked(folder, tmp_path / "out")
    joined = [t for t in tasks if t.meta["tables_asked"] == "2"]
    assert joined and {"clinic.sqlite [doctor]"} <= {k for t in tasks for k in t.meta["keys"]}
    for task in joined:
        asked = task.prompt[0]["content"]
        assert "REFERENCES doctor (doctor_id)" in asked and "CREATE TABLE doctor" in asked
