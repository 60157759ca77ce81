"""A table is the same in every form that people keep it in."""

from __future__ import annotations

import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from places import tables
from plan_code import read_table, same_by_code

pd = pytest.importorskip("pandas")

from assay.tables.formats import files_below, form_of  # noqa: E402
from assay.tables.load import load_file, plan_folder  # noqa: E402
from assay.tables.plan import Frame, Skipped  # noqa: E402

FRAME = pd.DataFrame(
    {
        "town": [f"Tówn {i % 7}" for i in range(40)],
        "sales": [i * 1.25 + 3 for i in range(40)],
        "visitors": [90 + i * 7 for i in range(40)],
        "rate": [None if i % 9 == 0 else i / 8 for i in range(40)],
        "day": pd.date_range("2023-01-30", periods=40),
    }
)


def _duckdb(frame: Frame, path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(path)) as db:
        db.register("given", frame)
        db.execute('create table "my shops" as select * from given')


def _sav(frame: Frame, path: Path) -> None:
    pytest.importorskip("pyreadstat").write_sav(frame, str(path))


def _sqlite(frame: Frame, path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        frame.to_sql("t", db, index=False, dtype=dict.fromkeys(frame.columns, ""))


WRITERS: dict[str, Callable[[Frame, Path], Any]] = {
    "t.csv": lambda f, p: f.to_csv(p, index=False),
    "t.json": lambda f, p: f.to_json(p, orient="records", date_format="iso"),
    "t.jsonl": lambda f, p: f.to_json(p, orient="records", date_format="iso", lines=True),
    "t.sqlite": _sqlite,
    "t.feather": lambda f, p: f.to_feather(p),
    "t.arrow": lambda f, p: f.to_feather(p, compression="uncompressed"),
    "t.parquet": lambda f, p: f.to_parquet(p),
    "t.dta": lambda f, p: f.to_stata(p, write_index=False, version=118),
    "t.sav": _sav,
    "t.duckdb": _duckdb,
    "t.ods": lambda f, p: f.to_excel(p, index=False, engine="odf"),
    "t.xlsx": lambda f, p: f.to_excel(p, index=False),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


@pytest.mark.parametrize("name", WRITERS)
def test_a_table_is_the_same_in_every_form(name: str, folder: Path) -> None:
    """Also where a number means that there is none."""
    gone = [i % 8 == 3 for i in range(40)]
    holes = FRAME.assign(
        sales=FRAME["sales"].mask(gone, -999.0), visitors=FRAME["visitors"].mask(gone, -999)
    )
    WRITERS[name](holes, folder / name)
    rule = '{missing: {sales: ["-999"], visitors: ["-999"]}}'
    plan, frame = read_table(folder / name, rule)
    assert plan.doubts == () and list(frame.columns) == list(FRAME.columns)
    assert frame["town"].tolist() == FRAME["town"].tolist()
    assert pd.to_datetime(frame["day"]).tolist() == FRAME["day"].tolist()
    right = {"rate": FRAME["rate"]} | {c: FRAME[c].mask(gone) for c in ("sales", "visitors")}
    for column, values in right.items():
        assert frame[column].isna().tolist() == values.isna().tolist()
        assert frame[column].dropna().tolist() == values.dropna().tolist()


@pytest.mark.parametrize("rule", ["", "{drop_rows: [2]}"])
def test_members_of_an_archive_are_tables(rule: str, folder: Path) -> None:
    text = FRAME.to_csv(index=False)
    with zipfile.ZipFile(folder / "t.zip", "w") as archive:
        for member in ("shops.csv", "sub/more.txt", "__MACOSX/._shops.csv"):
            archive.writestr(member, text)
        archive.writestr("sub/old.xls", b"")
        archive.writestr("README.md", "About the shops.")
    (folder / "tables.yaml").write_text(f'"t.zip": {rule}' if rule else "", encoding="utf-8")
    found = load_file(folder / "t.zip", folder)
    assert [one.part if isinstance(one, Skipped) else one[0].part for one in found] == [
        *("README.md", "shops.csv", "sub/more.txt", "sub/old.xls"),
    ]
    assert [isinstance(one, Skipped) for one in found] == [True, False, False, True]
    for one in found[1:3]:
        assert not isinstance(one, Skipped)
        assert one[1]["sales"].tolist() == FRAME["sales"].tolist()[1 if rule else 0 :]
        same_by_code(one[0], one[1], folder)


LONG_IDS = ("t.duckdb", "t.parquet", "t.feather", "t.json", "t.jsonl", "t.sqlite", "t.csv")


@pytest.mark.parametrize("name", LONG_IDS)
def test_long_ids_beside_a_missing_one_keep_their_digits(name: str, folder: Path) -> None:
    ids = [None if i == 3 else 1234567890123456789 + i for i in range(40)]
    WRITERS[name](FRAME.assign(id=pd.array(ids, dtype="Int64")), folder / name)
    found = read_table(folder / name)[1]["id"]
    assert found.dropna().tolist() == [str(i) for i in ids if i is not None]


@pytest.mark.parametrize("name", ["t.json", "t.sqlite", "t.parquet", "t.xlsx"])
def test_rows_and_names_are_the_users_in_typed_forms(name: str, folder: Path) -> None:
    frame = pd.DataFrame({"id": [1, 1, 3, 4], "town": ["Ulm", "ULM", "Total ", "Hof"]})
    WRITERS[name](frame, folder / name)
    rule = "{names: [a, b], drop_where: {b: [Total], a: ['4']}, spellings: {b: {ULM: Ulm}}}"
    assert read_table(folder / name, rule)[1].to_dict("list") == {"a": [1, 1], "b": ["Ulm", "Ulm"]}
    last = 5 if name == "t.xlsx" else 4
    rule = f"{{drop_rows: [{last}], drop_duplicates: [id]}}"
    assert read_table(folder / name, rule)[1]["id"].tolist() == [1, 3]


def _aligned(frame: Frame) -> str:
    rows = [list(frame.columns), *frame.astype(str).values.tolist()]
    return "\n".join(f"{a:<12}{b:>8}  {c:>6}" for a, b, c in rows) + "\n"


@pytest.mark.parametrize("name", ["t.txt", "t.fwf", "t.data"])
@pytest.mark.parametrize("rule", ["", "{drop_rows: [2]}"])
def test_fields_at_fixed_places(name: str, rule: str, folder: Path) -> None:
    frame = FRAME[["town", "sales", "visitors"]].assign(visitors=[f"0{i}" for i in range(40)])
    (folder / name).write_text(_aligned(frame), encoding="utf-8")
    found = read_table(folder / name, rule)[1]
    first = 1 if rule else 0
    assert found.values.tolist() == frame.values.tolist()[first:]


@pytest.mark.parametrize("missing", ["", ", missing: {town: [NA]}"])
def test_marks_of_one_column_and_cells_filled_down(missing: str, folder: Path) -> None:
    text = "town,people,share\nUlm,1.234,0.5\n,5.678,0.25\nNA,1.234.567,1.5\n,9,2\n"
    (folder / "t.csv").write_text(text)
    rule = f'{{fill_down: [town], decimal: {{people: ","}}{missing}}}'
    plan, frame = read_table(folder / "t.csv", rule)
    assert plan.doubts == () and frame["people"].tolist() == [1234, 5678, 1234567, 9]
    assert frame["town"].fillna("?").tolist() == ["Ulm", "Ulm", "?", "?"]
    assert frame["share"].tolist() == [0.5, 0.25, 1.5, 2]


# --- every file of a folder is read as a table, or has a line that says why not

CSV = "town,sales\nAldra,12\nBirk,14\nCorva,17\nElst,19\n"


@pytest.mark.parametrize(("name", "form"), tables("tables")["forms_by_suffix"])
def test_forms_by_suffix(name: str, form: str) -> None:
    assert form_of(Path(name)) == form


def test_every_file_has_its_line(tmp_path: Path) -> None:
    for name in ("a.csv", "sub/b.tsv", "notes.pdf", "c.rds", "noend", "d.xlsx.gz", "b.tar.gz"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(CSV, encoding="utf-8")
    found, others = files_below(tmp_path)
    assert [p.name for p in found] == ["a.csv", "b.tsv"]
    assert [one.path for one in others] == ["b.tar.gz", "c.rds", "d.xlsx.gz", "noend", "notes.pdf"]
    assert all(one.why for one in others)
    assert len(list(plan_folder(tmp_path))) == 7


def test_files_about_the_data_have_one_line_with_their_count(tmp_path: Path) -> None:
    said = "The shops of five towns, by department.\nSales are in EUR, visitors a day.\n"
    for name in ("README.md", "LICENSE", "shops.txt", ".hidden.csv", "tables.yaml"):
        (tmp_path / name).write_text(said if name != "tables.yaml" else "", encoding="utf-8")
    (tmp_path / "shops.csv").write_text(CSV, encoding="utf-8")
    found, others = files_below(tmp_path)
    assert [p.name for p in found] == ["shops.csv"]
    assert len(others) == 1 and "5 files" in others[0].why and "shops.txt" in others[0].why
