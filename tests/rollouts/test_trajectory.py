"""What a rollout's row keeps."""

from __future__ import annotations

import json

import pytest

from assay.task import Score, Task
from rewards.score import rollout_answer
from rollouts.trajectory import KEPT_FILE, Trajectory, file_texts


@pytest.mark.parametrize("kept", [True, False])
def test_a_rollouts_short_files_are_scored_again(kept: bool) -> None:
    """A row says what files of text held; of a longer or a binary one it says the size."""
    gold = {"kind": "if", "targets": ["y"]}
    files = {"prediction.csv": b"y\n1\n" if kept else b"\xff\xfe"}
    run = Trajectory("t", 0, [], [], [], [], "eos", "done", 0, files=files)
    task = Task("t", "table", "class_if", "train", [], gold, tools=("python",))
    row = json.loads(json.dumps(run.to_json(Score(0.0, 0.0, {}, "x"), task)))
    assert row["files"] == {"prediction.csv": len(files["prediction.csv"])}
    answer = rollout_answer(row)
    assert (answer.failure is None) is kept
    assert answer.files == (files if kept else {})


def test_files_up_to_the_bound_are_kept_as_text() -> None:
    bound = KEPT_FILE - len("é".encode())
    files = {"a": b"x" * bound + "é".encode(), "b": b"x" * (KEPT_FILE + 1), "c": b""}
    assert file_texts(files) == {"a": "x" * bound + "é", "c": ""}
