"""Rows in words: read back as written by both ways, or refused; asked about as any table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from front import command
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pandas")
pytest.importorskip("duckdb")
pytest.importorskip("lxml")

import pandas as pd
from lake_files import frame
from proof_lake import question, values_of

from data_gen.proof.forms import Shelf
from data_gen.proof.original import NotProvable, ident
from data_gen.queries.files import (
    FILES,
    Layout,
    NoRecords,
    holds,
    in_words,
    may_hold,
    records_in,
    write_frames,
)
from data_gen.queries.lake import open_lake
from data_gen.queries.ops import Clean, Figure, Load
from data_gen.queries.pipeline_runner import Pandas
from data_gen.tally import DIFFERS

main = command("tasks", "lake")
STYLES = {"cards": "n.txt", "entries": "n.html"}
NAMES = st.text(st.characters(categories=["L", "Nd"], include_characters=" -,'"), min_size=1)
CELLS = st.text(st.characters(categories=["L", "Nd", "P", "S", "Zs"]), min_size=1, max_size=12)
VALUES = st.one_of(st.none(), CELLS, st.floats(-1e9, 1e9), st.integers(-(10**9), 10**9))


@settings(max_examples=40, deadline=None)
@given(st.data())
@pytest.mark.parametrize("style", STYLES)
def test_what_a_file_can_hold_both_ways_read_back(
    tmp_path_factory: pytest.TempPathFactory, style: Any, data: st.DataObject
) -> None:
    names = data.draw(st.lists(NAMES.map(str.strip).filter(bool), min_size=2, unique=True))
    names = names[:5]
    rows = data.draw(st.lists(st.tuples(*[VALUES] * len(names)), min_size=15, max_size=20))
    table = pd.DataFrame(rows, columns=names)
    if not holds(table):
        return
    folder = tmp_path_factory.mktemp("words")
    write_frames(folder, [(Layout(STYLES[style], style, top=("About: it",)), table)])
    reading, found = records_in(folder / STYLES[style], STYLES[style])
    assert sorted(found.columns) == sorted(names)
    assert found[names].astype(object).where(found[names].notna(), None).values.tolist() == (
        table.astype(object).where(table.notna(), None).values.tolist()
    )
    with Shelf(folder) as shelf:
        held = shelf.table(STYLES[style])
        named = ", ".join(f"{cell} AS {ident(name)}" for name, cell in held.ids.items())
        cells = shelf.con.execute(f"SELECT {named} FROM {held.table}").df()
    second = cells[list(found.columns)].astype(object)
    for name in found.columns:
        texts = second[name].where(second[name].notna(), None).tolist()
        if name in reading.numbers:
            texts = [None if t is None else float(t) for t in texts]
        want = found[name].astype(object).where(found[name].notna(), None).tolist()
        assert texts == want


@pytest.mark.parametrize("style", STYLES)
def test_gaps_are_left_out_and_the_code_reads_what_the_builder_read(
    tmp_path: Path, style: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = frame().assign(Height=lambda t: t["Height"].where(t.index % 7 != 3))
    write_frames(tmp_path / "data", [(Layout(STYLES[style], style), table)])
    text = (tmp_path / "data" / STYLES[style]).read_text("utf-8")
    assert text.count("Height") == table["Height"].count() < len(table)
    reading, found = records_in(tmp_path / "data" / STYLES[style], STYLES[style])
    assert reading.numbers == ("Built", "Height", "Cost")
    assert found["Cost"].dtype == "int64" and found["Height"].isna().sum() == 21
    monkeypatch.chdir(tmp_path)
    for seed in (None, 3):
        space: dict[str, Any] = {"pd": Pandas({}, seed)}
        exec(reading.code("t"), space)
        same = space["t"].equals(found)
        assert same == (seed is None)  # runs on shuffled rows shuffle these too
        assert sorted(space["t"]["Name"]) == sorted(found["Name"])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("A: 1\nB: 2\n\n" * 10, "10 blocks"),
        ("A: 1\nA: 2\n\n" * 20, "stands twice"),
        ("A: 1\nB: 2\n\n" * 20 + "C: 1\nD: 2\n", "most blocks do not say 'C'"),
    ],
)
def test_texts_that_hold_no_rows_are_refused(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    with pytest.raises(NoRecords, match=why):
        records_in(tmp_path / "a.txt", "a.txt")


def test_prose_and_tables_are_no_rows_in_words(tmp_path: Path) -> None:
    (tmp_path / "read me.txt").write_text("Note: rain is in inches.\nM is missing.\n", "utf-8")
    (tmp_path / "page.html").write_text("<dl></dl><table></table>", "utf-8")
    (tmp_path / "latin.txt").write_bytes("Käse: 1\nB: 2\n\n".encode("latin-1") * 20)
    assert [may_hold(p) for p in sorted(tmp_path.iterdir())] == [True, False, False]
    lake = open_lake(tmp_path)
    assert lake.tables == []
    assert lake.refused["latin.txt"] == "no rows in words that can be read: no UTF-8"
    assert any("read me.txt" in f"{name} {why}" for name, why in lake.refused.items())
    assert set(FILES.values()) == set(STYLES)


def test_a_first_reader_that_loses_a_row_or_reads_wrongly_is_found(tmp_path: Path) -> None:
    write_frames(tmp_path / "data", [(Layout("n.txt", "cards"), frame())])
    lake = open_lake(tmp_path / "data")
    (table,) = lake.tables
    ops = [Load(table.source("Height")), Clean("Height"), Figure("Height", "mean", 2)]
    asked = question(lake, ops)
    code = asked.code()
    assert lake.prover.refusal(asked, values_of(code, tmp_path)) is None
    for old, new in (
        ("if len(c) > 1]", "if len(c) > 1][1:]"),
        ("split('\\n\\n')", "split('\\n\\n')[:-1]"),
        ("pd.to_numeric(t['Height'])", "pd.to_numeric(t['Height']).round(0)"),
    ):
        assert old in code
        values = values_of(code.replace(old, new), tmp_path)
        why = lake.prover.refusal(asked, values)
        assert why and why.code == DIFFERS, (new, values)
    broken = "<html><dl><dt>A</dt><dt>B</dt><dd>1</dd></dl></html>"
    (tmp_path / "data" / "b.html").write_text(broken, "utf-8")
    with Shelf(tmp_path / "data") as shelf, pytest.raises(NotProvable, match="'A' has no value"):
        shelf.table("b.html")


@pytest.mark.slow
def test_tasks_are_asked_over_texts_and_pages_plain_and_obscured(tmp_path: Path) -> None:
    """A lake whose second facts no table holds: the join reads a text or a page."""
    lake = tmp_path / "lake"
    names = [f"Ort n{i}" for i in range(200)]
    kinds = ["Turm", "Hof", "Haus", "Steg", "Wall", "Tor", "Bau"]
    one = pd.DataFrame(
        {
            "Name": names,
            "Kind": [kinds[i * i % 19 % 7] for i in range(200)],
            "Height": [10 + (i * 37) % 101 / 3 for i in range(200)],
        }
    )
    two = pd.DataFrame({"Name": names[:190], "Depth": [3 + (i * 13) % 97 / 8 for i in range(190)]})
    three = pd.DataFrame(
        {"Name": names[5:], "Owner": [kinds[i * i % 23 % 7] + "er" for i in range(195)]}
    ).assign(Width=[5 + (i * 17) % 89 / 7 for i in range(195)])
    parts = (
        (Layout("places.csv"), one),
        (Layout("depths.txt", "cards"), two),
        (Layout("owners.html", "entries"), three),
    )
    for part in parts:
        write_frames(lake, [part])
    words = [
        "--lakes",
        str(lake),
        "--heldout-share",
        "0",
        "--count",
        "18",
        "--seed",
        "1",
        "--workers",
        "1",
    ]
    words += ["--validation-share", "0", "--obscured", "--out", str(tmp_path / "o")]
    assert main(words) == 0
    for name in ("train.jsonl", "train_obscured.jsonl"):
        lines = (tmp_path / "o" / name).read_text("utf-8").splitlines()
        files = [set(json.loads(line)["meta"]["gold_files"]) for line in lines]
        endings = {Path(f).suffix for used in files for f in used}
        assert {".csv", ".txt", ".html"} == endings, name
        assert any(len(used) > 1 for used in files)
    told = json.loads((tmp_path / "o" / "certificate.json").read_text("utf-8"))
    assert set(told["proof"]) <= {"agreed"}
    assert not any("Turm" in p.read_text("utf-8") for p in (tmp_path / "o").rglob("*.txt"))


def test_a_page_escapes_what_would_be_a_mark() -> None:
    table = pd.DataFrame({"a<b": ["<i>x</i>"] * 15, "c": range(15)})
    assert "<i>" not in in_words("entries", table, ("A & B",))
    assert "A &amp; B" in in_words("entries", table, ("A & B",))
