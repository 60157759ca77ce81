"""The lake index: what is found in files, what is kept, and how much of it is shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_lake import make_lake

from rollouts.krama.columns import kind_of
from rollouts.krama.index import CHARS_A_TOKEN, index_lake, snippet
from rollouts.krama.more_rows import more_rows
from rollouts.krama.scan import FileNote, scan


def test_types_headers_and_odd_cells(tmp_path: Path) -> None:
    index = index_lake(make_lake(tmp_path / "lake"))
    rain = index.files["rain_amherst.csv"]
    june = rain.columns[1]
    assert (rain.kind, rain.rows, june.kind, june.odd) == ("table", 31, "number", ("line 9: M",))
    assert rain.columns[0].odd == ("line 32: Mean",)
    sites = index.files["sites.csv"]
    assert (sites.header, [c.kind for c in sites.columns]) == (2, ["text"] * 3 + ["number"])
    assert sites.columns[3].note
    assert index.files["notes.txt"].head[1] == "M is missing."
    assert FileNote.from_json(rain.to_json()) == rain


def test_files_are_read_once_and_copies_never(tmp_path: Path) -> None:
    lake = make_lake(tmp_path / "lake")
    first = index_lake(lake)
    again = index_lake(lake)
    assert (first.read, again.read, again.files) == (4, 0, first.files)
    (lake / "rain_amherst.csv").write_text("a,b\n1,2\n3,4\n", encoding="utf-8")
    changed = index_lake(lake)
    assert changed.read == 1
    assert [c.name for c in changed.files["rain_amherst.csv"].columns] == ["a", "b"]


@pytest.mark.parametrize("budget", [60, 200, 1000, 20_000])
def test_a_snippet_keeps_to_its_budget(tmp_path: Path, budget: int) -> None:
    lake = make_lake(tmp_path / "lake")
    for year in range(2000, 2100):
        (lake / f"level_{year}.csv").write_text("Date,Level\n1,2\n3,4\n", encoding="utf-8")
    text = snippet(index_lake(lake), budget, "How high was the level?")
    assert len(text) <= budget * CHARS_A_TOKEN
    if budget >= 200:
        assert "100 files data/level_#.csv" in text
    if budget == 20_000:
        assert text.count("\n  row: ") >= 6


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=600), st.sampled_from([".csv", ".txt", ".xlsx", ".dat", ".bin"]))
def test_any_bytes_can_be_scanned(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, suffix: str
) -> None:
    path = tmp_path_factory.mktemp("f") / f"x{suffix}"
    path.write_bytes(data)
    assert scan(path).size == len(data)


@pytest.mark.parametrize(
    ("cell", "kind"),
    [
        ("12", "integer"),
        ("-1.5e3", "number"),
        ("1,234", "grouped"),
        ("$5", "grouped"),
        ("40%", "grouped"),
        ("2020-01-02 03:04:05", "date"),
        ("M", "text"),
        ("", "empty"),
        ("nan", "text"),
    ],
)
def test_kinds_of_cells(cell: str, kind: str) -> None:
    assert kind_of(cell) == kind


def test_more_rows_than_the_index_keeps_are_read_from_the_start(tmp_path: Path) -> None:
    lake = make_lake(tmp_path / "lake")
    (lake / "plain.json").write_text(json.dumps([{"a": n} for n in range(40)]), "utf-8")
    (lake / "old.csv").write_bytes(b"Ort;Wert\n" + "Köln;1\n".encode("cp1252") * 30)
    (lake / "gone.parquet").write_bytes(b"PAR1\0\0")
    index = index_lake(lake)
    assert more_rows(lake, index, 12) == {}
    found = more_rows(lake, index, 25)
    assert found["rain_amherst.csv"][:2] == ["2000,1.0,2.0", "2001,1.25,2.0"]
    assert found["sites.csv"][0].startswith("Site 0,Amherst,Fresh")  # below title and names
    assert found["plain.json"][24] == '{"a": 24}'
    assert found["old.csv"] == ["Köln;1"] * 25
    assert {len(rows) for name, rows in found.items() if name != "notes.txt"} == {25}
    assert found["notes.txt"][1] == "M is missing."
    assert "gone.parquet" not in found
    few, many = (snippet(index, 8000, "", rows, more_rows(lake, index, rows)) for rows in (5, 25))
    assert (few.count("row: 20"), many.count("row: 20")) == (10, 50)  # two towns
    assert len(snippet(index, 200, "", 25, found)) <= 200 * CHARS_A_TOKEN
