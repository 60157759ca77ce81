"""Every file of a folder is a table, or has its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from places import tables

from assay.tables.formats import files_below, form_of
from assay.tables.load import plan_folder

TABLES = tables("tables")

CSV = "town,sales\nAldra,12\nBirk,14\nCorva,17\nElst,19\n"


@pytest.mark.parametrize(("name", "form"), TABLES["forms_by_suffix"])
def test_forms_by_suffix(name: str, form: str) -> None:
    assert form_of(Path(name)) == form


def test_every_file_has_its_line(tmp_path: Path) -> None:
    for name in ("a.csv", "sub/b.tsv", "notes.pdf", "c.rds", "noend", "d.xlsx.gz", "b.tar.gz"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(CSV, encoding="utf-8")
    tables, others = files_below(tmp_path)
    assert [p.name for p in tables] == ["a.csv", "b.tsv"]
    assert [one.path for one in others] == ["b.tar.gz", "c.rds", "d.xlsx.gz", "noend", "notes.pdf"]
    assert all(one.why for one in others)
    assert len(list(plan_folder(tmp_path))) == 7


def test_files_about_the_data_have_one_line_with_their_count(tmp_path: Path) -> None:
    said = "The shops of five towns, by department.\nSales are in EUR, visitors a day.\n"
    for name in ("README.md", "LICENSE", "shops.txt", ".hidden.csv", "tables.yaml"):
        (tmp_path / name).write_text(said if name != "tables.yaml" else "", encoding="utf-8")
    (tmp_path / "shops.csv").write_text(CSV, encoding="utf-8")
    tables, others = files_below(tmp_path)
    assert [p.name for p in tables] == ["shops.csv"]
    assert len(others) == 1 and "5 files" in others[0].why and "shops.txt" in others[0].why
