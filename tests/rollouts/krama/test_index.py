"""The lake index: what is found in files, what is kept, and how much of it is shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_lake import make_lake

from rollouts.krama import index
from rollouts.krama.index import CHARS_A_TOKEN, describe, index_lake, look


def test_a_changed_file_is_looked_at_again(tmp_path: Path) -> None:
    lake = make_lake(tmp_path / "lake")
    assert index_lake(lake) == index_lake(lake)
    (lake / "rain_amherst.csv").write_text("a,b\n1,2\n3,4\n", encoding="utf-8")
    assert [c.name for c in index_lake(lake)["rain_amherst.csv"].columns] == ["a", "b"]


@settings(max_examples=60, deadline=None)
@given(
    st.binary(max_size=600), st.sampled_from([".csv", ".txt", ".xlsx", ".dat", ".bin", ".csv.gz"])
)
def test_any_bytes_can_be_scanned(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, suffix: str
) -> None:
    path = tmp_path_factory.mktemp("f") / f"x{suffix}"
    path.write_bytes(data)
    assert look(path, path.parent).size == len(data)


def test_a_table_in_doubt_is_text_and_its_settings_are_obeyed(tmp_path: Path) -> None:
    lake, cache = tmp_path / "lake", tmp_path / "cache"
    lake.mkdir()
    rows = "".join(f"Town {n};{1 + n % 9}.{100 + n}\n" for n in range(40))
    (lake / "open.csv").write_text("town;residents\n" + rows, encoding="utf-8")
    before = index_lake(lake, cache)["open.csv"]
    text = describe("open.csv", before)
    assert "residents" in text and ("in doubt" in text or "not read as a table" in text)
    assert not any(c.kind in ("integer", "number") for c in before.columns)
    (lake / "tables.yaml").write_text('open.csv: {decimal: ",", thousands: "."}\n')
    after = index_lake(lake, cache)["open.csv"]
    assert [c.kind for c in after.columns] == ["text", "integer"]


def test_a_snippet_keeps_to_its_budget_and_shows_the_first_rows(tmp_path: Path) -> None:
    lake = make_lake(tmp_path / "lake")
    few, many = (index_lake(lake, rows=rows) for rows in (5, 25))
    shown = [index.snippet(one, 8000, "", rows) for one, rows in ((few, 5), (many, 25))]
    assert [text.count("row: 20") for text in shown] == [10, 50]  # two towns
    found = {name: note.head for name, note in many.items()}
    assert found["rain_amherst.csv"][:2] == ["2000,1.0,2.0", "2001,1.25,2.0"]
    assert found["sites.csv"][0].startswith("Site 0,Amherst,Fresh")  # below title and names
    for year in range(2000, 2100):
        (lake / f"level_{year}.csv").write_text("Date,Level\n1,2\n3,4\n", encoding="utf-8")
    notes = index_lake(lake)
    for budget in (60, 200, 1000, 20_000):
        text = index.snippet(notes, budget, "How high was the level?")
        assert len(text) <= budget * CHARS_A_TOKEN
        assert budget < 200 or "100 files data/level_#.csv" in text
