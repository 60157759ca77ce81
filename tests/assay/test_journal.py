"""Journals: what is cut off or damaged is left out and said; sums go when nothing is appended."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.journal import Appender, end_journal, key_of, read_journal, rewrite_journal
from assay.task import TaskError

ROWS = [{"task_id": f"t{i}", "sample": 0, "text": "abc" * i} for i in range(5)]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "r.jsonl"
    with Appender(path) as rows:
        rows.add(ROWS[:2])
        rows.add(ROWS[2:])
    return path


def test_rows_come_back(journal: Path) -> None:
    assert read_journal(journal) == ROWS


@pytest.mark.parametrize("cut", [1, 7])
def test_a_torn_last_line_is_cut_off_the_file(journal: Path, cut: int) -> None:
    journal.write_bytes(journal.read_bytes()[:-cut])
    assert read_journal(journal) == ROWS[:-1]
    assert journal.read_bytes().endswith(b"}\n")


@pytest.mark.parametrize("place", [0.1, 0.5, 0.9])
def test_a_changed_row_is_left_out_and_said(
    journal: Path, place: float, capsys: pytest.CaptureFixture[str]
) -> None:
    data = bytearray(journal.read_bytes())
    data[int(len(data) * place)] ^= 1  # most such rows are still JSON
    journal.write_bytes(data)
    found = read_journal(journal)
    assert 3 <= len(found) < 5 and all(row in ROWS for row in found)
    assert f"{journal}: " in capsys.readouterr().err
    assert read_journal(journal) == found
    assert capsys.readouterr().err == ""


def test_a_rewritten_journal_goes_on(journal: Path) -> None:
    rewrite_journal(journal, ROWS[1:3])
    with Appender(journal) as rows:
        rows.add(ROWS[:1])
    assert read_journal(journal) == [*ROWS[1:3], ROWS[0]]


def test_a_finished_journal_leaves_no_sums_and_goes_on(journal: Path) -> None:
    end_journal(journal)
    assert [path.name for path in journal.parent.iterdir()] == ["r.jsonl"]
    with Appender(journal) as rows:
        rows.add([{"more": 1}])
    assert read_journal(journal) == [*ROWS, {"more": 1}]


def test_a_row_of_something_else_is_said(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"r\.jsonl: holds a row without task_id"):
        key_of({"tark_id": "t1", "sample": 0}, tmp_path / "r.jsonl")
