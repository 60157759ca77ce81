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
from assay.tables.load import load_file  # noqa: E402
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


def _sqlite(frame: Frame, path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        frame.to_sql("t", db, index=False, dtype=dict.fromkeys(frame.columns, ""))


WRITERS: dict[str, Callable[[Frame, Path], Any]] = {
    "t.csv": lambda f, p: f.to_csv(p, index=False),
    "t.json": lambda f, p: f.to_json(p, orient="records", date_format="iso"),
    "t.jsonl": lambda f, p: f.to_json(p, orient="records", date_format="iso", lines=True),
    "t.sqlite": _sqlite,
    "t.feather": lambda f, p: f.to_feather(p),
    "t.parquet": lambda f, p: f.to_parquet(p),
    "t.duckdb": _duckdb,
    "t.xlsx": lambda f, p: f.to_excel(p, index=False),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


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


# --- every file of a folder is read as a table, or has a line that says why not

CSV = "town,sales\nAldra,12\nBirk,14\nCorva,17\nElst,19\n"


@pytest.mark.parametrize(("name", "form"), tables("tables")["forms_by_suffix"])
def test_forms_by_suffix(name: str, form: str) -> None:
    assert form_of(Path(name)) == form


def test_every_file_has_its_line(tmp_path: Path) -> None:
    """Files about the data have one, with their count."""
    names = ("shops.csv", "sub/b.tsv", "c.rds", "noend", "d.xlsx.gz", "b.tar.gz")
    said = dict.fromkeys(names, CSV) | {"tables.yaml": ""}
    about = "The shops of five towns.\nSales are in EUR, visitors a day.\n"
    said |= dict.fromkeys(("README.md", "shops.txt", ".hidden.csv"), about)
    for name, text in said.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    found, others = files_below(tmp_path)
    assert [p.name for p in found] == ["shops.csv", "b.tsv"]
    listed = ["b.tar.gz", "c.rds", "d.xlsx.gz", "noend"]
    assert sorted(one.path for one in others if one.path in names) == listed
    assert all(one.why for one in others) and "4 files" in others[-1].why + others[0].why
