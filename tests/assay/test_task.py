"""Tasks as rows: what is refused, and what comes back as it was written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import tables

from assay.task import Task, TaskError, json_line, json_text, read_tasks

TABLES = tables("assay")

ROW = TABLES["task_row"]


@pytest.mark.parametrize(("change", "said"), TABLES["a_row_of_another_shape_is_refused"])
def test_a_row_of_another_shape_is_refused(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text(json.dumps(ROW) + "\n" + json.dumps(ROW | change) + "\n")
    with pytest.raises(TaskError) as error:
        read_tasks(path)
    assert str(error.value).startswith(f"{path} line 2: ") and said in str(error.value)


@given(st.text(), st.lists(st.text(), max_size=3))
def test_a_task_comes_back_as_it_was(text: str, words: list[str]) -> None:
    prompt = [{"role": "user", "content": text}]
    task = Task("t", "f", text, "train", prompt, {"x": words}, tuple(words), {"a": text})
    assert Task.from_json(json.loads(json_line(task.to_json()))) == task


@given(st.text(alphabet="ab\u0085\u2028\u2029\u000b\u000c\x1c\ud800é\n\r", max_size=20))
def test_one_row_is_one_line_for_every_reader(text: str) -> None:
    line = json_line({"text": text})
    assert json.loads(line) == {"text": text}
    decoded = line.decode("utf-8")
    assert decoded.splitlines() == [decoded.removesuffix("\n")]
    assert json.loads(json_text([text], indent=1)) == [text]
