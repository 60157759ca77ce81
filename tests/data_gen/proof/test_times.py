"""Times of an original: one format, or none."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

pytest.importorskip("duckdb")

from data_gen.proof.forms import opened
from data_gen.proof.marks import time
from data_gen.proof.original import NotProvable, Original


def times(folder: Path, *cells: str) -> list[datetime | None]:
    path = folder / "t.csv"
    rows = "".join(f'x{place},"{cell}"\n' for place, cell in enumerate(cells))
    path.write_text(f"a,b\n{rows}", encoding="utf-8")
    table = opened(Original(path))
    made = time(table, "b")
    return [row[0] for row in table.all(f"select {made} from {table.table} order by rn")]


@pytest.mark.parametrize(
    ("cells", "wanted"),
    [
        (("2020-03-04", "2020-03-05"), datetime(2020, 3, 4)),
        (("3/4/2020", "13/4/2020"), datetime(2020, 4, 3)),
        (("3/4/2020", "3/14/2020"), datetime(2020, 3, 4)),
        (("01.02.2020", "03.02.2020"), datetime(2020, 2, 1)),  # points: the day is first
        (("2020-03-04T10:00:00+02:00", "2020-03-04T11:00:00Z"), datetime(2020, 3, 4, 10)),
        (("2020M03", "2020M04"), datetime(2020, 3, 1)),
        (("Mar 4, 2020", "Apr 1, 2020"), datetime(2020, 3, 4)),
        (("2020", "2021"), datetime(2020, 1, 1)),
        (("04.03.2020 10:30", "05.03.2020 11:00"), datetime(2020, 3, 4, 10, 30)),
    ],
)
def test_a_format_that_reads_all_cells_counts(
    tmp_path: Path, cells: tuple[str, ...], wanted: datetime
) -> None:
    assert times(tmp_path, *cells)[0] == wanted


@pytest.mark.parametrize(
    "cells",
    [
        ("3/4/2020", "4/4/2020"),
        ("3/4/2020", "3/9/2020", "4/2/2020"),  # that the rows would be in order decides nothing
        ("01.02.20", "03.02.20"),  # of which century?
        ("soon", "later"),
        ("12", "13"),
        ("2020-03-04", "5.3.2020"),
        ("2020-03-04", "2020-03-05", "2021-03-05", "9999-12-31"),
        ("1900-01-01", "2020-03-04", "2020-03-05", "2021-03-05"),
    ],
)
def test_two_formats_or_none_are_not_provable(tmp_path: Path, cells: tuple[str, ...]) -> None:
    with pytest.raises(NotProvable):
        times(tmp_path, *cells)


def test_the_format_that_the_user_names_counts(tmp_path: Path) -> None:
    (tmp_path / "tables.yaml").write_text('"t.csv": {dates: {b: "%m/%d/%Y"}}')
    assert times(tmp_path, "3/4/2020", "4/4/2020")[0] == datetime(2020, 3, 4)
