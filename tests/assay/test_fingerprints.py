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


def panel(seed: int, firms: int = 11) -> Any:
    """A panel of firms over twenty years: names, a year, three quantities."""
    draw = random.Random(seed)
    rows = [
        {
            "firm": f"Company {firm}",
            "year": 1935 + year,
            "invest": round(draw.lognormvariate(4, 1.2), 2),
            "value": round(draw.lognormvariate(7, 1), 1),
            "capital": round(draw.lognormvariate(5, 1.5), 1),
        }
        for firm in range(firms)
        for year in range(20)
    ]
    return pd.DataFrame(rows)


def relabelled(frame: Any) -> Any:
    """The same firms but the last, by number, under other names, in another order."""
    kept = frame[frame["firm"] != "Company 10"]
    out = kept.rename(columns={"invest": "inv", "value": "v", "capital": "k"})
    out["firm"] = out["firm"].str.removeprefix("Company ").astype(int) + 1
    return out[["k", "firm", "inv", "v", "year"]].sample(frac=1, random_state=1)


RELABELLED = {
    "numbers for names": lambda f: relabelled(f),
    "in thousandths": lambda f: relabelled(f).assign(v=lambda r: r["v"] / 1000),
    "in another unit": lambda f: relabelled(f).assign(
        **{c: relabelled(f)[c] * 0.45359237 for c in ("inv", "v", "k")}
    ),
    "four rows in five": lambda f: relabelled(f).sample(frac=0.8, random_state=4),
}


@pytest.mark.parametrize("how", list(RELABELLED))
def test_a_copy_under_other_labels_is_found(how: str) -> None:
    one, two = marks_of_frame(panel(1)), marks_of_frame(RELABELLED[how](panel(1)))
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
