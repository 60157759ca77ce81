"""Every cell of the messy set is what its writer meant, or the table is refused with the reason."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from plan_code import same_by_code

pd = pytest.importorskip("pandas")
pytest.importorskip("openpyxl")
pytest.importorskip("lxml")

from messy_tables import MESSY, Columns, Messy  # noqa: E402

from assay.tables.load import load, load_file, plan_file  # noqa: E402
from assay.tables.plan import Frame, ReadPlan, Skipped  # noqa: E402

DOUBTS = {"names.csv": {"preis": "alike_names", "preis.1": "alike_names"}}


def differing(
    frame: Frame, columns: Columns, doubts: dict[str, str] | None = None
) -> list[tuple[str, int, Any, Any]]:
    """(column, row, found, meant) of the cells that differ."""
    columns = {k: v for k, v in columns.items() if k not in (doubts or {})}
    assert [str(c) for c in frame.columns] == list(columns)
    wrong: list[tuple[str, int, Any, Any]] = []
    for name, values in columns.items():
        found = frame[name].tolist()
        assert len(found) == len(values)
        for row, (cell, value) in enumerate(zip(found, values, strict=True)):
            if value is None:
                right = bool(pd.isna(cell))
            elif isinstance(value, date | str):
                right = cell == value
            else:
                right = not isinstance(cell, str) and math.isclose(cell, value, rel_tol=1e-14)
            if not right:
                wrong.append((name, row, cell, value))
    return wrong


def opened(path: Path) -> tuple[ReadPlan, Frame]:
    """The one table of a file."""
    (found,) = load_file(path, path.parent)
    assert not isinstance(found, Skipped), found.why
    return found


@pytest.mark.parametrize("messy", MESSY, ids=lambda m: m.name)
def test_right_or_refused(messy: Messy, tmp_path: Path) -> None:
    root = tmp_path / "data"
    root.mkdir()
    path = root / messy.name
    parts = messy.write(path)
    found = plan_file(path)
    if not parts:
        assert all(isinstance(r, Skipped) and messy.refused in r.why for r in found)
        assert bool(found) == bool(messy.refused)  # what is no table is passed over
        return
    assert [r.part for r in found] == list(parts)
    for reading in found:
        assert isinstance(reading, ReadPlan), reading.said()
        doubts = DOUBTS.get(messy.name, {})
        assert {d.column: d.code for d in reading.doubts} == doubts
        frame = load(reading, root)
        assert differing(frame, parts[reading.part], doubts) == []
        same_by_code(reading, frame, root)


@pytest.mark.parametrize("late", ["x", "7.5.1", "1,234,567"])
def test_a_late_cell_makes_a_column_text_and_never_a_wrong_number(
    late: str, tmp_path: Path
) -> None:
    """A plan of the file before it had the odd cell is refused by `load`."""
    path = tmp_path / "t.csv"
    body = [f"{i};{i}.5;2020-01-{i % 28 + 1:02}" for i in range(150_000)]
    path.write_text("a;b;d\n" + "\n".join(body) + "\n")
    (before,) = plan_file(path)
    assert isinstance(before, ReadPlan) and "d" in before.dates
    body[101_003] = f"7;{late};2020-13-99"
    path.write_text("a;b;d\n" + "\n".join(body) + "\n")
    with pytest.raises(ValueError, match="2020-13-99"):
        load(before, tmp_path)
    with pytest.raises(ValueError, match="'b' holds other cells than its plan says"):
        load(replace(before, dates={}, text=("d",)), tmp_path)
    plan, frame = opened(path)
    assert frame["d"][101_003] == "2020-13-99" and plan.dates == {}
    if late == "x":  # it may mean no value
        assert [(d.code, d.column) for d in plan.doubts] == [("sentinel", "b")]
    else:  # thousands are grouped by the other mark
        assert frame["b"][101_003] == (1234567 if late == "1,234,567" else late)
    pd.testing.assert_frame_equal(load(plan, tmp_path), frame)


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        (
            "t.csv",
            "full name\n" + "New York\nLos Angeles\n" * 9,
            [["New York"], ["Los Angeles"]] * 9,
        ),
        ("t.csv", "full name\n" + "1 000\n2 500\n" * 9, [[1000], [2500]] * 9),
        ("t.dat", "  a    b\n 1.5   x\n-2.25  y\n", [[1.5, "x"], [-2.25, "y"]]),
    ],
)
def test_spaces_cut_the_fields_of_a_dat_file_and_no_column_of_a_csv_file(
    name: str, text: str, wanted: list[list[object]], tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    assert opened(tmp_path / name)[1].values.tolist() == wanted


@pytest.mark.parametrize(
    ("late", "code"), [("7", "short_rows"), ("7;8;9;10", "wide_rows"), ("", "")]
)
def test_a_late_row_of_another_width_puts_the_table_in_doubt(
    late: str, code: str, tmp_path: Path
) -> None:
    body = [f"{i};x y;z" for i in range(150_000)]
    body[120_000] = late + (";8" if code == "short_rows" else "")
    (tmp_path / "t.csv").write_text("a;b;c\n" + "\n".join(body) + "\n")
    (found,) = load_file(tmp_path / "t.csv", tmp_path)
    if not code:
        assert not isinstance(found, Skipped) and len(found[1]) == 149_999
        return
    assert isinstance(found, Skipped) and [d.code for d in found.doubts] == [code]
    assert "120002" in found.why
