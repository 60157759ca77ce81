"""Folders of tables: read in every form, described, joined, divided into splits; what is said of
each input."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("openpyxl")
pytest.importorskip("pyarrow")

from lake_files import FORMS, frame, lake_of_all, open_lake, surveyed, write_lines  # noqa: E402

from assay.tables.load import load  # noqa: E402
from assay.tables.settings import Doubt  # noqa: E402
from assay.task import TaskError  # noqa: E402
from data_gen.certificate import Refusal, Tally  # noqa: E402
from data_gen.describe import About, read_describe  # noqa: E402
from data_gen.proof import marks  # noqa: E402
from data_gen.proof.forms import Shelf  # noqa: E402
from data_gen.queries import carried  # noqa: E402
from data_gen.queries.carried import top_lines, write_frames  # noqa: E402
from data_gen.queries.lake import Folder, Lake, about, divided, open_lakes  # noqa: E402
from data_gen.queries.lake_questions import one_order, question_for  # noqa: E402
from data_gen.queries.ops import Split  # noqa: E402
from data_gen.queries.tables import Link, beside  # noqa: E402
from rollouts.krama.index import describe, index_lake  # noqa: E402

# --- tables and their columns


def test_every_form_is_found_read_back_and_the_same_bytes_twice(tmp_path: Path) -> None:
    lake = open_lake(lake_of_all(tmp_path / "lake"))
    assert set(lake.refused) == {"."}  # tables.yaml is no table
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
    assert {t.said for t in lake.tables if t.reading.form == "excel"} == {
        "sheet 'Homes' of book.xlsx",
        "sheet 'More' of book.xlsx",
    }
    assert len({t.digest for t in open_lake(tmp_path / "a").tables}) == 1  # in any form


def test_a_file_that_cannot_be_read_ends_nothing(tmp_path: Path) -> None:
    lake = lake_of_all(tmp_path / "lake")
    (lake / "broken.parquet").write_bytes(b"PAR1 no")
    (lake / "deep.json").write_text('[{"a": {"b": 1}}]', encoding="utf-8")
    lists = pd.DataFrame({"town": ["a", "b"] * 20, "tags": [["x"]] * 40, "sales": range(40)})
    lists.to_parquet(lake / "lists.parquet")
    for name in ("paper.pdf", "README.md"):
        (lake / name).write_bytes(b"no table")
    again, found = index_lake(lake), open_lake(lake)
    assert (again["broken.parquet"].kind, again["deep.json"].kind) == ("binary", "text")
    assert "no readable parquet file" in found.refused["broken.parquet"]
    assert "holds objects or lists" in found.refused["deep.json"]
    lines = {one.name: one.why for one in found.inputs({}, Tally())}
    assert {f"lake/{n}" for n in ("paper.pdf", "lists.parquet", "tabs.tsv")} <= set(lines)
    assert any("README.md" in why for whys in lines.values() for why in whys)


def test_what_is_no_measure_group_or_series(tmp_path: Path) -> None:
    """Cells and names with line breaks, rows named as the columns, years of birth."""
    ends = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
    for number, end in enumerate(ends):
        rows = [
            {"Kind": f"x{end}y" if i % 2 else "y", "Height": i * 37 % 101 / 3, f"w{end}": i / 7}
            for i in range(60)
        ]
        (tmp_path / f"t{number}.json").write_text(json.dumps(rows), encoding="utf-8")
    names = [f"part{c}" for c in "abcdefghijklmnop"]
    cells = [[str((i * j * 37) % 101 / 101) for j in range(16)] for i in range(16)]
    matrix = [",".join([name, *row]) for name, row in zip(names, cells, strict=True)]
    for file, mark in (("m.csv", ""), ("n.csv", "cov.")):
        write_lines(tmp_path / file, "name," + ",".join(f"{mark}{n}" for n in names), matrix)
    lake = open_lake(tmp_path)
    assert not lake.tables and len(lake.refused) == len(ends) + 2
    assert all("matrix" in lake.refused[name] for name in ("m.csv", "n.csv"))
    assert all("to group by" in lake.refused[f"t{n}.json"] for n in range(len(ends)))
    years = (f"{1950 + i % 30},{2000 + i % 20},{40 + i * 37 % 101 / 3:.2f}" for i in range(120))
    write_lines(tmp_path / "y" / "t.csv", "birth_year,year,weight", years)
    for bare, asked in ((False, ("year",)), (True, ("birth_year", "year"))):
        (found,) = open_lakes([Folder(tmp_path / "y", bare=bare)], map)
        assert found.tables[0].years == asked


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
    assert all("a.csv (Sales by shop)" in t and t.count("(units sold)") < 2 for t in texts)
    for text, why in (
        ("- a\n", "wanted names with values"),
        ("a.csv: words\n", "no field 'a.csv'"),
        ("a.csv: {titel: x}\n", "no field 'titel'; did you mean 'title'"),
        ("a.csv: {columns: [x]}\n", "columns: wanted names with values"),
        ("columns: {a: [1]}\n", "column a: wanted words"),
        ("a: [", "no YAML"),
    ):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(TaskError, match="--describe") as caught:
            read_describe(file)
        assert why in str(caught.value)


def test_why_an_input_gave_no_more_is_said(tmp_path: Path) -> None:
    surveyed(1).to_csv(tmp_path / "t.csv", index=False)
    lake, tally = open_lake(tmp_path), Tally()
    assert "other tables gave enough" in lake.inputs({}, tally)[0].why[0]
    for why in ("proof: differs", "proof: differs", "ambiguous"):
        tally.refuse(Refusal(why), [lake.input_name("t.csv")])
    assert "2 of 3: proof: differs" in lake.inputs({}, tally)[0].why[0]
    doubt = Doubt("alike_values", "'Food' and 'food' differ by case alone", column="town")
    lake.tables = [replace(t, doubts=(doubt,)) for t in lake.tables]
    (one,) = lake.inputs({"t.csv": 2}, Tally())
    assert one.doubts == (doubt,) and one.used and not one.why


# --- joins


def links(lake: Lake) -> set[tuple[str, str, str]]:
    pairs = zip(lake.tables, lake.links, strict=True)
    return {(t.key, lake.tables[k.other].key, k.mine) for t, own in pairs for k in own}


def test_a_key_of_many_values_joins_and_one_spelled_otherwise_is_said(tmp_path: Path) -> None:
    skus = [f"SKU-{i:03d}" for i in range(150)]
    goods = [f"{s},{('bath', 'yard')[i % 7 % 2]},{i * i % 97 + 0.5}" for i, s in enumerate(skus)]
    sales = [f"{skus[i * i % 149]},{i * i % 211 + 0.25}" for i in range(600)]
    for name, rows in (("shop", sales), ("fold", [row.lower() for row in sales])):
        write_lines(tmp_path / name / "goods.csv", "sku,category,list_price", goods)
        write_lines(tmp_path / name / "sales.csv", "sku,revenue", rows)
    shop, fold = open_lake(tmp_path / "shop"), open_lake(tmp_path / "fold")
    assert ("sales.csv", "goods.csv", "sku") in links(shop) and shop.apart == {}
    assert links(fold) == set()
    said = {one.name: one.why for one in fold.inputs({"sales.csv": 3}, Tally())}
    assert any("sku-000 / SKU-000" in why for why in said["fold/sales.csv"])


def test_yearly_tables_are_joined_where_they_speak_of_one_thing(tmp_path: Path) -> None:
    for name, columns, shift in (
        ("rain", "north,south,east", 17),
        ("heat", "mean heat,south,east", 19),
        ("deaths", "lions,tigers,bears", 23),
    ):
        years = range(1960, 2000)
        rows = [f"{y},{y * shift % 97 / 7},{y * 13 % 89 / 7},{y * 31 % 83}" for y in years]
        write_lines(tmp_path / f"{name}.csv", f"year,{columns}", rows)
    lands = [f"{'abc'[i % 3]},{1960 + i % 40},{i * 37 % 101 / 3}" for i in range(240)]
    write_lines(tmp_path / "lands.csv", "land,year,height", lands)
    lake = open_lake(tmp_path)
    assert len(lake.tables) == 4
    pairs = {("rain.csv", "heat.csv", "year"), ("heat.csv", "rain.csv", "year")}
    assert links(lake) == pairs


def test_a_second_join_brings_the_other_kind_from_a_third_table() -> None:
    first = Link(1, "k", "k", "Depth", "number")
    others = [
        first,
        Link(1, "k", "k", "Kind", "group"),  # the same table again
        Link(2, "k", "k", "Width", "number"),  # one more measure
        Link(2, "k", "k", "Owner", "group", True),  # the key as a year
        Link(2, "k", "k", "Town", "group"),
        Link(2, "k", "k", "Used", "group"),
    ]
    assert beside(first, others, ["Used"]) == [others[4]]


def test_one_alphabetical_order() -> None:
    for values, one in (
        (["Aldra", "Corva", "Zell"], True),
        (["Krüger", "Özdemir", "Schäfer"], False),  # Ö beside O, or behind Z
        (["apple", "Banana"], False),
        (["大阪", "東京"], False),
    ):
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
    said = {one.name: [d.code for d in one.doubts] for one in kept.inputs({}, Tally())}
    assert said == {f"{lake.name}/b.csv": [], f"{lake.name}/a.csv": ["sentinel"]}


def test_copies_rows_and_units_of_a_table_never_stand_on_two_sides(tmp_path: Path) -> None:
    whole, other, train = surveyed(1, 300), surveyed(2, 300), tmp_path / "train"
    scaled = whole.assign(Name=[f"other {i}" for i in range(300)])
    scaled[["Height", "Sales"]] = (whole[["Height", "Sales"]] * 1000).round()
    tables: dict[str, Any] = {
        "sorted": whole.sort_values("Height", ascending=False),
        "turned": whole[["Sales", "Kind", "Name", "Height"]].iloc[::-1],
        "rows": whole.iloc[20:260],
        "units": scaled,
        "twice": surveyed(3)[["Height", "Kind", "Sales", "Name"]],
    }
    for place in range(6):  # rows of one table, on the training side or in validation: not both
        tables[f"part{place}"] = other.iloc[place * 10 : 240 + place * 10]
        tables[f"own{place}"] = surveyed(3 + place)
    train.mkdir()
    (tmp_path / "held").mkdir()
    whole.to_csv(tmp_path / "held" / "whole.csv", index=False)
    for name, table in tables.items():
        table.to_csv(train / f"{name}.csv", index=False)
    folders, sides = ([open_lake(train)], [open_lake(tmp_path / "held")]), set[bool]()
    for seed in range(12):
        mine, theirs, held = divided(*folders, None, 0.4, seed).values()
        assert paths(held) == ["whole.csv"]
        why = mine[0].refused
        assert why["sorted.csv"] == why["turned.csv"] == "a copy of a table that is held out"
        assert why["twice.csv"] == "a copy of a table that is used already"
        drawn = "its rows or quantities are those of a table that is held out"
        assert why["rows.csv"] == why["units.csv"] == drawn
        one, two = ({p for p in paths(x) if p.startswith("part")} for x in (mine, theirs))
        assert len(one) * len(two) == 0 and len(one | two) == 6
        sides.add(bool(one))
        again = divided(*folders, None, 0.4, seed)["validation"]
        assert paths(again) == paths(theirs)
    assert sides == {True, False}


# --- lakes of the tables that packages carry


def test_carried_tables_lie_in_a_mix_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the extra `tables`, where it is installed, has more than one mixed lake holds
    monkeypatch.setattr("data_gen.queries.carried.PACKAGES", ())
    forms = [[carried.form_of("o", f"t{i}", rows).form for i in range(80)] for rows in (200, 4000)]
    assert set(forms[0]) == {"csv", "excel", "json", "lines", "parquet", "html"}
    assert set(forms[1]) == {"csv", "parquet"}
    assert carried.plain(frame().head(9)) is None
    assert carried.plain(frame().assign(Many=[[1]] * 150)) is None
    pytest.importorskip("sklearn")
    for out in ("a", "b"):
        carried.export_carried(tmp_path / out)
    said = json.loads((tmp_path / "a" / "SOURCES.json").read_text("utf-8"))
    names = [n for n in said if said[n]["from"] == "sklearn"]
    assert 4 <= len(names) <= 8  # some lie in two files
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    for lake in {Path(name).parts[0] for name in names}:
        assert not any("cannot" in why for why in open_lake(tmp_path / "a" / lake).refused.values())


def test_words_for_no_value_are_settled_in_both_readers_and_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gaps(shift: int) -> Any:
        depth = [None if i % 7 == 2 else 1 + (i * 37 + shift) % 800 / 1000 for i in range(90)]
        return frame(shift).head(90)[["Name", "Kind", "Cost"]].assign(Depth=depth)

    items = [carried.Carried("own", f"t{n}", "CC0", lambda n=n: gaps(n)) for n in range(14)]
    monkeypatch.setattr("data_gen.queries.carried._owners", lambda: {"own": items})
    (folder,) = carried.export_carried(tmp_path / "out")
    lake, index = open_lake(folder), index_lake(folder)
    assert not any(t.doubts for t in lake.tables) and not any(lake.doubts.values())
    deep = [t for t in lake.tables if "Depth" in t.numbers]
    words = {t.path: t.reading.missing["Depth"][0] for t in deep if "Depth" in t.holes}
    assert len(deep) == 14 and set(words.values()) == {"M", "n/a", "-9999", "-999"}
    for table in deep:
        place = int(table.path.partition(".")[0].partition("_")[0][1:])
        made = gaps(place).set_index("Name")["Depth"]
        right = made[made.index.isin(table.values["Name"])].dropna()
        one = load(table.reading, folder)["Depth"].dropna()
        held = Shelf(lake.folder).table(table.path, table.reading.part)
        two = [c for (c,) in held.all(f"SELECT {marks.number(held, 'Depth')} FROM {held.table}")]
        two = [c for c in two if c is not None]
        for cells in (one.tolist(), two):
            assert sorted(cells) == pytest.approx(sorted(right.tolist()), abs=1e-6), table.path
        told = describe(table.path, index[table.path])
        assert "in doubt" not in told
        assert table.path not in words or f"{words[table.path]!r}: no value" in told
