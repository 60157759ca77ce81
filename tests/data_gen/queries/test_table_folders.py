"""Splits by the content of tables, whatever their order; joins; what a user says of tables."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from front import command

pd = pytest.importorskip("pandas")

from assay.task import TaskError  # noqa: E402
from data_gen.columns import look  # noqa: E402
from data_gen.describe import About, read_describe  # noqa: E402
from data_gen.queries.carried import messy  # noqa: E402
from data_gen.queries.lake import (  # noqa: E402
    about,
    divided,
    open_lake,
)
from data_gen.queries.lake_questions import KINDS, question_for  # noqa: E402
from data_gen.queries.lake_steps import NoQuestion  # noqa: E402
from data_gen.queries.ops import Join, Split  # noqa: E402
from data_gen.queries.tables import links_of  # noqa: E402
from data_gen.tally import Tally  # noqa: E402

main = command("tasks", "lake")
KIND = ("Turm", "Hof", "Haus", "Scheune", "Mühle", "Kirche", "Stall")


def frame(shift: int, rows: int = 90) -> Any:
    rng = Random(shift)
    return pd.DataFrame(
        {
            "Name": [f"n{shift} {i}" for i in range(rows)],
            "Kind": [KIND[i * i % 7] for i in range(rows)],
            "Height": [round(rng.uniform(3, 90), 2) for _ in range(rows)],
            "Sales": [rng.randrange(10, 9000) for _ in range(rows)],
        }
    )


def write(folder: Path, name: str, table: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    table.to_csv(folder / name, index=False)


def test_of_copies_the_one_without_doubts_is_used(tmp_path: Path) -> None:
    table = frame(1)
    table["Price"] = [150.25 + i for i in range(len(table))]
    write(tmp_path / "train", "b.csv", table)
    table.loc[::9, "Price"] = 999
    write(tmp_path / "train", "a.csv", table)
    lake = open_lake(tmp_path / "train")
    assert {t.path: bool(t.doubts) for t in lake.tables} == {"a.csv": True, "b.csv": False}
    (kept,) = divided([lake], [], 0.0, 0.0, 0)["train"]
    assert [t.path for t in kept.tables] == ["b.csv"] and "a.csv" in kept.refused
    said = {one.name: [d.code for d in one.doubts] for one in kept.inputs({}, Tally())}
    assert said == {"train/b.csv": [], "train/a.csv": ["sentinel"]}


def test_copies_in_another_order_never_stand_on_both_sides(tmp_path: Path) -> None:
    plain, other = frame(1), frame(2)
    write(tmp_path / "held", "a.csv", plain)
    write(tmp_path / "train", "b.csv", plain.sort_values("Height", ascending=False))
    write(tmp_path / "train", "c.csv", plain[["Sales", "Kind", "Name", "Height"]].iloc[::-1])
    write(tmp_path / "train", "d.csv", other)
    write(tmp_path / "train", "e.csv", other[["Height", "Kind", "Sales", "Name"]])
    train, valid, held = divided(
        [open_lake(tmp_path / "train")], [open_lake(tmp_path / "held")], None, 0.0, 0
    ).values()
    assert [t.path for lake in train for t in lake.tables] == ["d.csv"] and valid == []
    assert [t.path for lake in held for t in lake.tables] == ["a.csv"]
    why = train[0].refused
    assert why["b.csv"] == why["c.csv"] == "a copy of a table that is held out"
    assert why["e.csv"] == "a copy of a table that is used already"


def test_rows_and_units_of_a_table_never_stand_on_both_sides(tmp_path: Path) -> None:
    whole, other = frame(1, 300), frame(2, 300)
    write(tmp_path / "held", "whole.csv", whole)
    write(tmp_path / "train", "rows.csv", whole.iloc[20:260])
    rescaled = whole.assign(Name=[f"other {i}" for i in range(300)])
    rescaled[["Height", "Sales"]] = (whole[["Height", "Sales"]] * 1000).round()
    write(tmp_path / "train", "units.csv", rescaled)
    for place in range(6):  # rows of one table, on the training side or in validation: not both
        write(tmp_path / "train", f"part{place}.csv", other.iloc[place * 10 : 240 + place * 10])
        write(tmp_path / "train", f"own{place}.csv", frame(3 + place))
    sides = set[bool]()
    for seed in range(12):
        folders = [open_lake(tmp_path / "train")], [open_lake(tmp_path / "held")]
        train, valid, held = divided(*folders, None, 0.4, seed).values()
        assert [t.path for lake in held for t in lake.tables] == ["whole.csv"]
        drawn = "its rows or quantities are those of a table that is held out"
        assert train[0].refused["rows.csv"] == train[0].refused["units.csv"] == drawn
        mine = {t.path for lake in train for t in lake.tables if t.path.startswith("part")}
        theirs = {t.path for lake in valid for t in lake.tables if t.path.startswith("part")}
        assert len(mine) * len(theirs) == 0 and len(mine | theirs) == 6
        sides.add(bool(mine))
    assert sides == {True, False}


def test_validation_holds_other_tables_and_the_command_says_every_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for n in range(8):
        write(tmp_path / "lake", f"t{n}.csv", frame(n, 120))
    (tmp_path / "lake" / "broken.parquet").write_bytes(b"PAR1 no")
    words = [
        "--lakes",
        str(tmp_path / "lake"),
        "--heldout-share",
        "0",
        "--count",
        "20",
        "--validation-share",
        "0.4",
    ]
    assert main([*words, "--out", str(tmp_path / "o"), "--stated-licence", "CC0"]) == 0
    said = capsys.readouterr()
    parts = {
        s: [json.loads(x) for x in (tmp_path / "o" / f"{s}.jsonl").read_text().splitlines()]
        for s in ("train", "validation")
    }
    tables = {s: {k for t in tasks for k in t["meta"]["keys"]} for s, tasks in parts.items()}
    assert parts["validation"] and not tables["train"] & tables["validation"]
    assert all(t["split"] == s for s, tasks in parts.items() for t in tasks)
    proof = json.loads((tmp_path / "o" / "certificate.json").read_text("utf-8"))
    assert proof["proof"]["agreed"] >= sum(map(len, parts.values())) > 8
    assert proof["shared"]["train and validation"] == {"tables": 0}
    assert "gold computed twice: " in said.out
    assert "lake/broken.parquet: refused" in said.err and "licence CC0" in said.err
    refused = (tmp_path / "o" / "refused.jsonl").read_text("utf-8")
    assert "broken.parquet" in refused


def test_tables_that_share_a_key_are_joined(tmp_path: Path) -> None:
    table = frame(3)
    write(tmp_path / "lake", "heights.csv", table[["Name", "Kind", "Height"]])
    write(tmp_path / "lake", "sales.csv", table[["Name", "Sales"]].iloc[::-1].head(80))
    lake = open_lake(tmp_path / "lake")
    assert {(k.mine, k.theirs, k.brings) for own in links_of(lake.tables) for k in own} == {
        ("Name", "Name", "Sales"),
        ("Name", "Name", "Kind"),
        ("Name", "Name", "Height"),
    }
    joined = 0
    for draw in range(60):
        try:
            asked = question_for(lake.tables, list(KINDS)[draw % len(KINDS)], draw, lake.links)
        except NoQuestion:
            continue
        joined += any(isinstance(op, Join) for op in asked.ops or ())
    assert joined >= 15


def test_a_column_that_holds_two_things_is_parted(tmp_path: Path) -> None:
    table = frame(4)
    place = [f"{n}, {k}" for n, k in zip(table["Name"], table["Kind"], strict=True)]
    who = [f"{n} ({1990 + i % 9})" for i, n in enumerate(table["Name"])]
    out = pd.DataFrame({"Place": place, "Who": who, "Height": table["Height"]})
    write(tmp_path / "lake", "t.csv", out)
    lake = open_lake(tmp_path / "lake")
    cuts = {(h.column, h.cut) for h in lake.tables[0].halves}
    assert cuts == {("Place", "after_comma"), ("Who", "in_brackets")}
    found: list[Split] = []
    for draw in range(20):
        asked = question_for(lake.tables, "group_values", draw)
        found += [op for op in asked.ops or () if isinstance(op, Split)]
        assert "after the last comma" in asked.text or "in brackets" in asked.text
    assert {op.column for op in found} == {"Place", "Who"}


def test_carried_tables_get_the_mess_of_real_lakes() -> None:
    table = frame(5).assign(Depth=[None if i % 6 == 2 else i / 4 for i in range(90)])
    made = [messy("owner", f"t{n}", table) for n in range(40)]
    assert {len(parts) for parts in made} == {1, 2}
    names = {c for parts in made for part in parts for c in part.frame.columns}
    assert "Name, Kind" not in names  # names with digits are no place beside a kind
    deep = [p for parts in made for p in parts if "Depth" in p.frame]
    cells = {str(v) for p in deep for v in p.frame["Depth"]}
    assert {"M", "n/a", "-9999.0", "-999.0"} <= cells
    assert {p.words.get("Depth") for p in deep} == {"M", "n/a", "-9999", "-999", None}
    for part in deep:  # the word stands in every gap, and is told
        assert part.frame["Depth"].isna().any() == ("Depth" not in part.words)
    assert all(
        (a.name, a.words) == (b.name, b.words) and a.frame.equals(b.frame)
        for n in range(5)
        for a, b in zip(made[n], messy("owner", f"t{n}", table), strict=True)
    )


def test_what_a_user_says_of_tables(tmp_path: Path) -> None:
    file = tmp_path / "about.yaml"
    file.write_text(
        "'sales/*.csv':\n  title: Sales by shop\n  licence: CC0\n  columns:\n    v1: units sold\n",
        encoding="utf-8",
    )
    found = read_describe(file)
    assert about("sales/a.csv", found) == About(
        "Sales by shop", "CC0", columns={"v1": "units sold"}
    )
    assert about("other.csv", found, "MIT") == About("", "MIT")
    values = pd.Series([float(i * 37 % 101) for i in range(60)])
    assert (look("v1", values).kind, look("v1", values, "units sold").adds) == ("unsaid", True)
    table = frame(6).rename(columns={"Sales": "v1"})
    write(tmp_path / "lake" / "sales", "a.csv", table)
    (described,) = open_lake(tmp_path / "lake", found).tables
    assert described.numbers == ("Height", "v1") and described.totals == ("v1",)
    texts = [question_for([described], "group_values", draw).text for draw in range(10)]
    assert any("'v1' (units sold)" in t for t in texts)
    assert all("a.csv (Sales by shop)" in t and t.count("(units sold)") < 2 for t in texts)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("- a\n", "wanted names with values"),
        ("a.csv: words\n", "no field 'a.csv'"),
        ("a.csv: {titel: x}\n", "no field 'titel'; did you mean 'title'"),
        ("a.csv: {columns: [x]}\n", "columns: wanted names with values"),
        ("a: [", "no YAML"),
    ],
)
def test_a_description_that_cannot_be_used_is_said_in_one_sentence(
    tmp_path: Path, text: str, why: str
) -> None:
    file = tmp_path / "about.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(TaskError, match="--describe") as found:
        read_describe(file)
    assert why in str(found.value)


def test_one_common_column_makes_no_tables_the_same() -> None:
    from types import SimpleNamespace
    from typing import cast

    from data_gen.queries.tables import Table

    def digest(*marks: str) -> str:
        table = cast("Table", SimpleNamespace(marks=frozenset(marks), key="k"))
        return str(Table.digest.fget(table))  # type: ignore[misc]

    assert digest("a", "b") == digest("b", "a") != digest("a", "c")
    assert digest() == "k"
