# ruff: noqa: E402
"""The second reader: one table in every form that people keep tables in, the marks of numbers and
times, and rows that may be no cases. One reading only, or none."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("duckdb")
pytest.importorskip("openpyxl")
pytest.importorskip("lxml")

from hypothesis import given, settings
from hypothesis import strategies as st
from places import ROOT, tables

from assay.tables.load import load, plan_file
from data_gen.proof.forms import opened
from data_gen.proof.marks import number, tidy_words, time, words
from data_gen.proof.original import NotProvable, Opened, Original, connect

DB = connect()
Reading = Callable[[Opened, str], str]
NAMES = ["Ort", "Wert", "Preis", "Tag"]
ROWS = tables("proof")["rows"]
DE, US, TABS = (
    (ROOT / "tests/data/proof" / name).read_text("utf-8")
    for name in ("german.csv", "plain.csv", "german.tsv")
)
FRAME = pd.DataFrame(ROWS, columns=NAMES)


def database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        FRAME.to_sql("t", db, index=False)
        db.commit()


def renamed(path: Path) -> None:  # as some programs write
    FRAME.to_excel(path.with_suffix(".xlsx"), index=False)
    path.with_suffix(".xlsx").rename(path)


RECORDS = [dict(zip(NAMES, row, strict=True)) for row in ROWS]
FORMS: dict[str, Callable[[Path], Any]] = {
    "german.csv": lambda p: p.write_text(DE, "utf-8"),
    "wide.tsv": lambda p: p.write_bytes(TABS.encode("utf-16")),
    "packed.csv.gz": lambda p: p.write_bytes(gzip.compress(US.encode())),
    "t.xlsx": lambda p: FRAME.to_excel(p, index=False),
    "t.xls": renamed,
    "t.parquet": FRAME.to_parquet,
    "t.html": lambda p: FRAME.to_html(p, index=False, na_rep="", encoding="utf-8"),
    "t.sqlite": database,
    "t.json": lambda p: p.write_text(json.dumps(RECORDS), "utf-8"),
    "t.jsonl": lambda p: p.write_text("\n".join(map(json.dumps, RECORDS)), "utf-8"),
}


def cells(table: Opened, name: str, read: Reading = number) -> list[Any]:
    made = read(table, name)
    return [r[0] for r in table.all(f"select {made} from {table.table} order by rn")]


def table_of(folder: Path, text: str, rules: str = "") -> Opened:
    """A text as the second reader opens it, with what `tables.yaml` says of it."""
    (folder / "t.csv").write_text(text, encoding="utf-8")
    (folder / "tables.yaml").write_text(f"t.csv: {{{rules}}}" if rules else "")
    return opened(Original(folder / "t.csv"), DB)


@pytest.mark.parametrize("name", FORMS)
def test_both_readers_give_the_same_cells(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    FORMS[name](path)
    (reading,) = plan_file(path, tmp_path)
    frame, table = load(reading, tmp_path), opened(Original(path), DB)
    assert cells(table, "Ort", words) == [row[0] for row in ROWS] == frame["Ort"].tolist()
    for place, column in ((1, "Wert"), (2, "Preis")):
        found = cells(table, column)
        assert found == pytest.approx([row[place] for row in ROWS], nan_ok=True)
        assert found == [None if v != v else pytest.approx(v) for v in frame[column]]
    if "csv" in name or "tsv" in name:
        assert [t.day for t in cells(table, "Tag", time)] == [row[3] for row in ROWS]


def test_a_part_is_found_by_its_name(tmp_path: Path) -> None:
    with pd.ExcelWriter(tmp_path / "b.xlsx") as book:
        for name, value in (("one", 1.5), ("two", 2.5)):
            pd.DataFrame({"n": ["x"], "v": [value]}).to_excel(book, sheet_name=name, index=False)
    page = "<table><tr><th>n</th><th>v</th></tr><tr><td>x</td><td>{}</td></tr></table>"
    (tmp_path / "b.html").write_text(page.format("1,5") + page.format("2,5"))
    (tmp_path / "c.html").write_text(page.replace("<td>x", "<td rowspan=2>x").format("1,5"))
    for file, part in (("b.xlsx", "two"), ("b.html", "1")):
        assert cells(opened(Original(tmp_path / file, part), DB), "v") == [2.5]
    for file, part in (("b.xlsx", "three"), ("b.html", ""), ("c.html", "")):
        with pytest.raises(NotProvable):
            opened(Original(tmp_path / file, part), DB)


def test_text_at_fixed_places_is_proved(tmp_path: Path) -> None:
    rows = [("town", "sales"), *((f"t{i}", f"{i * 1.5:.1f}") for i in range(9))]
    (tmp_path / "t.fwf").write_text("".join(f"{a:<8}{b:>8}\n" for a, b in rows))
    table = opened(Original(tmp_path / "t.fwf"), DB)
    assert cells(table, "sales") == [i * 1.5 for i in range(9)]


def test_broken_files_are_not_provable(tmp_path: Path) -> None:
    for name in ("t.parquet", "t.json", "t.xlsx", "t.csv.gz", "t.sqlite", "t.html", "t.docx"):
        (tmp_path / name).write_bytes(b"\x00nothing of the kind")
        with pytest.raises(NotProvable):
            opened(Original(tmp_path / name), DB)
    with pytest.raises(NotProvable):
        opened(Original(tmp_path / "absent.csv"), DB)


# --- one reading or none


@pytest.mark.parametrize(
    ("text", "rules", "column", "reading", "wanted"), tables("proof")["one_reading_or_none"]
)
def test_one_reading_or_none(
    tmp_path: Path, text: str, rules: str, column: str, reading: str, wanted: Any
) -> None:
    """Cells as they are meant (of times the first), or null: not provable."""
    read: Reading = {"number": number, "words": words, "time": time}[reading]
    if wanted is None:
        with pytest.raises(NotProvable):
            read(table_of(tmp_path, text, rules), column)
        return
    found = cells(table_of(tmp_path, text, rules), column, read)
    assert (str(found[0]) if reading == "time" else found) == wanted


@settings(max_examples=25)
@given(
    values=st.lists(st.integers(-9_999_999, 9_999_999), min_size=3, max_size=12),
    digits=st.integers(0, 4),
    marks=st.sampled_from([(",", "."), (",", ""), (",", " "), (".", ""), (".", ","), (".", "'")]),
    sep=st.sampled_from([";", "\t"]),
)
def test_a_number_is_read_as_it_was_meant_or_not_at_all(
    tmp_path_factory: pytest.TempPathFactory,
    values: list[int],
    digits: int,
    marks: tuple[str, str],
    sep: str,
) -> None:
    decimal, group = marks
    written: list[str] = []
    for value in values:
        text = f"{value / 10**digits:,.{digits}f}".replace(",", "_").replace(".", decimal)
        written.append(text.replace("_", group))
    rows = "".join(f'n{place}{sep}"{cell}"\n' for place, cell in enumerate(written))
    try:
        found = cells(table_of(tmp_path_factory.mktemp("n"), f"a{sep}b\n{rows}"), "b")
    except NotProvable:
        return
    codes = {99.0, 999.0, 9999.0, 99999.0, 999999.0, 9999999.0}
    for one, other in zip(found, (v / 10**digits for v in values), strict=True):
        assert one == pytest.approx(other, rel=1e-12) or (one is None and abs(other) in codes)


def test_a_word_for_no_value_may_be_a_category(tmp_path: Path) -> None:
    table = table_of(tmp_path, "a,b\n1,none\n2,labour\n3,NA\n")
    kept: Reading = lambda t, name: tidy_words(t.column(name), ["none"])  # noqa: E731
    assert cells(table, "b", kept) == ["none", "labour", None]
