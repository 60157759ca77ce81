"""Where tables stand in workbooks, and which of their cells are in doubt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from plan_code import same_by_code

openpyxl = pytest.importorskip("openpyxl")

from assay.tables.load import load_file  # noqa: E402
from assay.tables.plan import Frame, ReadPlan, Skipped  # noqa: E402

NAMES = ("town", "department", "sales", "visitors")
ROWS = [(f"Town {i // 4}", ("sport", "books")[i % 2], i * 1.25 + 3, 90 + i * 7) for i in range(24)]
Drawn = Callable[[Any], None]


def _plain(sheet: Any) -> None:
    for row in (NAMES, *ROWS):
        sheet.append(row)


def _written(
    folder: Path, *drawn: Drawn, rules: str = ""
) -> list[tuple[ReadPlan, Frame] | Skipped]:
    book = openpyxl.Workbook()
    for place, draw in enumerate(drawn):
        draw(book.active if not place else book.create_sheet(f"Sheet{place + 1}"))
    (folder / "data").mkdir(exist_ok=True)
    book.save(folder / "data" / "book.xlsx")
    if rules:
        (folder / "data" / "tables.yaml").write_text(f'"*.xlsx": {rules}\n', encoding="utf-8")
    return load_file(folder / "data" / "book.xlsx", folder / "data")


def _codes(found: tuple[ReadPlan, Frame] | Skipped) -> list[tuple[str, str]]:
    doubts = found.doubts if isinstance(found, Skipped) else found[0].doubts
    return [(d.code, d.column) for d in doubts]


def _frame(found: tuple[ReadPlan, Frame] | Skipped, folder: Path) -> Frame:
    """The frame, which the printed code gives as well."""
    assert not isinstance(found, Skipped), found.said()
    same_by_code(*found, folder / "data")
    return found[1]


def _merge(sheet: Any) -> None:
    _plain(sheet)
    for row in range(2, 26, 4):
        sheet.merge_cells(start_row=row, end_row=row + 3, start_column=1, end_column=1)
    sheet.merge_cells("C5:D6")


def _mixed(sheet: Any) -> None:
    sheet.append(("day", "n"))
    for n in range(1, 20):
        sheet.append((datetime(2020, 1, n) if n % 3 else f"2020-01-{n:02}", n * 1.5))


def _titled(sheet: Any) -> None:
    sheet.append(("Shops of 2024",))
    sheet.merge_cells("A1:D1")
    sheet.append(())
    _plain(sheet)


def _computed(sheet: Any) -> None:
    _plain(sheet)
    sheet["C4"] = "=D4*2"


@pytest.mark.parametrize(
    ("draw", "rules", "doubt", "left", "gaps"),
    [
        (_mixed, "", "date_order day", ["n"], 0),  # days and texts in one column
        (_titled, "", "", NAMES, 0),  # a title over the names is no doubt
        (_computed, "", "formulas sales", [n for n in NAMES if n != "sales"], 0),
        (_computed, "{formulas: stored}", "formulas sales", ["town", *NAMES[1::2]], 0),  # none is
        (_computed, "{formulas: missing}", "", NAMES, 1),
    ],
)
def test_columns_in_doubt_are_left_out(
    draw: Drawn, rules: str, doubt: str, left: Sequence[str], gaps: int, tmp_path: Path
) -> None:
    (found,) = _written(tmp_path, draw, rules=rules)
    assert [" ".join(code) for code in _codes(found)] == [doubt] * bool(doubt)
    frame = _frame(found, tmp_path)
    assert list(frame.columns) == list(left) and frame.isna().sum().sum() == gaps
    assert "town" not in left or frame["town"].tolist() == [r[0] for r in ROWS]


def test_what_is_hidden_is_said(tmp_path: Path) -> None:
    def hidden(sheet: Any) -> None:
        _plain(sheet)
        sheet.row_dimensions[4].hidden = True
        sheet.column_dimensions["D"].hidden = True
        sheet["C9"] = "#N/A"

    (found,) = _written(tmp_path, hidden)
    assert not isinstance(found, Skipped)
    said = " ".join(found[0].notes)
    assert "1 rows are hidden" in said and "hidden in the workbook, and read: D" in said
    assert "1 cells hold an error" in said
    assert found[1]["sales"].isna().sum() == 1


def test_rows_left_out_keep_the_fill_in_place(tmp_path: Path) -> None:
    (found,) = _written(tmp_path, _merge, rules="{merged: fill, drop_rows: [3, 9-10]}")
    frame = _frame(found, tmp_path)
    kept = [r[1] for i, r in enumerate(ROWS) if i not in (1, 7, 8)]
    # the cell with the name of the third town is left out: none is there to fill from
    assert ("merged_cells", "town") in _codes(found) and "town" not in frame
    assert frame["department"].tolist() == kept


def test_merged_cells_of_an_open_document_put_their_columns_in_doubt(tmp_path: Path) -> None:
    opendocument, odf, text = map(
        pytest.importorskip, ("odf.opendocument", "odf.table", "odf.text")
    )
    book = opendocument.OpenDocumentSpreadsheet()
    sheet = odf.Table(name="Sheet1")
    for place, row in enumerate((NAMES, *ROWS)):
        line = odf.TableRow()
        for name, value in zip(NAMES, row, strict=True):
            down = 4 if name == "town" and place % 4 == 1 else 1
            kind = "string" if isinstance(value, str) else "float"
            cell = odf.TableCell(valuetype=kind, value=value, numberrowsspanned=down)
            cell.addElement(text.P(text=str(value)))
            line.addElement(cell)
        sheet.addElement(line)
    book.spreadsheet.addElement(sheet)
    book.save(tmp_path / "book.ods")
    (found,) = load_file(tmp_path / "book.ods", tmp_path)
    assert _codes(found) == [("merged_cells", "town")] and not isinstance(found, Skipped)
    assert "6 merged cells such as A2:A5 ('Town 0')" in found[0].said()
