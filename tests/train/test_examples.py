"""What SFT learns from: any row that says what the model should write."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

from qwen3 import write_qwen3

from assay.family import use_families
from assay.task import Task, TaskError, write_jsonl
from rollouts.prompts import ChatTokenizer
from rollouts.tool_calls import FORMATS
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


UNTAUGHT: list[tuple[dict[str, Any], str]] = [
    ({"messages": chat(("user", "u"))}, "needs an assistant turn"),
    ({"messages": chat(("assistant", "a"))}, "needs an assistant turn"),
    ({"messages": ["hi"]}, "list of {role, content}"),
    ({"messages": "hi"}, "wanted a list"),
    ({"messages": [{"role": "user", "content": None}]}, "is no text"),
    ({"messages": [{"role": "assistant", "tool_calls": [1]}]}, "tool call is no"),
    ({"messages": chat(("user", "u"), ("assistant", " "))}, "no word to learn"),
    ({"messages": [*chat(("user", "u")), {"role": "assistant", "content": "a", "weight": 0}]}, ""),
    ({"ids": [1, 2], "loss_mask": [0, 0]}, "no tokens to learn"),
    ({"ids": [1, 2], "loss_mask": [1]}, "2 ids and 1 entries"),
    ({"ids": [5, 2], "loss_mask": [0, 1]}, "no word to learn"),
    ({"ids": [5, 6], "loss_mask": [0, 1], "tokenizer": "0" * 16}, "no `messages` to read"),
    ({"ids": [5, 10**6], "loss_mask": [0, 1]}, "no `messages` to read"),
    ({"text": "plain"}, "nothing to learn from"),
]


def test_a_row_that_teaches_nothing_is_named(tokenizer: ChatTokenizer) -> None:
    for row, said in UNTAUGHT:
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
    rows = [row | {"tokenizer": tokenizer.fingerprint} for row in rows]
    write_jsonl(tmp_path / "d.jsonl", rows)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "d.parquet")
    found = examples_of(training_rows(str(tmp_path / "d.jsonl")), tokenizer)
    assert found == examples_of(training_rows(str(tmp_path / "d.parquet")), tokenizer)
    assert found[1] == Example([5], [6], [1])  # a rollout's own tokens, where it has them


def test_published_rows_are_refused(tokenizer: ChatTokenizer, tmp_path: Path) -> None:
    row = {"messages": chat(("user", "a"), ("assistant", "b")), "published": True}
    (tmp_path / "d.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(TaskError, match="published"):
        examples_of(training_rows(str(tmp_path / "d.jsonl")), tokenizer)


def test_what_would_fit_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    examples = [Example([1] * n, [2]) for n in (9, 19, 29)]
    with pytest.raises(TaskError, match=r"10 to 30 tokens: set sft\.max_length=30 .* or 20 for"):
        fitting(examples, 5)
    assert len(fitting(examples, 20)) == 2
    assert "1 of 3 examples longer than sft.max_length=20" in capsys.readouterr().out
    line = lengths_line(examples, 20)
    assert "min 10 · 50% 20 · 90% 30" in line and "1 longer than sft.max_length=20" in line


CALL = {"name": "look", "arguments": {"what": "the sky", "n": [1, 2], "é": None}}
TOOLS = [{"type": "function", "function": {"name": "look", "description": "d", "parameters": {}}}]


def called(arguments: Any, content: str | None = None) -> list[dict[str, Any]]:
    calls = [
        {"id": f"c{i}", "type": "function", "function": {**CALL, "arguments": arguments}}
        for i in range(2)
    ]
    answers = [
        {"role": "tool", "name": "look", "tool_call_id": f"c{i}", "content": f"blue {i}"}
        for i in range(2)
    ]
    ask = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    said = {"role": "assistant", "content": content, "tool_calls": calls}
    return [*ask, said, *answers, {"role": "assistant", "content": "It is blue."}]


@pytest.fixture(scope="module")
def qwen3(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    return ChatTokenizer(write_qwen3(tmp_path_factory.mktemp("qwen3")))


@pytest.mark.parametrize("content", [None, "", "I look."])
@pytest.mark.parametrize("text", [False, True])
def test_calls_are_learned_as_the_student_s_template_spells_them(
    qwen3: ChatTokenizer, content: str | None, text: bool
) -> None:
    arguments = json.dumps(CALL["arguments"]) if text else CALL["arguments"]
    row = {"messages": called(arguments, content), "tools": TOOLS}
    example = example_of(row, "row", qwen3)
    assert example.mask is not None
    told = called(CALL["arguments"], content or "")
    # the template itself: a question follows, so that it treats both answers alike
    library: Any = qwen3._tokenizer  # pyright: ignore[reportPrivateUsage]
    whole = library.apply_chat_template(
        [*told, {"role": "user", "content": "?"}], tools=TOOLS, tokenize=True, return_dict=False
    )
    ids = example.prompt + example.answer
    assert list(whole[: len(ids)]) == ids
    learned = [i for i, m in zip(example.answer, example.mask, strict=True) if m]
    first, second = told[2], told[-1]
    assert first["role"] == "assistant" and second["content"] == "It is blue."
    said = qwen3.raw(learned)
    assert said.count("<tool_call>") == 2 and said.endswith("It is blue.<|im_end|>")
    read = qwen3.calls.read(said.partition("<|im_end|>")[0])
    assert [(c.name, c.arguments) for c in read] == [("look", CALL["arguments"])] * 2


def test_calls_of_a_template_without_them_are_spelled_by_the_call_format(tiny_folder: Path) -> None:
    for name in FORMATS:
        tokenizer = ChatTokenizer(tiny_folder, name)
        example = example_of({"messages": called(CALL["arguments"], "I look.")}, "row", tokenizer)
        said = tokenizer.raw(example.answer).partition("<|im_end|>")[0]
        assert said.startswith("I look.\n<tool_call>")
        assert [c.name for c in tokenizer.calls.read(said)] == ["look", "look"]


def test_thoughts_stand_where_the_template_puts_them(
    qwen3: ChatTokenizer, tokenizer: ChatTokenizer
) -> None:
    row = {"messages": chat(("user", "u"))}
    row["messages"].append({"role": "assistant", "content": "a", "reasoning_content": "hm"})
    example = example_of(row, "row 2", qwen3)
    assert qwen3.raw(example.answer) == "<think>\nhm\n</think>\n\na<|im_end|>"
    assert example.mask == [1] * len(example.answer)
    with pytest.raises(TaskError, match=r"row 2: the chat template.* has no place for what"):
        example_of(row, "row 2", tokenizer)
    closed = {**row, "chat_template_kwargs": {"enable_thinking": False}}
    with pytest.raises(TaskError, match="row 2: the chat template, with its arguments here"):
        example_of(closed, "row 2", qwen3)


def test_a_row_s_arguments_of_the_template_are_obeyed(qwen3: ChatTokenizer) -> None:
    row: dict[str, Any] = {"messages": chat(("user", "u"), ("assistant", "a"))}
    plain = qwen3.raw(example_of(row, "row", qwen3).prompt)
    for more in ({"chat_template_kwargs": {"enable_thinking": False}}, {"enable_thinking": False}):
        shut = qwen3.raw(example_of(row | more, "row", qwen3).prompt)
        assert shut == plain + "<think>\n\n</think>\n\n"
    with pytest.raises(TaskError, match=r"row 9: .*nothing_of_it is no name in the chat template"):
        example_of(row | {"chat_template_kwargs": {"nothing_of_it": 1}}, "row 9", qwen3)


def test_turns_that_are_not_to_be_learned_are_read_and_carry_no_loss(
    tokenizer: ChatTokenizer,
) -> None:
    turns: list[dict[str, Any]] = chat(("user", "u"), ("assistant", "WRONG"), ("user", "v"))
    turns[1] |= {"weight": 0}
    turns += chat(("assistant", ""), ("user", "w"), ("assistant", "right"), ("user", "x"))
    turns += [{"role": "assistant", "content": "left out", "train": False}]
    example = example_of({"messages": turns}, "row", tokenizer)
    assert example.mask is not None
    learned = [i for i, m in zip(example.answer, example.mask, strict=True) if m]
    assert learned == tokenizer.answer("right")
    whole = tokenizer.raw(example.answer)
    assert whole.startswith("WRONG<|im_end|>") and whole.endswith("right<|im_end|>")


def test_ids_of_another_tokenizer_give_way_to_the_messages(
    tokenizer: ChatTokenizer, qwen3: ChatTokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    turns = chat(("user", "u"), ("assistant", "answer"))
    wanted = example_of({"messages": turns}, "row", tokenizer)

    def row(made_by: ChatTokenizer, **more: Any) -> dict[str, Any]:
        prompt, answer = made_by.prompt(turns[:1]), made_by.answer("answer")
        mask = [0] * len(prompt) + [1] * len(answer)
        return {"messages": turns, "ids": prompt + answer, "loss_mask": mask, **more}

    own, others = (row(t, tokenizer=t.fingerprint) for t in (tokenizer, qwen3))
    unnamed = [row(tokenizer), row(qwen3)]  # written before the name of the tokenizer was
    found = examples_of([(f"row {i}", r) for i, r in enumerate([own, others, *unnamed])], tokenizer)
    assert [e.prompt + e.answer for e in found] == [wanted.prompt + wanted.answer] * 4
    assert capsys.readouterr().err.count("2 of 4 rows have token ids of another tokenizer") == 1
    examples_of([("row", own)], tokenizer)
    assert not capsys.readouterr().err
    strange = own | {"tokenizer": tokenizer.fingerprint, "messages": chat(("user", "other words"))}
    assert example_of(strange, "row", tokenizer).prompt == own["ids"][: len(wanted.prompt)]


def test_share_gpt_rows_are_known_again_as_the_same_question(tokenizer: ChatTokenizer) -> None:
    talk = [{"from": "human", "value": "u"}, {"from": "gpt", "value": "a"}]
    shared = example_of({"conversations": talk}, "row", tokenizer)
    plain = example_of({"messages": chat(("user", "u"), ("assistant", "a"))}, "row", tokenizer)
    assert shared == plain and shared.marks == plain.marks and plain.marks
