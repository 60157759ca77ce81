"""Which tables are joined: by keys of many values and foreign keys, never by a guess."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("pandas")
pytest.importorskip("duckdb")

from data_gen.queries.lake import Folder, Lake, open_lake, open_lakes
from data_gen.queries.lake_steps import one_order
from data_gen.tally import Tally

SKUS = [f"SKU-{i:03d}" for i in range(150)]


def write_shop(folder: Path, fold: bool) -> Path:
    folder.mkdir()
    goods = ["sku,category,list_price"]
    goods += [
        f"{s},{('bath', 'office', 'yard')[i % 7 % 3]},{i * i % 97 + 0.5}"
        for i, s in enumerate(SKUS)
    ]
    sales = ["sku,revenue"]
    sales += [f"{SKUS[i * i % 149]},{i * i % 211 + 0.25}" for i in range(600)]
    text = "\n".join(sales) + "\n"
    (folder / "goods.csv").write_text("\n".join(goods) + "\n", encoding="utf-8")
    (folder / "sales.csv").write_text(text.lower() if fold else text, encoding="utf-8")
    return folder


def write_clinic(folder: Path) -> Path:
    folder.mkdir()
    with closing(sqlite3.connect(folder / "clinic.sqlite")) as db:
        db.executescript(
            "create table doctor(doctor_id integer primary key, name text, ward text);"
            "create table visit(visit_id integer primary key, doctor_id integer references doctor,"
            " outcome text, cost real);"
        )
        wards = ("cardio", "ortho", "derma")
        db.executemany(
            "insert into doctor values (?, ?, ?)",
            [(i + 1, f"Dr {chr(65 + i)}ble", wards[i % 3]) for i in range(14)],
        )
        db.executemany(
            "insert into visit values (?, ?, ?, ?)",
            [
                (i + 1, i * i % 13 + 1, ("healed", "referred")[i * i % 5 % 2], 20 + i * i % 301 / 4)
                for i in range(400)
            ],
        )
        db.commit()
    return folder


def links(lake: Lake) -> set[tuple[str, str, str]]:
    return {
        (lake.tables[place].key, lake.tables[link.other].key, link.mine)
        for place, found in enumerate(lake.links)
        for link in found
    }


def test_a_key_of_many_values_joins(tmp_path: Path) -> None:
    lake = open_lake(write_shop(tmp_path / "shop", fold=False))
    assert ("sales.csv", "goods.csv", "sku") in links(lake)
    assert lake.apart == {}


def test_a_key_that_is_spelled_otherwise_is_said_and_joins_nothing(tmp_path: Path) -> None:
    lake = open_lake(write_shop(tmp_path / "shop", fold=True))
    assert links(lake) == set()
    said = {one.name: one.why for one in lake.inputs({"sales.csv": 3}, Tally())}
    assert any("sku-000 / SKU-000" in why for why in said["shop/sales.csv"])


def test_foreign_keys_join_small_tables_without_measures(tmp_path: Path) -> None:
    folder = write_clinic(tmp_path / "clinic")
    (lake,) = open_lakes([Folder(folder, bare=True)], map)
    visit, doctor = "clinic.sqlite [visit]", "clinic.sqlite [doctor]"
    assert (visit, doctor, "doctor_id") in links(lake)
    assert doctor not in {t.key for t in open_lake(folder).tables}  # no measure: no lake question


@pytest.mark.parametrize(
    ("values", "one"),
    [
        (["Aldra", "Corva", "Zell"], True),
        (["Krüger", "Özdemir", "Schäfer"], False),  # Ö beside O, or behind Z
        (["apple", "Banana"], False),
        (["大阪", "東京"], False),
    ],
)
def test_one_alphabetical_order(values: list[str], one: bool) -> None:
    assert one_order(values) is one
