"""The first reader broken, one way at a time, at the frame that it returns: the proof notices every
answer that changes. Nothing of the first reader's code is touched, so that it may be rewritten."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("duckdb")

pytest.importorskip("openpyxl")
pytest.importorskip("python_calamine")

from lake_files import open_lake  # noqa: E402

from assay.tables.load import load  # noqa: E402
from data_gen.queries.lake import Lake  # noqa: E402
from data_gen.queries.sql_plans import (  # noqa: E402  # noqa: E402
    ONE,
    NoPlan,
    Plan,
    Unit,
    draft,
    made,
)
from data_gen.queries.sql_tasks import (  # noqa: E402
    Refused,
    Second,
    agreed,
    equal,
)
from data_gen.queries.sql_write import written  # noqa: E402
from rewards.sql.run import Failed, run  # noqa: E402

Frame = Any
ROWS = 1000
TOWNS = ("Köln", "Bad Orb", "Ulm", "São Tomé", "Elst")
SHOPS, BOOK = "shops.csv.gz", "book.xlsx"
RULES = """
"shops.csv.gz":
  decimal: ","
  thousands: "."
  skip: 2
  drop_rows: [103]
  drop_where: {department: [closed]}
  missing: {rain: ["-9999"]}
  dates: {opened: "%d/%m/%Y"}
  text: [zip]
"book.xlsx": {merged: fill}
"book.xlsx [other]": {use: false}
"""


def german(value: float) -> str:
    return f"{value:,.2f}".translate(str.maketrans(",.", ".,"))


def write(folder: Path) -> Path:
    """A packed file with titles, a total row and much to settle; a workbook with merged cells."""
    folder.mkdir()
    lines = ["Umsatz der Filialen", "Stand 2021"]
    lines.append("town;department;zip;opened;sales;visitors;rain;change")
    for i in range(100):
        rain = "-9999" if i % 9 == 2 else f"{i * 7 % 23},{i % 9 + 1}"
        lines.append(
            f"{TOWNS[i * i % 5]};{('food', 'tools', 'toys')[i % 3] if i % 20 else 'closed'};"
            f"{i % 7:03d};{1 + i % 9:02d}/{1 + i % 11:02d}/2020;"
            f"{german(100 + i * 7919 % 9001 / 7)};{30000001 + i * 977};{rain};{i * 31 % 61 - 30}"
        )
    lines.insert(102, "Total;;;;999.999,00;999999;1,5;0")
    lines += lines[50:52]  # two rows that stand twice
    (folder / SHOPS).write_bytes(gzip.compress("\n".join([*lines, ""]).encode()))
    with pd.ExcelWriter(folder / BOOK) as book:
        for name, factor in (("main", 1), ("other", 3)):
            rows = [
                [TOWNS[i // 2 % 5], ("a", "b")[i % 2], 10 + factor * (i * 37 % 41) + i / 8]
                for i in range(60)
            ]
            pd.DataFrame(rows, columns=["town", "side", "amount"]).to_excel(
                book, sheet_name=name, index=False
            )
            for i in range(0, 60, 2):
                book.sheets[name].merge_cells(f"A{i + 2}:A{i + 3}")
    (folder / "tables.yaml").write_text(RULES, encoding="utf-8")
    return folder


def with_(**changed: Callable[[Any], Any]) -> Callable[[Frame], Frame]:
    return lambda frame: frame.assign(**{n: change(frame[n]) for n, change in changed.items()})


def row(frame: Frame, **cells: Any) -> Frame:
    """One row more, the last one with other cells."""
    return pd.concat([frame, frame.iloc[[-1]].assign(**cells)], ignore_index=True)


FAULTS: dict[str, tuple[str, Callable[[Frame], Frame]]] = {
    "the names one row below": (SHOPS, lambda f: f.iloc[1:]),
    "the last row lost": (SHOPS, lambda f: f.iloc[:-1]),
    "a row lost in the middle": (SHOPS, lambda f: f.drop(index=f.index[40])),
    "half of a packed file": (SHOPS, lambda f: f.head(len(f) // 2)),
    "the decimal mark lost": (SHOPS, with_(sales=lambda s: s * 100)),
    "thousands taken for decimals": (SHOPS, with_(sales=lambda s: s.where(s < 1000, s / 1000))),
    "thousands lost": (SHOPS, with_(sales=lambda s: s.where(s < 1000))),
    "a code kept as a value": (SHOPS, with_(rain=lambda s: s.fillna(-9999.0))),
    "no value read as 0": (SHOPS, with_(rain=lambda s: s.fillna(0.0))),
    "a value taken for none": (SHOPS, with_(visitors=lambda s: s.where(s < 30050000))),
    "another encoding": (
        SHOPS,
        with_(town=lambda s: s.map(lambda t: t.encode().decode("latin-1"))),
    ),
    "accents lost": (SHOPS, with_(town=lambda s: s.str.replace("ö", "o"))),
    "blanks lost": (SHOPS, with_(town=lambda s: s.str.replace(" ", ""))),
    "case folded": (SHOPS, with_(town=lambda s: s.str.lower())),
    "day and month exchanged": (
        SHOPS,
        with_(opened=lambda s: pd.to_datetime(s.dt.strftime("%Y-%d-%m"), format="%Y-%m-%d")),
    ),
    "equal rows dropped": (SHOPS, lambda f: f.drop_duplicates()),
    "a row read twice": (SHOPS, lambda f: pd.concat([f, f.iloc[:1]], ignore_index=True)),
    "columns one place on": (SHOPS, lambda f: f.assign(sales=f["visitors"], visitors=f["sales"])),
    "a column in another order": (SHOPS, with_(sales=lambda s: s[::-1].to_numpy())),
    "an integer too small": (SHOPS, with_(visitors=lambda s: s.astype("int16").astype("int64"))),
    "single precision": (SHOPS, with_(visitors=lambda s: s.astype("float32").astype("int64"))),
    "fractions cut": (SHOPS, with_(sales=lambda s: s.round(0))),
    "signs lost": (SHOPS, with_(change=lambda s: s.abs())),
    "the total row kept": (SHOPS, lambda f: row(f, town="Total", sales=999999.0)),
    "rows kept that the user leaves out": (SHOPS, lambda f: row(f, department="closed")),
    "merged cells not filled": (BOOK, lambda f: f.assign(town=f["town"].where(f.index % 2 == 0))),
    "the other sheet": (BOOK, with_(amount=lambda s: 10 + 3 * (s - 10))),
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    found = open_lake(write(tmp_path_factory.mktemp("faults") / "data"))
    assert len(found.tables) == 2, found.refused
    return found


@pytest.fixture(scope="module")
def second(lake: Lake) -> Iterator[Second]:
    found = Second(lake.folder)
    yield found
    found.close()


def drafts(unit: Unit) -> Iterator[Plan]:
    for kind in ONE:
        rng = Random(kind)
        for _ in range(5):
            try:
                yield draft(unit, kind, rng)
            except NoPlan:
                continue


def changed_and_noticed(
    lake: Lake, second: Second, file: str, fault: Callable[[Frame], Frame]
) -> tuple[int, int]:
    """(answers that are another with the fault; those of them that the proof refuses)."""
    (table,) = [t for t in lake.tables if t.path == file]
    frame = load(table.reading, lake.folder)
    units: list[Unit] = []
    for one in (frame, fault(frame.copy())):
        found = made(table, one, ROWS, 12)
        assert not isinstance(found, str), found
        units.append(Unit((found,)))
    right, broken = units
    changed = noticed = 0
    for plan in drafts(right):
        one = written(plan, right)
        rows, true = run(broken.database, one.sql), run(right.database, one.sql)
        if isinstance(rows, Failed) or isinstance(true, Failed):
            continue
        if any(cell is None for found in (rows, true) for line in found for cell in line):
            continue  # refused before
        agreed(plan, right, true, one, second, ROWS)
        if equal(true, rows, one.ordered):
            continue
        changed += 1
        try:
            agreed(plan, broken, rows, one, second, ROWS)
        except Refused as error:
            noticed += error.why.code.startswith("proof")
    return changed, noticed


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_first_reader_is_noticed(name: str, lake: Lake, second: Second) -> None:
    changed, noticed = changed_and_noticed(lake, second, *FAULTS[name])
    assert changed > 0 and noticed == changed
