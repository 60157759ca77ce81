"""What SFT learns from: any row that says what the model should write."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

from rewards.families import use_families
from rewards.task import Task, TaskError, write_jsonl
from rollouts.prompts import ChatTokenizer
from train.examples import Example, example_of, fitting, lengths_line, read_examples

OWN = """
from rewards.family import Answer, Family, Score

def gold(task):
    return {"text": task.gold.get("text"), "none": None,
            "file": Answer(files={"a.csv": b"1"})}[task.track]

FAMILY = Family(name="sft_own", score=lambda t, a: Score(1.0, 1.0), gold=gold)
"""


@pytest.fixture(scope="module")
def tokenizer(tiny_folder: Path) -> ChatTokenizer:
    return ChatTokenizer(tiny_folder)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Task:
    file = tmp_path_factory.mktemp("own") / "sft_own.py"
    file.write_text(OWN)
    use_families([str(file)])
    ask = [{"role": "user", "content": "q"}]
    return Task("t", "sft_own", "text", "train", ask, {"text": "the answer"})


def test_gold_text_of_any_family(own: Task, tokenizer: ChatTokenizer) -> None:
    example = example_of(own.to_json(), "row 1", tokenizer)
    assert example == Example(tokenizer.prompt(own.prompt), tokenizer.answer("the answer"))


@pytest.mark.parametrize(
    ("track", "said"), [("none", "gold that must be run"), ("file", r"gold is files \(a.csv\)")]
)
def test_gold_that_is_no_text_is_one_sentence(
    own: Task, tokenizer: ChatTokenizer, track: str, said: str
) -> None:
    with pytest.raises(TaskError, match=rf"row 7: task t .*{said}.*assay select"):
        example_of(replace(own, track=track).to_json(), "row 7", tokenizer)


def chat(*turns: tuple[str, str]) -> list[dict[str, str]]:
    return [{"role": role, "content": text} for role, text in turns]


def test_loss_is_on_assistant_turns_alone(tokenizer: ChatTokenizer) -> None:
    turns = chat(("system", "s"), ("user", "u"), ("assistant", "one"), ("user", "v"))
    turns += chat(("assistant", "two"), ("user", "left out"))
    example = example_of({"messages": turns}, "row", tokenizer)
    assert example.prompt == tokenizer.prompt(turns[:2])
    assert example.mask is not None
    learned = [i for i, m in zip(example.answer, example.mask, strict=True) if m]
    assert learned == tokenizer.answer("one") + tokenizer.answer("two")
    whole = tokenizer.raw(example.prompt + example.answer)
    # as the template lays out the same conversation, up to the last answer
    assert whole == tokenizer.raw(tokenizer.prompt(turns[:4])) + "two<|im_end|>"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"messages": [{"role": "user", "content": "u"}]}, "needs an assistant turn"),
        ({"messages": [{"role": "assistant", "content": "a"}]}, "needs an assistant turn"),
        ({"messages": ["hi"]}, "list of {role, content}"),
        ({"messages": "hi"}, "wanted a list"),
        ({"messages": [{"role": "user", "content": None}]}, "is no text"),
        ({"messages": [{"role": "user", "tool_calls": [1]}]}, "tool_calls"),
        ({"ids": [1, 2], "loss_mask": [0, 0]}, "no tokens to learn"),
        ({"ids": [1, 2], "loss_mask": [1]}, "2 ids and 1 entries"),
        ({"text": "plain"}, "nothing to learn from"),
    ],
)
def test_a_row_that_teaches_nothing_is_named(
    row: dict[str, Any], said: str, tokenizer: ChatTokenizer
) -> None:
    with pytest.raises(TaskError, match=f"data row 3.*{said}"):
        example_of(row, "data row 3", tokenizer)


def test_jsonl_and_parquet_give_the_same_examples(
    own: Task, tokenizer: ChatTokenizer, tmp_path: Path
) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    rows = [
        {"messages": chat(("user", "a"), ("assistant", "b")), "ids": [], "loss_mask": []},
        {"messages": chat(("user", "a"), ("assistant", "b")), "ids": [5, 6], "loss_mask": [0, 1]},
    ]
    write_jsonl(tmp_path / "d.jsonl", rows)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "d.parquet")
    found = read_examples(str(tmp_path / "d.jsonl"), tokenizer)
    assert found == read_examples(str(tmp_path / "d.parquet"), tokenizer)
    assert found[1] == Example([5], [6], [1])  # a rollout's own tokens, where it has them


def test_published_rows_are_refused(tokenizer: ChatTokenizer, tmp_path: Path) -> None:
    row = {"messages": chat(("user", "a"), ("assistant", "b")), "published": True}
    (tmp_path / "d.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(TaskError, match="published"):
        read_examples(str(tmp_path / "d.jsonl"), tokenizer)


def test_what_would_fit_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    examples = [Example([1] * n, [2]) for n in (9, 19, 29)]
    with pytest.raises(TaskError, match=r"10 to 30 tokens: set sft\.max_length=30 .* or 20 for"):
        fitting(examples, 5)
    assert len(fitting(examples, 20)) == 2
    assert "1 of 3 examples longer than sft.max_length=20" in capsys.readouterr().out
    line = lengths_line(examples, 20)
    assert "min 10 · 50% 20 · 90% 30" in line and "1 longer than sft.max_length=20" in line
