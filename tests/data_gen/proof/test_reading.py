# ruff: noqa: E402
"""The second reader: one table in every form that people keep tables in, the marks of numbers and
times, and rows that may be no cases. One reading only, or none."""

from __future__ import annotations

import gzip
import importlib
import json
import sqlite3
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

pd = pytest.importorskip("pandas")
duckdb = pytest.importorskip("duckdb")
pytest.importorskip("openpyxl")
pytest.importorskip("lxml")

from hypothesis import given, settings
from hypothesis import strategies as st

from assay.tables.load import load, plan_file
from assay.task import TaskError
from data_gen.proof.compare import put
from data_gen.proof.forms import opened
from data_gen.proof.marks import number, tidy_words, time, words
from data_gen.proof.original import NotProvable, Opened, Original, connect

DB = connect()
Reading = Callable[[Opened, str], str]
NAMES = ["Ort", "Wert", "Preis", "Tag"]
ROWS: list[list[Any]] = [
    ["Köln" if i % 3 else "Ulm; Süd", None if i % 9 == 4 else i * 1.5 - 7, 1000 + i * 37.25, i]
    for i in range(1, 29)
]


def german(value: Any) -> str:
    return "" if value is None else f"{value:,.2f}".translate(str.maketrans(",.", ".,"))


def plain(value: Any) -> str:
    return "" if value is None else repr(value)


def lines(sep: str, mark: Callable[[Any], str], day: str) -> str:
    rows = [[f'"{o}"', mark(w), mark(p), day.format(d=f"{d:02d}")] for o, w, p, d in ROWS]
    return "\n".join([sep.join(NAMES), *(sep.join(row) for row in rows)]) + "\n"


DE, US = lines(";", german, "{d}.02.2020"), lines(",", plain, "2020-02-{d}")
FRAME = pd.DataFrame(ROWS, columns=NAMES)


def database(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("create table t (Ort text, Wert real, Preis real, Tag integer)")
        db.executemany("insert into t values (?, ?, ?, ?)", ROWS)
    db.close()


def renamed(path: Path) -> None:  # as some programs write
    FRAME.to_excel(path.with_suffix(".xlsx"), index=False)
    path.with_suffix(".xlsx").rename(path)


def page(path: Path) -> None:
    cells = "".join(
        f"<tr>{''.join(f'<td>{plain(c) if c != o else c}</td>' for c in (o, w, p, d))}</tr>"
        for o, w, p, d in ROWS
    )
    head = "".join(f"<th>{name}</th>" for name in NAMES)
    path.write_text(f"<p>x</p><table><tr>{head}</tr>{cells}</table>", encoding="utf-8")


RECORDS = [dict(zip(NAMES, row, strict=True)) for row in ROWS]
FORMS: dict[str, Callable[[Path], Any]] = {
    "german.csv": lambda p: p.write_text(DE, "utf-8"),
    "windows.csv": lambda p: p.write_bytes(DE.replace("\n", "\r\n").encode("cp1252")),
    "wide.tsv": lambda p: p.write_bytes(lines("\t", german, "{d}.02.2020").encode("utf-16")),
    "noted.csv": lambda p: p.write_text(f"Messwerte\nStand 2021\n\n{DE}\n", "utf-8-sig"),
    "plain.csv": lambda p: p.write_text(US, "utf-8"),
    "packed.csv.gz": lambda p: p.write_bytes(gzip.compress(US.encode())),
    "t.xlsx": lambda p: FRAME.to_excel(p, index=False),
    "t.xls": renamed,
    "t.parquet": FRAME.to_parquet,
    "t.html": page,
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
    (tmp_path / "tables.yaml").write_text('"windows.csv": {encoding: cp1252}')
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
    with sqlite3.connect(tmp_path / "b.db") as db:
        for name in ("one", "two"):
            db.execute(f"create table {name} (v real)")
    db.close()
    page = "<table><tr><th>n</th><th>v</th></tr><tr><td>x</td><td>{}</td></tr></table>"
    (tmp_path / "b.html").write_text(page.format("1,5") + page.format("2,5"))
    (tmp_path / "c.html").write_text(page.replace("<td>x", "<td rowspan=2>x").format("1,5"))
    for file, part in (("b.xlsx", "two"), ("b.html", "1")):
        assert cells(opened(Original(tmp_path / file, part), DB), "v") == [2.5]
    for file, part in (("b.xlsx", "three"), ("b.db", ""), ("b.html", ""), ("c.html", "")):
        with pytest.raises(NotProvable):
            opened(Original(tmp_path / file, part), DB)


def test_text_at_fixed_places_is_proved(tmp_path: Path) -> None:
    rows = [("town", "sales"), *((f"t{i}", f"{i * 1.5:.1f}") for i in range(9))]
    (tmp_path / "t.fwf").write_text("".join(f"{a:<8}{b:>8}\n" for a, b in rows))
    table = opened(Original(tmp_path / "t.fwf"), DB)
    assert cells(table, "sales") == [i * 1.5 for i in range(9)]


def test_merged_cells_and_formulas_of_an_ods_file(tmp_path: Path) -> None:
    opendocument = pytest.importorskip("odf.opendocument")
    of, text = pytest.importorskip("odf.table"), pytest.importorskip("odf.text")
    book = opendocument.OpenDocumentSpreadsheet()
    sheet = of.Table(name="s")
    for a, b in [("a", "b"), ("Ulm", 1.5), (None, 2.5), ("Hof", 3.5), (None, 4.5)]:
        row = of.TableRow()
        if a is None:
            row.addElement(of.CoveredTableCell())
        else:
            row.addElement(of.TableCell(valuetype="string", numberrowsspanned=2 - (a == "a")))
            row.lastChild.addElement(text.P(text=a))
        if isinstance(b, str):
            row.addElement(of.TableCell(valuetype="string"))
            row.lastChild.addElement(text.P(text=b))
        else:
            row.addElement(of.TableCell(valuetype="float", value=b, formula="of:=1"))
        sheet.addElement(row)
    book.spreadsheet.addElement(sheet)
    book.save(str(tmp_path / "t.ods"))
    table = opened(Original(tmp_path / "t.ods"), DB)
    assert cells(table, "b") == [1.5, 2.5, 3.5, 4.5]
    with pytest.raises(NotProvable, match="merged"):
        words(table, "a")
    (tmp_path / "tables.yaml").write_text("t.ods: {merged: fill}")
    table = opened(Original(tmp_path / "t.ods"), DB)
    assert cells(table, "a", words) == ["Ulm", "Ulm", "Hof", "Hof"]


@pytest.mark.parametrize(
    "text",
    ["a,b;c\n1,2;3\n", "1;2\n3;4\n", "just words\nand more\n", "", 'a,b\nx,"1\n', 'a,b\nx,y\\"z\n'],
)  # fmt: skip
def test_a_shape_that_allows_two_readings_is_not_decided(tmp_path: Path, text: str) -> None:
    with pytest.raises(NotProvable):
        table_of(tmp_path, text)


def test_broken_files_are_not_provable(tmp_path: Path) -> None:
    for name in ("t.parquet", "t.json", "t.xlsx", "t.csv.gz", "t.sqlite", "t.html", "t.docx"):
        (tmp_path / name).write_bytes(b"\x00nothing of the kind")
        with pytest.raises(NotProvable):
            opened(Original(tmp_path / name), DB)
    with pytest.raises(NotProvable):
        opened(Original(tmp_path / "absent.csv"), DB)


# --- rows that may be no cases ---


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
    with pytest.raises(NotProvable):
        table_of(tmp_path, text)
    assert cells(table_of(tmp_path, text, f"drop_rows: {drop}"), "b") == [1.0, 2.0]


def test_groups_and_last_rows_that_add_up_all_others_are_refused(tmp_path: Path) -> None:
    rows = [(f"g{i % 2}", i * i + 0.5, i * 3 + 0.25) for i in range(20)]
    text = "a,b,c\n" + "".join(f"{a},{b},{c}\n" for a, b, c in rows)
    assert len(cells(table_of(tmp_path, text), "b")) == 20
    total = [sum(row[i] for row in rows) for i in (1, 2)]
    last = f"g2,{total[0]},{total[1]}\n"
    both = "".join(f"all of it,{b},{c}\n" for _, b, c in rows)
    for more in (last, both):
        with pytest.raises(NotProvable, match="add"):
            table_of(tmp_path, text + more)


def test_rows_are_left_out_or_filled_by_what_the_user_says(tmp_path: Path) -> None:
    text = "a,b\nx,1\nall ages,3\nx,1\ny,2\n"
    labels = ["Ulm", "", "", "Hof", "", "Ulm", "", "", ""]
    down = "a,b\n" + "".join(f"{v},{i}.5\n" for i, v in enumerate(labels))
    with pytest.raises(NotProvable):
        table_of(tmp_path, text)
    with pytest.raises(NotProvable):
        words(table_of(tmp_path, down), "a")
    with pytest.raises(NotProvable):
        table_of(tmp_path, down, "fill_down: [a], drop_rows: [5]")
    for said, rules, name, read, wanted in (
        (text, "drop_where: {a: [all ages]}, drop_duplicates: [a, b]", "b", number, [1.0, 2.0]),
        (text, "drop_where: {a: []}", "b", number, [1.0, 3.0, 1.0, 2.0]),
        (
            down,
            "fill_down: [a], drop_rows: [4]",
            "a",
            words,
            ["Ulm"] * 2 + ["Hof"] * 2 + ["Ulm"] * 4,
        ),
        (down, "fill_down: []", "a", words, [v or None for v in labels]),
    ):
        assert cells(table_of(tmp_path, said, rules), name, read) == wanted


# --- numbers, words and times ---


@pytest.mark.parametrize(
    ("text", "rules", "wanted"),
    [
        ("a;b\nx;36,0\ny;5,2475\nz;1.234,5\n", "", [36.0, 5.2475, 1234.5]),
        ('a,b\nx,"1,234"\ny,"2,345,678"\n', "", [1234.0, 2345678.0]),
        ('a,b\nx,"1,234"\ny,"2,3"\n', "", [1.234, 2.3]),
        ("a\tb\nx\t1 234,5\ny\t1\u00a0234,5\n", "", [1234.5, 1234.5]),
        ("a;b\nx;1'234.5\ny;7.25\n", "", [1234.5, 7.25]),
        ("a;b\nx;1500\ny;1.234\n", "", [1500.0, 1.234]),  # whole thousands stand without a mark
        ("a;b\nx;$1.50\ny;-$2.50\n", "", [1.5, -2.5]),
        ("a,b\nx,1e+3\ny,.5\nz,NaN\n", "", [1000.0, 0.5, None]),
        ("a;b\nx;12%\ny;5,5%\n", "", [12.0, 5.5]),
        ("a,b\nx,99\ny,90\nz,31\n", "", [99.0, 90.0, 31.0]),  # one number among others
        (
            "a;b\nx;1,234\ny;2,345\nz;8\n",
            'decimal: ",", missing: {b: ["7,5", 8]}',
            [1.234, 2.345, None],
        ),
        ("a;b\n0.5;1.234\n1.5;2.345\n", 'decimal: {b: ","}', [1234, 2345]),
        ("a;b\n0.5;1.234\n1.5;2.345\n", 'decimal: {b: "."}', [1.234, 2.345]),
        ("a;b\n0.5;1.234\n1.5;2.345\n", 'decimal: {a: ".", "*": ","}', [1234, 2345]),
        ("a,b\nx,007\ny,12\n", "numbers: [b]", [7.0, 12.0]),
    ],
)
def test_marks_are_decided_by_cells_that_allow_one_reading_or_by_the_user(
    tmp_path: Path, text: str, rules: str, wanted: list[float | None]
) -> None:
    assert cells(table_of(tmp_path, text, rules), "b") == wanted


@pytest.mark.parametrize(
    "rows",
    [
        *("1,234;2,345", "1.234;2.345", "1,5;1.5", "1,234;2.345", "tall;short;3", "1.234;200"),
        *("1.5;M;12;4;5", "-999;3;12", "999;3;12;999", "12E3;205;3", "007;12;3", "5%;2", "$1;€2"),
        *("01.2019;02.2019", "10.1.1.1;10.1.1.2", "1234567890123456789;2", "-8;-9;3;4"),
        "5;6;7;9999",
    ],
)  # fmt: skip
def test_what_allows_two_readings_is_not_provable(tmp_path: Path, rows: str) -> None:
    text = "a;b;c\n" + "".join(f"x{i};{v};{i},5\n" for i, v in enumerate(rows.split(";")))
    table = table_of(tmp_path, text)
    with pytest.raises(NotProvable):
        number(table, "b")
    assert cells(table, "c")[0] == 0.5  # another column says nothing of this one


@settings(max_examples=25)
@given(
    values=st.lists(st.integers(-9_999_999, 9_999_999), min_size=3, max_size=12),
    digits=st.integers(0, 4),
    marks=st.sampled_from([(",", "."), (",", ""), (",", " "), (".", ""), (".", ","), (".", "'")]),
    sep=st.sampled_from([";", "\t", ","]),
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
    plain_ = all(abs(v) < 1000 * 10**digits for v in values) and digits == 3
    try:
        found = cells(table_of(tmp_path_factory.mktemp("n"), f"a{sep}b\n{rows}"), "b")
    except NotProvable:
        return
    if sep == "," and decimal == "," and (plain_ or not any(_open(c) is False for c in written)):
        return  # between commas, 1,234 groups thousands by convention
    codes = {99.0, 999.0, 9999.0, 99999.0, 999999.0, 9999999.0}
    for one, other in zip(found, (v / 10**digits for v in values), strict=True):
        assert one == pytest.approx(other, rel=1e-12) or (one is None and abs(other) in codes)


def _open(cell: str) -> bool | None:
    """Whether a cell could group thousands (True), cannot (False), or has no comma."""
    if "," not in cell:
        return None
    before, _, after = cell.lstrip("-").partition(",")
    return len(after) == 3 and 1 <= len(before) <= 3 and before[0] != "0"


def test_words_have_single_spaces_and_no_word_for_no_value(tmp_path: Path) -> None:
    table = table_of(tmp_path, 'a,b\n1,"x  y"\n2,NA\n3,TRUE\n4, z \n')
    assert cells(table, "b", words) == ["x y", None, "True", "z"]
    table = table_of(tmp_path, "a,b\n1,none\n2,labour\n3,NA\n")  # a word may be a category
    kept: Reading = lambda t, name: tidy_words(t.column(name), ["none"])  # noqa: E731
    assert cells(table, "b", kept) == ["none", "labour", None]


@pytest.mark.parametrize("rows", ["food;FOOD", "São;Sao", "a b;a  b", "10,5;11,5", "NA;DE;FR"])
def test_words_that_may_mean_something_else_are_refused(tmp_path: Path, rows: str) -> None:
    text = "a;b\n" + "".join(f"{v};{i}\n" for i, v in enumerate(rows.split(";")))
    with pytest.raises(NotProvable):
        words(table_of(tmp_path, text), "a")


def times(folder: Path, written: str, rules: str = "") -> list[datetime | None]:
    rows = "".join(f'x{i},"{cell}"\n' for i, cell in enumerate(written.split("|")))
    return cells(table_of(folder, f"a,b\n{rows}", rules), "b", time)


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ("2020-03-04|2020-03-05", datetime(2020, 3, 4)),
        ("3/4/2020|13/4/2020", datetime(2020, 4, 3)),
        ("3/4/2020|3/14/2020", datetime(2020, 3, 4)),
        ("01.02.2020|03.02.2020", datetime(2020, 2, 1)),  # points: the day is first
        ("2020-03-04T10:00:00+02:00|2020-03-04T11:00:00Z", datetime(2020, 3, 4, 10)),
        ("2020M03|2020M04", datetime(2020, 3, 1)),
        ("Mar 4, 2020|Apr 1, 2020", datetime(2020, 3, 4)),
        ("2020|2021", datetime(2020, 1, 1)),
        ("04.03.2020 10:30|05.03.2020 11:00", datetime(2020, 3, 4, 10, 30)),
    ],
)
def test_a_format_that_reads_all_cells_counts(
    tmp_path: Path, written: str, wanted: datetime
) -> None:
    assert times(tmp_path, written)[0] == wanted


@pytest.mark.parametrize(
    "written",
    [
        "3/4/2020|4/4/2020",
        "3/4/2020|3/9/2020|4/2/2020",  # that the rows would be in order decides nothing
        "01.02.20|03.02.20",  # of which century?
        "soon|later",
        "12|13",
        "2020-03-04|5.3.2020",
        "2020-03-04|2020-03-05|2021-03-05|9999-12-31",
        "1900-01-01|2020-03-04|2020-03-05|2021-03-05",
    ],
)
def test_two_formats_or_none_are_not_provable(tmp_path: Path, written: str) -> None:
    with pytest.raises(NotProvable):
        times(tmp_path, written)
    if written.startswith("3/4/2020|4/4"):
        said = 'dates: {b: "%m/%d/%Y"}'
        assert times(tmp_path, written, said)[0] == datetime(2020, 3, 4)


# --- DuckDB ---


@pytest.mark.parametrize(
    ("error", "raised"), [(ModuleNotFoundError("x"), TaskError), (ImportError("x"), ImportError)]
)
def test_a_library_that_cannot_be_loaded_is_not_one_that_is_missing(
    error: ImportError, raised: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(name: str) -> Any:
        raise error

    monkeypatch.setattr(importlib, "import_module", fails)
    with pytest.raises(raised) as said:
        connect()
    assert type(said.value) is raised


def test_a_sqlite_file_is_read_on_a_connection_whose_last_answer_was_not_read_to_its_end() -> None:
    held = sqlite3.connect(":memory:")
    held.execute("create table train_set (row_id integer, a text)")
    held.executemany("insert into train_set values (?, ?)", [(1, "x"), (2, "y")])
    db = duckdb.connect()
    for table in ("one", "two"):
        db.execute("select count(*) from range(5)").fetchone()
        put(db, table, "source/train_v1.sqlite", held.serialize())
        assert db.execute(f"select count(*) from {table}").fetchone()[0] == 2
