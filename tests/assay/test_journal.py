"""Journals: what is cut off or damaged is left out and said; a journal of answers is gone on with
only for the same tasks and settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.journal import Journal, append_rows, read_journal
from assay.task import Task, TaskError

ROWS = [{"task_id": f"t{i}", "sample": 0, "text": "abc" * i} for i in range(5)]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "r.jsonl"
    append_rows(path, ROWS[:2])
    append_rows(path, ROWS[2:])
    return path


def test_a_row_that_is_no_json_is_left_out_and_said(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:2], lines[2][:9] + b"\n", *lines[3:]]))
    found = read_journal(journal)
    assert found == [*ROWS[:2], *ROWS[3:]]
    assert f"{journal}: 1 damaged rows are done again" in capsys.readouterr().err
    assert read_journal(journal) == found
    assert capsys.readouterr().err == ""


def task(number: int) -> Task:
    chat = [{"role": "user", "content": "Say e."}]
    return Task(f"t{number}", "refinement", "x", "heldout", chat, gold={})


def answers_of(folder: Path, tasks: list[Task], settings: dict[str, Any], **more: Any) -> Journal:
    return Journal(folder / "rows.jsonl", folder / "record.json", tasks, settings, **more)


def test_more_tasks_go_on_and_other_tasks_or_settings_do_not(tmp_path: Path) -> None:
    with answers_of(tmp_path, [task(0)], {}) as kept:
        kept.write({"task_id": "t0", "sample": 0, "outcome": 1.0})
    with pytest.raises(TaskError, match=r"another seed"):
        answers_of(tmp_path, [task(0)], {"seed": 3})
    assert set(answers_of(tmp_path, [task(0), task(1)], {}).done) == {("t0", 0)}
    changed = replace(task(0), prompt=[{"role": "user", "content": "Say i."}])
    with pytest.raises(TaskError, match="t0 had another prompt, gold or file"):
        answers_of(tmp_path, [changed], {})
    with pytest.raises(TaskError, match=r"other tasks \(1 there, 1 here; t0 is not asked now"):
        answers_of(tmp_path, [task(1)], {})
    assert answers_of(tmp_path, [task(1)], {}, others=True).done == {}


def test_the_content_of_a_tasks_file_is_part_of_what_is_asked(tmp_path: Path) -> None:
    for name, text in (("a", "1"), ("b", "1"), ("c", "2")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "t.csv").write_text(text)

    def asked(name: str) -> Task:
        return replace(task(0), files={"t.csv": str(tmp_path / name / "t.csv")})

    with answers_of(tmp_path, [asked("a")], {}) as kept:
        kept.write({"task_id": "t0", "sample": 0, "outcome": 1.0})
    assert answers_of(tmp_path, [asked("b")], {}).done  # the same file at another place
    with pytest.raises(TaskError, match="another prompt, gold or file"):
        answers_of(tmp_path, [asked("c")], {})


def test_rows_without_an_outcome_leave_the_file_and_are_paid_for(tmp_path: Path) -> None:
    tasks = [task(0), task(1)]
    with answers_of(tmp_path, tasks, {}) as kept:
        kept.write({"task_id": "t1", "sample": 0, "outcome": 1.0})
        kept.write({"task_id": "t0", "sample": 0, "outcome": None})
        kept.lose(10, 5)
        kept.finish()
    names = [row["task_id"] for row in read_journal(tmp_path / "rows.jsonl")]
    assert names == ["t0", "t1"]  # as the tasks are
    again = answers_of(tmp_path, tasks, {})
    assert set(again.done) == {("t1", 0)} and again.lost == (10, 5)
    assert [row["task_id"] for row in read_journal(tmp_path / "rows.jsonl")] == ["t1"]


@pytest.mark.parametrize("record", [None, '{"settings": {}, "tasks": "abc"}', "{"])
def test_a_file_of_another_command_or_version_is_refused(
    record: str | None, tmp_path: Path
) -> None:
    (tmp_path / "rows.jsonl").write_text('{"task_id": "t0", "sample": 0, "outcome": 1.0}\n')
    if record is not None:
        (tmp_path / "record.json").write_text(record)
    with pytest.raises(TaskError, match=r"not begun by this|another version|damaged"):
        answers_of(tmp_path, [task(0)], {})
