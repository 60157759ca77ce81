"""Tables as people keep them, and what is said of those that give no task."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn")
pytest.importorskip("pyarrow")

from front import command  # noqa: E402

from data_gen.dare.build import inputs_of  # noqa: E402
from data_gen.dare.database import Built  # noqa: E402
from data_gen.dare.sources import listed, sources, tables_in  # noqa: E402
from data_gen.tally import Refusal  # noqa: E402

main = command("tasks")

ROWS = [(1, 2.5, "grün"), (2, -0.25, "rot"), (3, None, "blau, hell")]


@pytest.mark.parametrize("code", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize(("mark", "decimal"), [(",", "."), (";", ","), (";", "."), ("\t", ",")])
def test_csv_of_any_dialect_is_the_same_table(
    tmp_path: Path, code: str, mark: str, decimal: str
) -> None:
    frame = pd.DataFrame(ROWS * 10, columns=["id", "größe", "farbe"])
    path = tmp_path / "t.csv"
    path.write_bytes(frame.to_csv(index=False, sep=mark, decimal=decimal).encode(code))
    ((_, load),) = tables_in(path)
    pd.testing.assert_frame_equal(load(), frame)


def test_one_column_is_no_reason_to_fail(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("word\nalpha\nbeta\n")
    ((_, load),) = tables_in(tmp_path / "t.csv")
    assert load()["word"].tolist() == ["alpha", "beta"]


def test_every_table_of_a_sqlite_file_counts(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "shop.db") as db:
        db.execute('create table "a ""b""" (x, y)')
        db.execute("create table orders (x)")
        db.execute("insert into orders values (7)")
    (tmp_path / "sub").mkdir()
    pd.DataFrame({"z": [1]}).to_parquet(tmp_path / "sub" / "p.parquet")
    (tmp_path / "broken.sqlite").write_text("no database, but long enough to be looked into")
    (tmp_path / "notes.pdf").write_text("not a table")
    found = {s.title: s.load for s in sources([str(tmp_path)])}
    assert sorted(found) == ["broken", "notes.pdf", "p", 'shop a "b"', "shop orders"]
    assert found["shop orders"]()["x"].tolist() == [7] and len(found['shop a "b"']()) == 0
    with pytest.raises(Exception, match="no readable sqlite file"):
        found["broken"]()
    with pytest.raises(Exception, match="no table that is read"):
        found["notes.pdf"]()


def test_tables_that_give_nothing_are_named_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "empty.csv").write_text("")
    (tmp_path / "in" / "tiny.csv").write_text("a,b\n1,2\n")
    words = [
        "dare",
        "--tables",
        str(tmp_path / "in"),
        "--out",
        str(tmp_path / "T"),
        "--per-table",
        "3",
        "--heldout-share",
        "0.2",
        "--databases",
        "3",
        "--workers",
        "1",
    ]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "0 of 3 databases" in said
    assert "in_empty: refused, licence unknown: the file is empty" in said
    rows = [json.loads(x) for x in (tmp_path / "T" / "refused.jsonl").read_text().splitlines()]
    assert [row["name"] for row in rows] == ["in_empty", "in_tiny"]


def test_every_table_is_an_input_with_its_licence_and_reasons() -> None:
    found = [Built("dull", refused=[Refusal("small", "small")], licence="MIT")]
    found += [Built("good", [{}], refused=[Refusal("draft", "dull", "reg y")])]
    found += [Built("good", refused=[Refusal("old", "old")])]
    row = {"source": "good", "question_v1": "x", "question_v2": ""}
    dull, good = inputs_of(found, [row, row])
    assert (dull.tasks, dull.licence, dull.why) == (0, "MIT", ("small",)) and not dull.used
    assert (good.tasks, good.licence, good.why) == (2, "unknown", ("reg y: dull", "old"))


def test_the_list_of_packages_is_read() -> None:
    found = listed()
    assert len(found) > 100 and {one.kind for asked in found.values() for one in asked} == {
        "class",
        "reg",
        "series",
    }
