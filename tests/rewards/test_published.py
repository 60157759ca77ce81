"""Questions and descriptions of published evaluation databases are known again by their hashes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.task import Task, TaskError
from rewards import published
from rewards.published import published_database, refuse_published, text_hash

QUESTION = "Clean the table, use columns a and b, fit a tree with random_state 3, predict `y`."
LINES = [f"column {k} holds what nobody else measures, in units of {k * 9}" for k in "abc"]


@pytest.fixture(autouse=True)
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = {
        "name": "ann_flats_class",
        "questions": [text_hash(QUESTION)],
        "lines": [text_hash(line) for line in LINES],
    }
    (tmp_path / "known.json").write_text(json.dumps([row]))
    monkeypatch.setattr(published, "FILE", tmp_path / "known.json")
    monkeypatch.setattr(published, "_known", published._known.__wrapped__)  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("texts", [[QUESTION], ["a message", f"\n{QUESTION.upper()}  "]])
def test_a_question_of_an_evaluation_database_is_known(texts: list[str]) -> None:
    assert published_database(texts) == "ann_flats_class"


@pytest.mark.parametrize(
    "texts",
    [
        ["\n".join(LINES)],
        [json.dumps({"stdout": "head\n" + "\r\n".join(LINES[:2]), "stderr": ""})],
        [LINES[0], f"  {LINES[1].replace(' ', '   ')}\n"],
    ],
    ids=["description", "as JSON", "in two messages"],
)
def test_the_description_of_an_evaluation_database_is_known(texts: list[str]) -> None:
    assert published_database([], texts) == "ann_flats_class"


def test_one_line_and_a_changed_question_are_not_enough() -> None:
    assert published_database([QUESTION.replace("3", "4")], [LINES[0], LINES[0]]) == ""


def test_a_name_of_an_evaluation_database_is_enough() -> None:
    assert published_database([], [], ["ann_flats_class:MM"]) == "ann_flats_class"
    assert published_database([], [], ["ann_flats_class_2", "flats"]) == ""


def test_a_task_that_asks_such_a_question_is_refused() -> None:
    ask = [{"role": "user", "content": QUESTION}]
    with pytest.raises(TaskError, match="asks a question of ann_flats_class, a published"):
        refuse_published([Task("t", "table", "class-IF", "train", ask, {})], "t.jsonl")
    refuse_published([Task("t", "table", "class-IF", "train", [], {})], "t.jsonl")
