"""Obscured generated lakes: other names and numbers, the same questions, answers computed anew."""

from __future__ import annotations

import json
import re
import zipfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pd = pytest.importorskip("pandas")
pytest.importorskip("openpyxl")
pytest.importorskip("pyarrow")

import front  # noqa: E402
from messy_files import folder_of  # noqa: E402

from assay.tables.load import load  # noqa: E402
from assay.task import read_tasks  # noqa: E402
from data_gen.proof.forms import Shelf  # noqa: E402
from data_gen.queries.carried import Layout, write_frames  # noqa: E402
from data_gen.queries.lake import Folder, open_lakes  # noqa: E402
from data_gen.queries.obscured import (  # noqa: E402
    make_key,
    moved,
    obscure_tables,
    scaled,
)

main = front.command("tasks", "lake")


NAMES = ("Wollongong", "Kirribilli", "Esperanza", "Thistlewood", "Ostrobothnia", "Quixada")
MANY = [
    f"{a}{b}"
    for a in ("Bran", "Cald", "Dorn", "Fenn", "Garr", "Holm", "Ivel", "Jarn", "Kest")
    for b in ("wick", "ton", "dale", "ford", "mere", "ham", "stead", "holt", "ley")
]
NOTES = "Measured by Archibald Featherstone near Lake Winnipesaukee"


def named_lake(folder: Path) -> Path:
    """Proper names wherever a lake can hold them: files, sheets, lines above the names, headers,
    groups, names of rows, columns that are good for nothing, long notes, and beside numbers."""
    rows = range(162)
    frame = pd.DataFrame(
        {
            "Winner": [NAMES[i * 7 % 6] for i in rows],
            "Hometown": [MANY[i * 5 % 81] for i in rows],  # too many to group by, none is unique
            "Remark": [f"{NOTES}, {MANY[i % 81]}" if i % 3 else "N/A" for i in rows],
            "Yield of Ruritania": [10 + i * 37 % 101 / 3 for i in rows],
            "Built": [1950 + (i * 11) % 60 for i in rows],
            "Weight": [5 + i * i * 13 % 97 / 7 for i in rows],
        }
    )
    top = ("Harvest of Ruritania", "Collected by Ebenezer")
    layouts = (
        Layout("Ruritania.csv", top=top),
        Layout("Borduria.xlsx", "excel", sheet="Syldavia", top=top),
        Layout("Poldavia.json", "json"),
        Layout("Slaka.sqlite", "sqlite", sheet="Elbonia"),
        Layout("Genovia.parquet", "parquet"),
    )
    for number, layout in enumerate(layouts, 1):  # none a copy of another
        changed = frame.rename(columns={"Weight": f"Weight {layout.form}"})
        for column in ("Yield of Ruritania", "Built", f"Weight {layout.form}"):
            changed[column] += number
        changed["Hometown"] = [MANY[i * 5 % (70 + number)] for i in rows]
        changed["Remark"] = [
            f"{NOTES}, {MANY[i % (70 + number)]}" if i % 3 else "N/A" for i in rows
        ]
        write_frames(folder, [(layout, changed)])
    return folder


FOREIGN = {
    w.lower()
    for text in (
        *NAMES,
        *MANY,
        "Archibald Featherstone Winnipesaukee Ruritania Ebenezer Borduria Syldavia Poldavia",
        "Slaka Elbonia Genovia Winner Hometown Remark Yield Harvest",
    )
    for w in text.split()
}


@pytest.mark.slow
def test_no_proper_name_of_the_plain_lake_survives(tmp_path: Path) -> None:
    """Searched in every file's bytes and name (workbooks and Parquet opened), and in every text of
    every task that a model or a scorer sees."""
    lake = named_lake(tmp_path / "first")
    command = ["--lakes", str(lake), "--heldout-share", "0", "--count", "24", "--seed", "3"]
    command += ["--workers", "1"]
    assert main([*command, "--obscured", "--out", str(tmp_path / "o")]) == 0
    texts: dict[str, str] = {}
    folder = tmp_path / "o" / "obscured"
    for path in (p for p in folder.rglob("*") if p.is_file()):
        texts[f"name of {path.name}"] = path.name
        data = path.read_bytes()
        if path.suffix == ".xlsx":
            with zipfile.ZipFile(path) as book:
                data = b"\n".join(book.read(name) for name in book.namelist())
        elif path.suffix == ".parquet":
            data = pd.read_parquet(path).to_csv().encode() + data
        texts[path.name] = data.decode("utf-8", "replace")
    assert {Path(n).suffix for n in texts} >= {".csv", ".xlsx", ".json", ".sqlite", ".parquet"}
    files = (tmp_path / "o").glob("*_obscured.jsonl")
    other = [task for path in files for task in read_tasks(path)]
    assert len(other) >= 12
    for task in other:
        gold = {k: v for k, v in task.gold.items() if k != "plain_answer"}
        seen = [task.prompt, gold, task.meta["gold_files"], task.meta["keys"]]
        texts[task.id] = json.dumps(seen, ensure_ascii=False)
    for name, text in texts.items():
        found = FOREIGN & {w.lower() for w in re.findall(r"[^\W\d_]+", text)}
        assert not found, (name, found)
        assert not any(word in text.lower() for word in FOREIGN if len(word) > 6), name
    csv = next(t for n, t in texts.items() if n.endswith(".csv") and not n.startswith("name"))
    assert "N/A" in csv  # what says "no value" still does


# a file of every kind of doubt and of every form, with what the user says of it
SETTLED = (
    *("german.csv", "leading_zeros.csv", "mark_thousands_point.csv", "sentinel_kA.csv"),
    *("numbers_as_text.xlsx", "date_order_slash.csv", "alike_names_case.csv", "merged_towns.xlsx"),
    *("total_last.csv", "repeated_header_middle.csv", "header_rows_two.csv", "several_below.xlsx"),
    *("encoding_polish.csv", "short_one_row.csv", "packed.csv.gz", "utf16.csv", "bars.psv"),
    *("table.dta", "table.feather", "table.ods", "table.sqlite", "ids_19_digits.json"),
)


@pytest.mark.parametrize("name", SETTLED)
def test_a_settled_table_is_read_again_when_it_is_obscured(name: str, tmp_path: Path) -> None:
    """Each form is written so that the reader is in no doubt, or `tables.yaml` says what is meant:
    the same rows, numbers times their factor, other words."""
    folder = folder_of([name], tmp_path / "plain", settle=True)
    (lake,) = open_lakes([Folder(folder, bare=True)], map)
    assert lake.tables, lake.refused
    used, there = {t.path for t in lake.tables}, tmp_path / "obscured"
    found = obscure_tables(lake.folder, "plain", lake.tables, used, 1, there)
    key = make_key("plain", lake.tables, 1)
    for old, new in zip(lake.tables, found, strict=True):
        assert not new.reading.doubts
        one, two = load(old.reading, lake.folder), load(new.reading, there)
        assert len(one) == len(two) and list(new.columns) == list(two.columns)
        for before, after in zip(old.columns, new.columns, strict=True):
            assert one[before].isna().tolist() == two[after].isna().tolist(), (before, after)
            if before in old.numbers:
                right = one[before].astype(float) * float(key.factors[before])
                assert two[after].tolist() == pytest.approx(right.tolist(), nan_ok=True)
            elif before in old.groups:
                assert one[before].nunique() == two[after].nunique()
        with Shelf(there) as shelf:  # the second reader is in no doubt of its measures either
            opened = shelf.table(new.path, new.reading.part)
            assert {opened.column(c) for c in new.numbers} <= set(opened.ids.values())


def test_numbers_keep_the_way_they_are_written_and_years_move() -> None:
    for cell, want in (
        *(("1,234", "3,702"), ("$5.50", "$16.50"), ("40%", "120%"), (" -2 ", " -6 "), ("M", "M")),
        *(("", ""), (None, None), (True, True), (7, 21), (0.1, 0.3), ("1e3", "3000")),
        ("<10", "<10"),
    ):
        assert scaled(cell, Decimal(3)) == want
    for cell, want in ((1990, 1997), (1990.0, 1997.0), ("1990", "1997"), ("n/a", "n/a")):
        assert moved(cell, 7) == want
    assert moved(None, 7) is None


@given(st.one_of(st.text(max_size=12), st.floats(), st.integers(), st.none(), st.booleans()))
def test_any_cell_can_be_changed(cell: Any) -> None:
    for value in (scaled(cell, Decimal("1.7")), moved(cell, 7)):
        assert isinstance(value, str) == isinstance(cell, str)
