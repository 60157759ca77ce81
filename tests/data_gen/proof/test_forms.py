"""One table in every form that people keep tables in: both readers come to the same cells, each by
its own rules."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("duckdb")
pytest.importorskip("openpyxl")
pytest.importorskip("lxml")

from assay.tables.load import load, plan_file  # noqa: E402
from data_gen.proof.forms import opened  # noqa: E402
from data_gen.proof.marks import (  # noqa: E402
    number,
    time,
    words,
)
from data_gen.proof.original import NotProvable, Opened, Original  # noqa: E402

NAMES = ["Ort", "Wert", "Preis", "Tag"]
ROWS: list[list[Any]] = [
    ["Köln" if i % 3 else "Ulm; Süd", None if i % 9 == 4 else i * 1.5 - 7, 1000 + i * 37.25, i]
    for i in range(1, 29)
]


def german(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:,.2f}".translate(str.maketrans(",.", ".,"))


def plain(value: Any) -> str:
    return "" if value is None else repr(value)


def lines(sep: str, mark: Callable[[Any], str], day: str) -> list[str]:
    rows = [[f'"{o}"', mark(w), mark(p), day.format(d=f"{d:02d}")] for o, w, p, d in ROWS]
    return [sep.join(NAMES), *(sep.join(row) for row in rows)]


def write(folder: Path, form: str) -> Path:
    """The table in a form, in a file of its own."""
    folder.mkdir(exist_ok=True)
    de = "\n".join(lines(";", german, "{d}.02.2020")) + "\n"
    us = "\n".join(lines(",", plain, "2020-02-{d}")) + "\n"
    path = folder / f"t.{form.split(' ')[-1]}"
    if form == "german csv":
        path.write_text(de, encoding="utf-8")
    elif form == "windows csv":
        path.write_bytes(de.replace("\n", "\r\n").encode("cp1252"))
        (folder / "tables.yaml").write_text('"*.csv": {encoding: cp1252}')
    elif form == "wide tsv":
        path.write_bytes(("\n".join(lines("\t", german, "{d}.02.2020"))).encode("utf-16"))
    elif form == "noted csv":
        path.write_text(f"Messwerte\nStand 2021\n\n{de}\n", encoding="utf-8-sig")
    elif form == "plain csv":
        path.write_text(us, encoding="utf-8")
    elif form == "packed csv.gz":
        path.write_bytes(gzip.compress(us.encode()))
    elif form == "xlsx":
        pd.DataFrame(ROWS, columns=NAMES).to_excel(path, index=False)
    elif form == "renamed xls":  # as some programs write
        pd.DataFrame(ROWS, columns=NAMES).to_excel(path.with_suffix(".xlsx"), index=False)
        path.with_suffix(".xlsx").rename(path)
    elif form == "parquet":
        pd.DataFrame(ROWS, columns=NAMES).to_parquet(path)
    elif form == "html":
        cells = "".join(
            f"<tr>{''.join(f'<td>{plain(c) if c != o else c}</td>' for c in (o, w, p, d))}</tr>"
            for o, w, p, d in ROWS
        )
        head = "".join(f"<th>{name}</th>" for name in NAMES)
        path.write_text(f"<p>x</p><table><tr>{head}</tr>{cells}</table>", encoding="utf-8")
    elif form == "sqlite":
        with sqlite3.connect(path) as db:
            db.execute("create table t (Ort text, Wert real, Preis real, Tag integer)")
            db.executemany("insert into t values (?, ?, ?, ?)", ROWS)
        db.close()
    else:
        rows = [dict(zip(NAMES, row, strict=True)) for row in ROWS]
        text = json.dumps(rows) if form == "json" else "\n".join(map(json.dumps, rows))
        path.write_text(text, encoding="utf-8")
    return path


FORMS = ["german csv", "windows csv", "wide tsv", "noted csv", "plain csv", "packed csv.gz"]
FORMS += ["xlsx", "renamed xls", "parquet", "html", "sqlite", "json", "jsonl"]


def cells(table: Opened, made: str) -> list[Any]:
    return [r[0] for r in table.all(f"select {made} from {table.table} order by rn")]


@pytest.mark.parametrize("form", FORMS)
def test_both_readers_give_the_same_cells(tmp_path: Path, form: str) -> None:
    path = write(tmp_path, form)
    (reading,) = plan_file(path, tmp_path)
    frame = load(reading, tmp_path)
    table = opened(Original(path))
    assert cells(table, words(table, "Ort")) == [row[0] for row in ROWS] == frame["Ort"].tolist()
    for place, name in ((1, "Wert"), (2, "Preis")):
        found = cells(table, number(table, name))
        assert found == pytest.approx([row[place] for row in ROWS], nan_ok=True)
        assert found == [None if v != v else pytest.approx(v) for v in frame[name]]
    if "csv" in form or "tsv" in form:
        assert [t.day for t in cells(table, time(table, "Tag"))] == [row[3] for row in ROWS]


def test_a_part_is_found_by_its_name(tmp_path: Path) -> None:
    with pd.ExcelWriter(tmp_path / "b.xlsx") as book:
        pd.DataFrame({"n": ["x"], "v": [1.5]}).to_excel(book, sheet_name="one", index=False)
        pd.DataFrame({"n": ["x"], "v": [2.5]}).to_excel(book, sheet_name="two", index=False)
    table = opened(Original(tmp_path / "b.xlsx", "two"))
    assert cells(table, number(table, "v")) == [2.5]
    with pytest.raises(NotProvable, match="no sheet"):
        opened(Original(tmp_path / "b.xlsx", "three"))
    with sqlite3.connect(tmp_path / "b.db") as db:
        for name in ("one", "two"):
            db.execute(f"create table {name} (v real)")
    db.close()
    with pytest.raises(NotProvable, match="which of its tables"):
        opened(Original(tmp_path / "b.db"))
    page = "<table><tr><th>n</th><th>v</th></tr><tr><td>x</td><td>{}</td></tr></table>"
    (tmp_path / "b.html").write_text(page.format("1,5") + page.format("2,5"))
    table = opened(Original(tmp_path / "b.html", "1"))
    assert cells(table, number(table, "v")) == [2.5]
    with pytest.raises(NotProvable, match="which of its tables"):
        opened(Original(tmp_path / "b.html"))
    spanned = page.replace("<td>x", "<td rowspan=2>x").format("1,5")
    (tmp_path / "c.html").write_text(spanned)
    with pytest.raises(NotProvable, match="span"):
        opened(Original(tmp_path / "c.html"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a,b;c\n1,2;3\n", "separate fields"),
        ("1;2\n3;4\n", "no row of names"),
        ("just words\nand more\n", "same number of fields"),
        ("", "no rows"),
    ],
)
def test_a_shape_that_allows_two_readings_is_not_decided(
    tmp_path: Path, text: str, why: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(NotProvable, match=why):
        opened(Original(path))


@pytest.mark.parametrize(
    ("text", "drop"),
    [
        ("a;b;c\nx;1;2\n;;\ny;2;3\nTotal;3;5\n", "[5]"),
        ("a;b;c\nx;1;2\ny;2;3\nSource: a yearbook;;\n", "[4]"),
        ("a;b;c\n(name);(mm);(mm)\nx;1;5\ny;2;5\nz;3;6\n", "[2, 5]"),
        ("a;b;c\nx;1;5\nA;B;C\ny;2;5\n", "[3]"),
        ("a;b;c\nx;1;5\n# replaced;7;7\ny;2;5\n", "[3]"),
        ("a;b;c\nx;1;5\ny;2;5\nz;3\n", "[4]"),
        ("a;b;c\nx;1;5\ny;2;5\nz;3;4;5\n", "[4]"),
        ("a;b;c\nx;1;5\ny;2;6\nMean;1.5;5.5\n", "[4]"),
        ("a;b;c\nx;1;5\ny;2;6\nMax.;2;6\nMin.;1;5\n", "[4-5]"),
    ],
)
def test_rows_that_may_be_no_cases_are_refused_until_the_user_drops_them(
    tmp_path: Path, text: str, drop: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(NotProvable):
        opened(Original(path))
    (tmp_path / "tables.yaml").write_text(f"t.csv: {{drop_rows: {drop}}}")
    table = opened(Original(path))
    assert cells(table, number(table, "b")) == [1.0, 2.0]


def test_rows_are_left_out_by_what_the_user_says_of_their_cells(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\nx,1\nall ages,3\nx,1\ny,2\n")
    with pytest.raises(NotProvable, match="add up"):
        opened(Original(path))
    rule = "t.csv: {drop_where: {a: [all ages]}, drop_duplicates: [a, b]}"
    (tmp_path / "tables.yaml").write_text(rule)
    table = opened(Original(path))
    assert cells(table, number(table, "b")) == [1.0, 2.0]
    (tmp_path / "tables.yaml").write_text("t.csv: {drop_where: {a: []}}")
    table = opened(Original(path))
    assert cells(table, number(table, "b")) == [1.0, 3.0, 1.0, 2.0]


def test_labels_that_stand_once_are_filled_down_when_told(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    labels = ["Ulm", "", "", "Hof", "", "Ulm", "", "", ""]
    path.write_text("a,b\n" + "".join(f"{v},{i}.5\n" for i, v in enumerate(labels)))
    with pytest.raises(NotProvable, match="rows below"):
        words(opened(Original(path)), "a")
    (tmp_path / "tables.yaml").write_text("t.csv: {fill_down: [a], drop_rows: [4]}")
    table = opened(Original(path))
    assert cells(table, words(table, "a")) == ["Ulm"] * 2 + ["Hof"] * 2 + ["Ulm"] * 4
    (tmp_path / "tables.yaml").write_text("t.csv: {fill_down: [a], drop_rows: [5]}")
    with pytest.raises(NotProvable, match="left out"):
        opened(Original(path))
    (tmp_path / "tables.yaml").write_text("t.csv: {fill_down: []}")
    table = opened(Original(path))
    assert cells(table, words(table, "a")) == [v or None for v in labels]


def test_merged_cells_and_formulas_of_an_ods_file(tmp_path: Path) -> None:
    opendocument = pytest.importorskip("odf.opendocument")
    cells_of, text = pytest.importorskip("odf.table"), pytest.importorskip("odf.text")
    book = opendocument.OpenDocumentSpreadsheet()
    sheet = cells_of.Table(name="s")
    for a, b in [("a", "b"), ("Ulm", 1.5), (None, 2.5), ("Hof", 3.5), (None, 4.5)]:
        row = cells_of.TableRow()
        if a is None:
            row.addElement(cells_of.CoveredTableCell())
        else:
            row.addElement(cells_of.TableCell(valuetype="string", numberrowsspanned=2 - (a == "a")))
            row.lastChild.addElement(text.P(text=a))
        if isinstance(b, str):
            row.addElement(cells_of.TableCell(valuetype="string"))
            row.lastChild.addElement(text.P(text=b))
        else:
            row.addElement(cells_of.TableCell(valuetype="float", value=b, formula="of:=1"))
        sheet.addElement(row)
    book.spreadsheet.addElement(sheet)
    book.save(str(tmp_path / "t.ods"))
    table = opened(Original(tmp_path / "t.ods"))
    assert cells(table, number(table, "b")) == [1.5, 2.5, 3.5, 4.5]
    with pytest.raises(NotProvable, match="merged"):
        words(table, "a")
    (tmp_path / "tables.yaml").write_text("t.ods: {merged: fill}")
    table = opened(Original(tmp_path / "t.ods"))
    assert cells(table, words(table, "a")) == ["Ulm", "Ulm", "Hof", "Hof"]


def test_text_at_fixed_places_is_proved(tmp_path: Path) -> None:
    rows = [("town", "sales"), *((f"t{i}", f"{i * 1.5:.1f}") for i in range(9))]
    (tmp_path / "t.fwf").write_text("".join(f"{a:<8}{b:>8}\n" for a, b in rows))
    (reading,) = plan_file(tmp_path / "t.fwf", tmp_path)
    table = opened(Original(tmp_path / "t.fwf"))
    wanted = load(reading, tmp_path)["sales"].tolist()
    assert cells(table, number(table, "sales")) == wanted == [i * 1.5 for i in range(9)]


def test_broken_files_are_not_provable(tmp_path: Path) -> None:
    for name in ("t.parquet", "t.json", "t.xlsx", "t.csv.gz", "t.sqlite", "t.html"):
        (tmp_path / name).write_bytes(b"\x00nothing of the kind")
        with pytest.raises(NotProvable):
            opened(Original(tmp_path / name))
    with pytest.raises(NotProvable):
        opened(Original(tmp_path / "absent.csv"))
