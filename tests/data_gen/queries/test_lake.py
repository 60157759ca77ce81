"""Folders of tables: read in every form, described, joined, divided into splits; what is said of
each input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("openpyxl")
pytest.importorskip("pyarrow")

from lake_files import FORMS, frame, lake_of_all, open_lake, surveyed  # noqa: E402
from places import ROOT, tables  # noqa: E402

from assay.tables.load import load  # noqa: E402
from data_gen.certificate import Tally  # noqa: E402
from data_gen.describe import About, read_describe  # noqa: E402
from data_gen.queries.carried import top_lines, write_frames  # noqa: E402
from data_gen.queries.lake import Lake, about, divided  # noqa: E402
from data_gen.queries.lake_questions import one_order, question_for  # noqa: E402
from data_gen.queries.ops import Split  # noqa: E402

QUERIES = ROOT / "tests/data/queries"

# --- tables and their columns


def test_every_form_is_found_read_back_and_the_same_bytes_twice(tmp_path: Path) -> None:
    """And what cannot be read ends nothing."""
    place = lake_of_all(tmp_path / "lake")
    (place / "broken.parquet").write_bytes(b"PAR1 no")
    (place / "deep.json").write_text('[{"a": {"b": 1}}]', encoding="utf-8")
    (place / "paper.pdf").write_bytes(b"no table")
    lake = open_lake(place)
    assert "no readable parquet file" in lake.refused["broken.parquet"]
    assert "holds objects or lists" in lake.refused["deep.json"]
    assert "lake/paper.pdf" in {one.name for one in lake.inputs({}, Tally())}
    tables = {t.path: t for t in lake.tables if t.reading.part != "More"}
    assert len(lake.tables) == len(tables) + 1 == len(FORMS) + 1
    for number, layout in enumerate(FORMS):
        table, reading = tables[layout.path], tables[layout.path].reading
        want = frame(number).rename(columns={"Height": f"Height {number}"})
        assert (table.rows, list(table.columns)) == (len(want), list(want.columns))
        assert (table.years, table.groups, table.names) == (("Built",), ("Kind",), ("Name",))
        assert table.numbers == (f"Height {number}", "Cost") and table.totals == ("Cost",)
        assert load(reading, lake.folder)["Kind"].tolist() == want["Kind"].tolist()
        if layout.form in ("csv", "excel"):
            place = lake.folder / layout.path
            top = top_lines(place, layout.form, reading.part, reading.skip, reading.encoding)
            assert top == layout.top
        for out in ("a", "b"):
            write_frames(tmp_path / out, [(layout, frame())])
        one, two = ((tmp_path / out / layout.path).read_bytes() for out in ("a", "b"))
        assert one == two
    assert len({t.digest for t in open_lake(tmp_path / "a").tables}) == 1  # in any form


def test_a_matrix_is_no_table() -> None:
    """Rows that are named as the columns."""
    lake = open_lake(QUERIES / "matrix")
    assert not lake.tables and len(lake.refused) == 2
    assert all("matrix" in why for why in lake.refused.values())


def test_a_column_that_holds_two_things_is_parted(tmp_path: Path) -> None:
    table = surveyed(4)
    pairs = list(zip(table["Name"], table["Kind"], range(90), strict=True))
    place, who = [f"{n}, {k}" for n, k, _ in pairs], [f"{n} ({1990 + i % 9})" for n, _, i in pairs]
    out = pd.DataFrame({"Place": place, "Who": who, "Height": table["Height"]})
    out.to_csv(tmp_path / "t.csv", index=False)
    lake = open_lake(tmp_path)
    cuts = {(h.column, h.cut) for h in lake.tables[0].halves}
    assert cuts == {("Place", "after_comma"), ("Who", "in_brackets")}
    asked = [question_for(lake.tables, "group_values", draw) for draw in range(20)]
    assert all("after the last comma" in a.text or "in brackets" in a.text for a in asked)
    found = {op.column for a in asked for op in a.ops or () if isinstance(op, Split)}
    assert found == {"Place", "Who"}


def test_what_a_user_says_of_tables(tmp_path: Path) -> None:
    file = tmp_path / "about.yaml"
    said = "'sales/*.csv':\n  title: Sales by shop\n  licence: CC0\n  columns: {v1: units sold}\n"
    file.write_text(said, encoding="utf-8")
    found = read_describe(file)
    assert about("sales/a.csv", found) == About("Sales by shop", "CC0", "", {"v1": "units sold"})
    assert about("other.csv", found, "MIT") == About("", "MIT")
    (tmp_path / "lake" / "sales").mkdir(parents=True)
    table = surveyed(6).rename(columns={"Sales": "v1"})
    table.to_csv(tmp_path / "lake" / "sales" / "a.csv", index=False)
    (plain,), (described,) = (open_lake(tmp_path / "lake", d).tables for d in ({}, found))
    assert plain.numbers == ("Height",)  # v1 says nothing
    assert described.numbers == ("Height", "v1") and described.totals == ("v1",)
    texts = [question_for([described], "group_values", draw).text for draw in range(10)]
    assert any("'v1' (units sold)" in t for t in texts)


# --- joins


def links(lake: Lake) -> set[tuple[str, str, str]]:
    pairs = zip(lake.tables, lake.links, strict=True)
    return {(t.key, lake.tables[k.other].key, k.mine) for t, own in pairs for k in own}


def test_a_key_of_many_values_joins_and_one_spelled_otherwise_does_not() -> None:
    assert ("sales.csv", "goods.csv", "sku") in links(open_lake(QUERIES / "goods"))
    assert links(open_lake(QUERIES / "goods_folded")) == set()


@pytest.mark.parametrize(("values", "one"), tables("queries")["one_alphabetical_order"])
def test_one_alphabetical_order(values: list[str], one: bool) -> None:
    assert one_order(values) is one


# --- splits


def paths(lakes: list[Lake]) -> list[str]:
    return [t.path for lake in lakes for t in lake.tables]


def test_of_copies_the_one_without_doubts_is_used(tmp_path: Path) -> None:
    table = surveyed(1)
    table["Price"] = [150.25 + i for i in range(len(table))]
    table.to_csv(tmp_path / "b.csv", index=False)
    table.loc[::9, "Price"] = 999
    table.to_csv(tmp_path / "a.csv", index=False)
    lake = open_lake(tmp_path)
    assert {t.path: bool(t.doubts) for t in lake.tables} == {"a.csv": True, "b.csv": False}
    (kept,) = divided([lake], [], 0.0, 0.0, 0)["train"]
    assert paths([kept]) == ["b.csv"] and "a.csv" in kept.refused


def test_copies_rows_and_units_of_a_table_never_stand_on_two_sides(tmp_path: Path) -> None:
    whole, other = surveyed(1, 300), surveyed(2, 300)
    scaled = whole.assign(Name=[f"other {i}" for i in range(300)])
    scaled[["Height", "Sales"]] = (whole[["Height", "Sales"]] * 1000).round()
    lake: dict[str, Any] = {
        "sorted": whole.sort_values("Height", ascending=False),
        "turned": whole[["Sales", "Kind", "Name", "Height"]].iloc[::-1],
        "rows": whole.iloc[20:260],
        "units": scaled,
    }
    for place in range(6):  # rows of one table, on the training side or in validation: not both
        lake[f"part{place}"] = other.iloc[place * 10 : 240 + place * 10]
        lake[f"own{place}"] = surveyed(3 + place)
    for name, table in lake.items():
        (tmp_path / "train").mkdir(exist_ok=True)
        table.to_csv(tmp_path / "train" / f"{name}.csv", index=False)
    (tmp_path / "held").mkdir()
    whole.to_csv(tmp_path / "held" / "whole.csv", index=False)
    train, test = ([open_lake(tmp_path / name)] for name in ("train", "held"))
    sides = set[bool]()
    for seed in range(12):
        mine, theirs, held = divided(train, test, None, 0.4, seed).values()
        assert paths(held) == ["whole.csv"]
        assert {"sorted.csv", "turned.csv", "rows.csv", "units.csv"} <= mine[0].refused.keys()
        one, two = ({p for p in paths(x) if p.startswith("part")} for x in (mine, theirs))
        assert len(one) * len(two) == 0 and len(one | two) == 6
        sides.add(bool(one))
    assert sides == {True, False}


# --- lakes of the tables that packages carry
