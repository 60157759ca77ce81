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
def one_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = {
        "name": "ann_flats_class",
        "questions": [text_hash(QUESTION)],
        "lines": [text_hash(line) for line in LINES],
    }
    (tmp_path / "known.json").write_text(json.dumps([row]))
    monkeypatch.setattr(published, "FILE", tmp_path / "known.json")
    monkeypatch.setattr(published, "_known", published._known.__wrapped__)  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    ("texts", "about", "names", "known"),
    [
        ([QUESTION], [], [], True),
        (["a message", f"\n{QUESTION.upper()}  "], [], [], True),
        ([], [json.dumps({"stdout": "\r\n".join(LINES[:2])})], [], True),
        ([], [LINES[0], f"  {LINES[1].replace(' ', '   ')}\n"], [], True),  # in two messages
        ([QUESTION.replace("3", "4")], [LINES[0], LINES[0]], [], False),
        ([], [], ["ann_flats_class:MM"], True),
        ([], [], ["ann_flats_class_2", "flats"], False),
    ],
)
def test_an_evaluation_database_is_known(
    texts: list[str], about: list[str], names: list[str], known: bool
) -> None:
    assert published_database(texts, about, names) == ("ann_flats_class" if known else "")


def test_a_task_that_asks_such_a_question_is_refused() -> None:
    ask = [{"role": "user", "content": QUESTION}]
    with pytest.raises(TaskError, match="asks a question of ann_flats_class, a published"):
        refuse_published([Task("t", "table", "class-IF", "train", ask, {})], "t.jsonl")
    refuse_published([Task("t", "table", "class-IF", "train", [], {})], "t.jsonl")
