"""Tasks as rows: what is refused, and what comes back as it was written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.rows import read_rows
from assay.task import Task, TaskError, json_line, json_text, read_tasks, write_jsonl

ROW: dict[str, Any] = {
    "id": "t",
    "family": "refinement",
    "track": "toy",
    "split": "train",
    "prompt": [{"role": "user", "content": "x"}],
    "gold": {"text": "a"},
}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"prompt": ["hi"]}, "field 'prompt'[0] is str, wanted a message"),
        ({"prompt": "hi"}, "field 'prompt' is str, wanted a list"),
        ({"prompt": [{"content": "x"}]}, "field 'prompt'[0]: its role is missing, wanted text"),
        ({"prompt": [{"role": "user"}]}, "its content is missing, wanted text"),
        ({"prompt": [{"role": "user", "content": 3}]}, "its content is int, wanted text"),
        ({"tools": "abc"}, "field 'tools' is str, wanted a list"),
        ({"tools": [1]}, "field 'tools'[0] is int, wanted text"),
        ({"files": ["a"]}, "field 'files' is list, wanted an object"),
        ({"files": {"a": None}}, "field 'files'['a'] is NoneType, wanted text"),
        ({"group": 3}, "field 'group' is int, wanted text"),
        ({"meta": []}, "field 'meta' is list, wanted an object"),
        ({"gold": "a"}, "field 'gold' is str, wanted an object"),
        ({"id": None}, "field 'id' is NoneType, wanted text"),
    ],
)
def test_a_row_of_another_shape_is_refused(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text(json.dumps(ROW) + "\n" + json.dumps(ROW | change) + "\n")
    with pytest.raises(TaskError) as error:
        read_tasks(path)
    assert str(error.value).startswith(f"{path} line 2: ") and said in str(error.value)


@pytest.mark.parametrize("name", ["id", "family", "track", "split", "prompt", "gold"])
def test_a_field_that_is_missing_is_named(name: str) -> None:
    row = {k: v for k, v in ROW.items() if k != name}
    with pytest.raises(TaskError, match=f"field '{name}' is missing"):
        Task.from_json(row)


def test_what_may_be_left_out_may_be_null() -> None:
    row = ROW | {"tools": None, "files": None, "group": None, "meta": None}
    assert Task.from_json(row) == Task.from_json(ROW)


@settings(deadline=None)
@given(st.text(), st.lists(st.text(), max_size=3))
def test_a_task_comes_back_as_it_was(text: str, words: list[str]) -> None:
    prompt = [{"role": "user", "content": text}]
    task = Task("t", "f", text, "train", prompt, {"x": words}, tuple(words), {"a": text})
    assert Task.from_json(json.loads(json_line(task.to_json()))) == task


@settings(deadline=None)
@given(st.text(alphabet="ab\u0085\u2028\u2029\u000b\u000c\x1c\ud800é\n\r", max_size=20))
def test_one_row_is_one_line_for_every_reader(text: str) -> None:
    line = json_line({"text": text})
    assert json.loads(line) == {"text": text}
    decoded = line.decode("utf-8")
    assert decoded.splitlines() == [decoded.removesuffix("\n")]
    assert json.loads(json_text([text], indent=1)) == [text]


def test_rows_with_odd_line_ends_are_read_back(tmp_path: Path) -> None:
    rows = [{"text": f"a{end}b"} for end in ("\u0085", "\u2028", "\u2029", "\r", "\ud800")]
    assert write_jsonl(tmp_path / "r.jsonl", rows) == 5
    assert [row for _, row in read_rows(tmp_path / "r.jsonl")] == rows
    assert len((tmp_path / "r.jsonl").read_text("utf-8").splitlines()) == 5
