"""Tables that are odd in one way are read as they were meant, or refused with the reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from places import tables

pd = pytest.importorskip("pandas")

from assay.tables.load import load, load_file, plan_file  # noqa: E402
from assay.tables.plan import Frame, ReadPlan, Skipped  # noqa: E402


def opened(path: Path) -> tuple[ReadPlan, Frame]:
    """The one table of a file."""
    (found,) = load_file(path, path.parent)
    assert not isinstance(found, Skipped), found.why
    return found


@pytest.mark.parametrize(("name", "data", "why"), tables("tables")["what_is_no_table"])
def test_what_is_no_table_is_refused_with_the_reason(
    name: str, data: bytes, why: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(data)
    (found,) = plan_file(tmp_path / name)
    assert isinstance(found, Skipped) and why in found.why


@pytest.mark.parametrize("late", ["x", "1,234,567"])
def test_a_late_cell_makes_a_column_text_and_never_a_wrong_number(
    late: str, tmp_path: Path
) -> None:
    """A plan of the file before it had the odd cell is refused by `load`."""
    path = tmp_path / "t.csv"
    body = [f"{i};{i}.5;2020-01-{i % 28 + 1:02}" for i in range(60_000)]
    path.write_text("a;b;d\n" + "\n".join(body) + "\n")
    (before,) = plan_file(path)
    assert isinstance(before, ReadPlan) and "d" in before.dates
    body[50_003] = f"7;{late};2020-13-99"
    path.write_text("a;b;d\n" + "\n".join(body) + "\n")
    with pytest.raises(ValueError, match="2020-13-99"):
        load(before, tmp_path)
    with pytest.raises(ValueError, match="'b' holds other cells than its plan says"):
        load(replace(before, dates={}, text=("d",)), tmp_path)
    plan, frame = opened(path)
    assert frame["d"][50_003] == "2020-13-99" and plan.dates == {}
    if late == "x":  # it may mean no value
        assert [(d.code, d.column) for d in plan.doubts] == [("sentinel", "b")]
    else:  # thousands are grouped by the other mark
        assert frame["b"][50_003] == 1234567
    pd.testing.assert_frame_equal(load(plan, tmp_path), frame)


@pytest.mark.parametrize(
    ("late", "code"), [("7", "short_rows"), ("7;8;9;10", "wide_rows"), ("", "")]
)
def test_a_late_row_of_another_width_puts_the_table_in_doubt(
    late: str, code: str, tmp_path: Path
) -> None:
    body = [f"{i};x y;{'z' * 20}" for i in range(60_000)]
    body[50_000] = late + (";8" if code == "short_rows" else "")
    (tmp_path / "t.csv").write_text("a;b;c\n" + "\n".join(body) + "\n")
    (found,) = load_file(tmp_path / "t.csv", tmp_path)
    if not code:
        assert not isinstance(found, Skipped) and len(found[1]) == 59_999
        return
    assert isinstance(found, Skipped) and [d.code for d in found.doubts] == [code]
    assert "50002" in found.why
