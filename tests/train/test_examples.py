"""What SFT learns from: any row that says what the model should write."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

from places import tables
from qwen3 import write_qwen3

from assay.family import use_families
from assay.task import Task, TaskError, write_jsonl
from rollouts.prompts import ChatTokenizer
from train.examples import Example, example_of, examples_of, fitting, lengths_line, training_rows

OWN = """
from assay.family import Answer, Family, Score

def gold(task):
    return {"text": task.gold.get("text"), "none": None,
            "file": Answer(files={"a.csv": b"1"})}[task.track]

FAMILY = Family(name="sft_own", score=lambda t, a: Score(1.0, 1.0), gold=gold)
"""


@pytest.fixture(scope="module")
def tokenizer(tiny_folder: Path) -> ChatTokenizer:
    return ChatTokenizer(tiny_folder)


@pytest.fixture(scope="module")
def qwen3(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    return ChatTokenizer(write_qwen3(tmp_path_factory.mktemp("qwen3")))


def chat(*turns: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"role": role, "content": text} for role, text in turns]


def learned(example: Example) -> list[int]:
    """The ids that carry loss."""
    assert example.mask is not None
    return [i for i, m in zip(example.answer, example.mask, strict=True) if m]


def test_gold_text_of_any_family(tokenizer: ChatTokenizer, tmp_path: Path) -> None:
    (tmp_path / "sft_own.py").write_text(OWN)
    use_families([str(tmp_path / "sft_own.py")])
    own = Task("t", "sft_own", "text", "train", chat(("user", "q")), {"text": "the answer"})
    example = example_of(own.to_json(), "row 1", tokenizer)
    assert example == Example(tokenizer.prompt(own.prompt), tokenizer.answer("the answer"))
    for track, said in (("none", "gold that must be run"), ("file", r"gold is files \(a.csv\)")):
        with pytest.raises(TaskError, match=rf"row 7: task t .*{said}.*assay select"):
            example_of(replace(own, track=track).to_json(), "row 7", tokenizer)


def test_loss_is_on_assistant_turns_that_are_to_be_learned_alone(tokenizer: ChatTokenizer) -> None:
    turns = chat(("system", "s"), ("user", "u"), ("assistant", "one"), ("user", "v"))
    turns += chat(("assistant", "WRONG"), ("user", "w"), ("assistant", "two"), ("user", "x"))
    turns[4] |= {"weight": 0}
    left_out = {"role": "assistant", "content": "left out", "train": False}
    example = example_of({"messages": [*turns, left_out]}, "row", tokenizer)
    assert example.prompt == tokenizer.prompt(turns[:2])
    assert learned(example) == tokenizer.answer("one") + tokenizer.answer("two")
    whole = tokenizer.raw(example.prompt + example.answer)
    # as the template lays out the same conversation, up to the last answer
    assert whole == tokenizer.raw(tokenizer.prompt(turns[:6])) + "two<|im_end|>"


def test_a_row_that_teaches_nothing_is_named(tokenizer: ChatTokenizer, tmp_path: Path) -> None:
    for said, rows in tables("training")["rows that teach nothing"].items():
        for row in rows:
            with pytest.raises(TaskError, match=f"data row 3.*{said}"):
                example_of(row, "data row 3", tokenizer)
    row = {"messages": chat(("user", "a"), ("assistant", "b")), "published": True}
    write_jsonl(tmp_path / "d.jsonl", [row])
    with pytest.raises(TaskError, match="published"):
        training_rows(str(tmp_path / "d.jsonl"))


def test_jsonl_and_parquet_give_the_same_examples(tokenizer: ChatTokenizer, tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    row = {"messages": chat(("user", "a"), ("assistant", "b")), "tokenizer": tokenizer.fingerprint}
    rows = [row | {"ids": [], "loss_mask": []}, row | {"ids": [5, 6], "loss_mask": [0, 1]}]
    write_jsonl(tmp_path / "d.jsonl", rows)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "d.parquet")
    one, two = (
        examples_of(training_rows(str(tmp_path / f"d.{end}")), tokenizer)
        for end in ("jsonl", "parquet")
    )
    assert one == two and one[1] == Example([5], [6], [1])  # a rollout's own tokens, if it has them


def test_what_would_fit_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    examples = [Example([1] * n, [2]) for n in (9, 19, 29)]
    with pytest.raises(TaskError, match=r"10 to 30 tokens: set sft\.max_length=30 .* or 20 for"):
        fitting(examples, 5)
    assert len(fitting(examples, 20)) == 2
    assert "1 of 3 examples longer than sft.max_length=20" in capsys.readouterr().out
    assert "min 10 · 50% 20 · 90% 30" in lengths_line(examples, 20)


ARGUMENTS = {"what": "the sky", "n": [1, 2], "é": None}
TOOLS = [{"type": "function", "function": {"name": "look", "description": "d", "parameters": {}}}]


def called(arguments: Any, content: str | None = None) -> list[dict[str, Any]]:
    """A chat with two calls in one turn."""
    function = {"name": "look", "arguments": arguments}
    calls = [{"id": f"c{i}", "type": "function", "function": function} for i in range(2)]
    told = {"role": "tool", "name": "look"}
    answers = [told | {"tool_call_id": f"c{i}", "content": f"blue {i}"} for i in range(2)]
    said = {"role": "assistant", "content": content, "tool_calls": calls}
    ask, last = chat(("system", "s"), ("user", "u")), chat(("assistant", "It is blue."))
    return [*ask, said, *answers, *last]


@pytest.mark.parametrize("content", [None, "I look."])
@pytest.mark.parametrize("arguments", [ARGUMENTS, json.dumps(ARGUMENTS)])
def test_calls_are_learned_as_the_student_s_template_spells_them(
    qwen3: ChatTokenizer, content: str | None, arguments: Any
) -> None:
    example = example_of({"messages": called(arguments, content), "tools": TOOLS}, "row", qwen3)
    # the template itself: a question follows, so that it treats both answers alike
    library: Any = qwen3._tokenizer  # pyright: ignore[reportPrivateUsage]
    told = [*called(ARGUMENTS, content or ""), {"role": "user", "content": "?"}]
    whole = library.apply_chat_template(told, tools=TOOLS, tokenize=True, return_dict=False)
    ids = example.prompt + example.answer
    assert list(whole[: len(ids)]) == ids
    said = qwen3.raw(learned(example))
    assert said.count("<tool_call>") == 2 and said.endswith("It is blue.<|im_end|>")
    read = qwen3.calls.read(said.partition("<|im_end|>")[0])
    assert [(c.name, c.arguments) for c in read] == [("look", ARGUMENTS)] * 2


def test_thoughts_and_arguments_stand_where_the_template_puts_them(
    qwen3: ChatTokenizer, tokenizer: ChatTokenizer
) -> None:
    row: dict[str, Any] = {"messages": chat(("user", "u"), ("assistant", "a"))}
    closed = {"chat_template_kwargs": {"enable_thinking": False}}
    plain = qwen3.raw(example_of(row, "row", qwen3).prompt)
    for more in (closed, {"enable_thinking": False}):
        shut = qwen3.raw(example_of(row | more, "row", qwen3).prompt)
        assert shut == plain + "<think>\n\n</think>\n\n"
    with pytest.raises(TaskError, match=r"row 9: .*nothing_of_it is no name in the chat template"):
        example_of(row | {"chat_template_kwargs": {"nothing_of_it": 1}}, "row 9", qwen3)
    row["messages"][1]["reasoning_content"] = "hm"
    example = example_of(row, "row 2", qwen3)
    assert qwen3.raw(example.answer) == "<think>\nhm\n</think>\n\na<|im_end|>"
    assert example.mask == [1] * len(example.answer)
    for given, student in ((row, tokenizer), (row | closed, qwen3)):
        with pytest.raises(TaskError, match="row 2: the chat template"):
            example_of(given, "row 2", student)


def test_ids_of_another_tokenizer_give_way_to_the_messages(
    tokenizer: ChatTokenizer, qwen3: ChatTokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    turns = chat(("user", "u"), ("assistant", "answer"))
    wanted = example_of({"messages": turns}, "row", tokenizer)

    def row(made_by: ChatTokenizer, **more: Any) -> dict[str, Any]:
        prompt, answer = made_by.prompt(turns[:1]), made_by.answer("answer")
        mask = [0] * len(prompt) + [1] * len(answer)
        return {"messages": turns, "ids": prompt + answer, "loss_mask": mask, **more}

    rows = [row(t, tokenizer=t.fingerprint) for t in (tokenizer, qwen3)]
    rows += [row(tokenizer), row(qwen3)]  # written before the name of the tokenizer was
    found = examples_of([(f"row {i}", r) for i, r in enumerate(rows)], tokenizer)
    assert [e.prompt + e.answer for e in found] == [wanted.prompt + wanted.answer] * 4
    assert capsys.readouterr().err.count("2 of 4 rows have token ids of another tokenizer") == 1
    talk = [{"from": "human", "value": "u"}, {"from": "gpt", "value": "answer"}]
    shared = example_of({"conversations": talk}, "row", tokenizer)  # as ShareGPT has it
    assert shared == wanted and shared.marks == wanted.marks and wanted.marks
    strange = rows[0] | {"messages": chat(("user", "other words"))}
    assert example_of(strange, "row", tokenizer).prompt == rows[0]["ids"][: len(wanted.prompt)]
