"""Chats in the forms that people have: obeyed as their makers mean them, or refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import tables

from assay.task import TaskError
from rollouts.chats import (
    LEARNED,
    THOUGHTS,
    Turn,
    chat_of,
    read_calls,
    same_words,
    tools_of,
    without_nulls,
)
from rollouts.tool_calls import FORMATS, ToolCall, ToolSpec

CASES = tables("rollouts")

ARGUMENTS = {"a": 1, "b": ["x", None]}


def user(content: Any = "u", **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **more}


def says(content: Any = "a", **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def call(arguments: Any, name: str = "f") -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}


def shared(*turns: tuple[str, Any]) -> dict[str, Any]:
    return {"conversations": [{"from": who, "value": value} for who, value in turns]}


def last(*messages: dict[str, Any], **row: Any) -> Turn:
    return chat_of({"messages": list(messages), **row}, "row 1").turns[-1]


CALLED = {"name": "f", "arguments": ARGUMENTS}


@pytest.mark.parametrize(
    "message",
    [
        says(None, tool_calls=[call(json.dumps(ARGUMENTS))]),
        says("", tool_calls=[call(ARGUMENTS)]),
        says([], tool_calls=[CALLED]),
        says(None, function_call={"name": "f", "arguments": json.dumps(ARGUMENTS)}),
        {"from": "function_call", "value": json.dumps(CALLED)},
        {"from": "function_call", "value": json.dumps([CALLED])},
    ],
)
def test_a_call_is_read_however_it_is_stored(message: dict[str, Any]) -> None:
    turn = last(user(), message)
    assert [(c.name, c.arguments) for c in turn.calls] == [("f", ARGUMENTS)]
    assert turn.role == "assistant" and turn.content == "" and turn.learned and turn.says


def test_share_gpt_says_who_spoke() -> None:
    row = shared(("system", "s"), ("human", "u"), ("gpt", "a"), ("observation", "o"), ("tool", "t"))
    found = chat_of(row, "row").turns
    assert [t.role for t in found] == ["system", "user", "assistant", "tool", "tool"]
    wrapped = "<tool_response>\n{}\n</tool_response>\n<tool_response>\n2\n</tool_response>"
    answers = chat_of(shared(("human", "u"), ("tool", wrapped)), "row").turns[1:]
    assert [t.content for t in answers] == ["{}", "2"]
    partly = chat_of(shared(("human", "u"), ("tool", f"see {wrapped}")), "row").turns[-1]
    assert partly.content.startswith("see <tool_response>")
    spoken = chat_of({**shared(("human", "u"), ("gpt", "a")), "system": "be brief"}, "row").turns
    assert spoken[0] == Turn("system", "be brief")


@pytest.mark.parametrize("name", LEARNED)
def test_what_is_not_to_be_learned_says_so(name: str) -> None:
    for value in (0, False, 0.0):
        assert not last(user(), says(**{name: value})).learned
    for value in (1, True, 1.0, None):
        assert last(user(), says(**{name: value})).learned
    assert not last(says(), user(**{name: 0})).learned
    for bad in (0.5, [1, 0], "yes", float("nan")):
        with pytest.raises(TaskError, match=f"row 1: `{name}`"):
            last(user(), says(**{name: bad}))
    with pytest.raises(TaskError, match=f"`{name}` of a user message"):
        last(says(), user(**{name: 1}))


@pytest.mark.parametrize("name", THOUGHTS)
def test_thoughts_are_read(name: str) -> None:
    assert last(user(), says(**{name: "hm"})).thought == "hm"
    assert last(user(), says(**{name: None})).thought == ""
    with pytest.raises(TaskError, match=f"`{name}` of an assistant message is no text"):
        last(user(), says(**{name: ["hm"]}))


@pytest.mark.parametrize(("row", "said"), CASES["chat rows that are refused"])
def test_what_cannot_be_obeyed_is_refused_by_name(row: dict[str, Any], said: str) -> None:
    with pytest.raises(TaskError, match=r"^row 7: ") as error:
        chat_of(row, "row 7")
    assert said in str(error.value)


def test_what_is_about_the_row_is_left_alone() -> None:
    told = {"id": "m1", "timestamp": 3, "finish_reason": "stop", "constraints": ["x"]}
    row = {"messages": [user(**told), says(**told, refusal=None, prefix=False)]}
    row |= {"id": 7, "source": "web", "weight": 1, "images": [], "label": "good", "category": "c"}
    assert chat_of(row, "row").turns == chat_of({"messages": [user(), says()]}, "row").turns


def test_tools_are_what_was_written() -> None:
    one = {"type": "object", "properties": {"topic": {"type": "string", "default": None}}}
    schema = {"type": "function", "function": {"name": "f", "parameters": one}}
    spec = tools_of([schema], "row")[0]
    assert spec.parameters == one and tools_of(json.dumps([schema]), "row") == [spec]
    assert tools_of([schema["function"]], "row") == [spec]
    united = json.loads(json.dumps(schema))  # as Arrow makes it beside a tool with an id
    united["function"]["parameters"]["properties"]["id"] = None
    assert tools_of([united], "row") == [spec]


WORDS = st.text(max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(WORDS, JSON, max_size=4), st.sampled_from([None, "", "text"]))
def test_ids_and_spelling_of_arguments_make_no_other_words(
    arguments: dict[str, Any], content: str | None
) -> None:
    one = [user(), says(content, tool_calls=[call(arguments)])]
    text = json.dumps(arguments, indent=2, ensure_ascii=False)
    other = [user(), says(content, tool_calls=[call(text) | {"id": "other"}])]
    assert same_words(one) == same_words(other)
    assert same_words(one) != same_words([user(), says(content)])
    assert same_words(one) != same_words([user(), says(content, tool_calls=[call(arguments, "g")])])
    assert last(*other).calls == (ToolCall("f", arguments),)


@given(JSON)
def test_no_null_is_left_in_objects(value: Any) -> None:
    def nulls(inner: Any) -> bool:
        if isinstance(inner, dict):
            return any(v is None or nulls(v) for v in inner.values())
        return isinstance(inner, list) and any(map(nulls, inner))

    assert not nulls(without_nulls(value))
    if not nulls(value):
        assert without_nulls(value) == value


SPEC = ToolSpec("f", "", {"type": "object", "properties": {"n": {"type": "integer"}, "t": {}}})
SPEC.parameters["properties"]["t"] = {"type": "string"}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("said", ["", "I look.", "<think>\n<tool_call>x\n</think>\n\nNow."])
def test_calls_in_a_text_are_read_in_any_format(form: str, said: str) -> None:
    arguments = {"n": 3, "t": "7"}
    spelled = FORMATS[form].write("f", arguments)
    text = "\n".join([said, spelled, spelled] if said else [spelled, spelled])
    turn = read_calls(Turn("assistant", text, learned=True), [SPEC])
    assert turn == Turn("assistant", said, (ToolCall("f", arguments),) * 2, learned=True)
    for other in (
        Turn("user", text),
        Turn("assistant", f"{text} and so on"),
        Turn("assistant", "<tool_call>{</tool_call>"),
        Turn("assistant", "no call"),
    ):
        assert read_calls(other, [SPEC]) is other
