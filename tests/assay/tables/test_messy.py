"""Tables that are odd in one way are read as they were meant, or refused with the reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pd = pytest.importorskip("pandas")

from assay.tables.load import load, load_file, plan_file  # noqa: E402
from assay.tables.plan import Frame, ReadPlan, Skipped  # noqa: E402


def opened(path: Path) -> tuple[ReadPlan, Frame]:
    """The one table of a file."""
    (found,) = load_file(path, path.parent)
    assert not isinstance(found, Skipped), found.why
    return found


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("t.csv", b'a,b\n"1,5","7,5"\n"2,5","8,5"\n', "decimal comma, and commas part the fields"),
        ("t.csv", b"a,b\n1,5,2,5\n2,5,3,5\n", "a decimal comma"),
        ("t.csv", b"\n \n", "empty"),
        ("t.csv", b"a,b\n1,\x00\n" * 9, "zero bytes"),
        ("t.csv", b"a,b\n\x81,\x8d\n", "no UTF-8"),
        ("t.csv.gz", b"no archive at all", "cannot be unpacked"),
        ("t.xlsx", b"PK\x03\x04 no workbook", "no readable excel file"),
        ("t.json", b'[{"a": {"b": 1}}]', "holds objects"),
    ],
)
def test_what_is_no_table_is_refused_with_the_reason(
    name: str, data: bytes, why: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(data)
    (found,) = plan_file(tmp_path / name)
    assert isinstance(found, Skipped) and why in found.why


@pytest.mark.parametrize("late", ["x", "7.5.1", "1,234,567"])
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
        assert frame["b"][50_003] == (1234567 if late == "1,234,567" else late)
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
        ("t.csv", "wert\n1,5\n2,25\n-3,125\n", [[1.5], [2.25], [-3.125]]),
        (  # a country, a postcode, and text with a separator and a line end
            "t.csv",
            "code;zip;text\n" + 'NA;00100;"say ""a; b"""\nNO;01234;"two\nlines"\n' * 10,
            [["NA", "00100", 'say "a; b"'], ["NO", "01234", "two\nlines"]] * 10,
        ),
    ],
)
def test_spaces_separators_and_zeros_in_cells_are_part_of_them(
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
    body = [f"{i};x y;{'z' * 20}" for i in range(60_000)]
    body[50_000] = late + (";8" if code == "short_rows" else "")
    (tmp_path / "t.csv").write_text("a;b;c\n" + "\n".join(body) + "\n")
    (found,) = load_file(tmp_path / "t.csv", tmp_path)
    if not code:
        assert not isinstance(found, Skipped) and len(found[1]) == 59_999
        return
    assert isinstance(found, Skipped) and [d.code for d in found.doubts] == [code]
    assert "50002" in found.why
