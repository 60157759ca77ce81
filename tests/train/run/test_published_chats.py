"""Trajectories in the OpenAI form are trained on; those about an evaluation database are refused,
by what is said in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from places import SHARED

from assay.task import TaskError, write_jsonl
from train.run.data import training_rows

DARE = SHARED / "dare/tasks"
at_hand = pytest.mark.skipif(not DARE.is_dir(), reason="published questions are not at hand")
CODE = {"code": "print(1)", "files_to_load": ["metadata.txt"], "files_to_save": []}


def trajectory(question: str, answer: str, **more: Any) -> dict[str, Any]:
    called = {"id": "call_1", "type": "function"}
    function = {"name": "python_executor", "arguments": json.dumps(CODE)}
    messages = [
        {"role": "user", "content": question},
        {"role": "assistant", "content": None, "tool_calls": [{**called, "function": function}]},
        {"role": "tool", "tool_call_id": "call_1", "name": "python_executor", "content": answer},
        {"role": "assistant", "content": "Done."},
    ]
    return {"messages": messages, **more}


def rows_of(tmp_path: Path, *rows: dict[str, Any]) -> int:
    write_jsonl(tmp_path / "traj.jsonl", rows)
    return len(training_rows(str(tmp_path / "traj.jsonl")))


def test_a_trajectory_of_another_table_is_taken(tmp_path: Path) -> None:
    said = json.dumps({"stdout": "a\tb\n1\t2\n", "stderr": ""})
    assert rows_of(tmp_path, trajectory("Predict `y`.", said, file_path="own_table_class")) == 1


@at_hand
def test_the_description_of_an_evaluation_database_is_known_in_a_tool_s_answer(
    tmp_path: Path,
) -> None:
    """Questions of modelling and forecasts name a target and files alone; what tells is the
    description, which the published models read first."""
    listed = json.loads((DARE / "question_list.json").read_text("utf-8"))
    refused = 0
    for row in listed:
        about = DARE / "databases" / row["file_path"] / "source" / "metadata.txt"
        said = json.dumps({"stdout": about.read_text("utf-8"), "stderr": ""})
        try:
            rows_of(tmp_path, trajectory(row["question_v2"], said))
        except TaskError as error:
            assert "published evaluation database" in str(error)
            refused += 1
    assert refused >= 0.9 * len(listed)


@at_hand
def test_an_evaluation_database_that_a_row_names_is_refused(tmp_path: Path) -> None:
    name = json.loads((DARE / "question_list.json").read_text("utf-8"))[0]["file_path"]
    with pytest.raises(TaskError, match=name):
        rows_of(tmp_path, trajectory("Predict `y`.", "ok", file_path=name))
