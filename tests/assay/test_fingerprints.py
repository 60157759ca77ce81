"""Tables are known by what stands in them: copies in any form are found, strangers are not."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from table_copies import homes

pd = pytest.importorskip("pandas")

from assay.fingerprints import marks_of_frame, tables_below, tables_of  # noqa: E402  # noqa: E402


def copies(frame: Any) -> dict[str, Any]:
    """Each sort of copy of a table."""
    return {
        "itself": frame,
        "sorted": frame.sort_values("Price"),
        "columns in another order": frame[frame.columns[::-1]],
        "renamed": frame.rename(columns={"Area": "Fläche", "Price": "p"}),
        "a column less": frame.drop(columns=["Street"]),
        "a column more": frame.assign(extra=1.0),
        "most rows": frame.sample(frac=0.8, random_state=3),
        "some cells changed": frame.assign(
            Area=[None if i % 10 == 0 else v for i, v in enumerate(frame["Area"])]
        ),
        "numbers with another ending": frame.assign(Price=frame["Price"].astype(float)),
    }


@pytest.mark.parametrize("name", list(copies(homes(0))))
def test_every_sort_of_copy_is_found(name: str) -> None:
    table = marks_of_frame(homes(1))
    copy = marks_of_frame(copies(homes(1))[name])
    assert table.like(copy) and copy.like(table)
    flat = {*table.columns, *table.rows}
    assert copy.within(lambda marks: [m in flat for m in marks])


@pytest.mark.parametrize("factor", [0.001, 0.45359237])
def test_a_copy_in_another_unit_is_found(factor: float) -> None:
    """Under other names, in another order, four rows in five."""
    draw = random.Random(1)
    sizes = {"invest": (4, 1.2), "value": (7, 1), "capital": (5, 1.5)}
    numbers = pd.DataFrame(
        {n: [round(draw.lognormvariate(*s), 2) for _ in range(220)] for n, s in sizes.items()}
    )
    copy = numbers.sample(frac=0.8, random_state=4)[numbers.columns[::-1]] * factor
    one, two = marks_of_frame(numbers), marks_of_frame(copy.set_axis(["k", "v", "i"], axis=1))
    assert not one.columns & two.columns
    assert one.like(two) and two.like(one)
    assert one.all() & two.all()


def test_columns_that_fill_their_range_make_no_kin() -> None:
    draw = random.Random(0)
    ranges = {"age": (18, 90), "share": (0, 101), "born": (1950, 2000)}
    one, two = (
        marks_of_frame(
            pd.DataFrame({n: [draw.randrange(*r) for _ in range(400)] for n, r in ranges.items()})
        )
        for _ in range(2)
    )
    assert not one.like(two) and one.numbers == ()


def test_files_of_other_forms_are_the_same_table(tmp_path: Path) -> None:
    frame = homes(2)
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_csv(tmp_path / "b.csv", index=False, sep=";", decimal=",", encoding="cp1252")
    frame[frame.columns[::-1]].to_parquet(tmp_path / "c.parquet")
    (tmp_path / "notes.txt").write_text("no table")
    (first,), *others = (tables_of([tmp_path / name]) for name in ("a.csv", "b.csv", "c.parquet"))
    assert len(others) == 2 and all(first.like(other) for (other,) in others)
    assert len(tables_below(tmp_path, ["a.csv"])) == 1
    assert tables_of([tmp_path / "gone.csv"]) == tables_of([tmp_path / "notes.txt"]) == []


@pytest.mark.filterwarnings("error")
def test_values_of_very_different_sizes_are_marked_without_a_guess() -> None:
    """A step too large for 64 bits becomes one number, not what a processor makes of it."""
    values = [123456.7 * 1.01**k for k in range(60)] + [7.654321e30 * 1.013**k for k in range(60)]
    frame = pd.DataFrame({"a": values, "b": [v * 10 for v in values]})
    assert marks_of_frame(frame).like(marks_of_frame(frame * 1000))
