"""Tool calls read out of what a model wrote, in both spellings; functions as tools."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, Optional

import pytest
import thought_forms
from hypothesis import given, settings
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
from rollouts.tool_calls import FORMATS, MAX_CALLS, ToolCall, ToolSpec, call_format, fitting
from rollouts.tools import Context, described, tool

CASES = tables("rollouts")

texts = st.text(max_size=60)


@pytest.mark.parametrize("name", FORMATS)
@given(frame=st.sampled_from(["{}", "<tool_call>{}</tool_call>", "<tool_call>{{{}"]), text=texts)
def test_reading_never_raises(name: str, frame: str, text: str) -> None:
    for call in call_format(name).read(frame.format(text)):
        assert call.error or call.name


@pytest.mark.parametrize(("text", "found"), CASES["texts and the calls in them"])
def test_a_call_is_read_or_says_what_is_wrong(text: str, found: list[int | str]) -> None:
    """Those that stand before the end of reasoning were only thought of."""
    for name, number in (("ONE", 1), ("TWO", 2)):
        text = text.replace(name, FORMATS["hermes"].write("t", {"n": number}))
    calls = FORMATS["hermes"].read(text)
    for call, wanted in zip(calls, found, strict=True):
        assert wanted in call.error if isinstance(wanted, str) else call.arguments["n"] == wanted


def test_arguments_nested_too_deeply_are_an_error() -> None:
    for depth, error in ((60, ""), (70, "nested more than 64 deep"), (5000, "JSON")):
        deep = "[" * depth + "]" * depth
        body = f'<tool_call>{{"name": "t", "arguments": {{"x": {deep}}}}}</tool_call>'
        (call,) = FORMATS["hermes"].read(body)
        assert error in call.error and bool(call.error) == bool(error)
        body = f"<function=t><parameter=x>{deep}</parameter></function>"
        (call,) = FORMATS["qwen_xml"].read(f"<tool_call>{body}</tool_call>")
        assert bool(call.error) == (depth == 70)  # 5000 cannot be read, and so stays text


@pytest.mark.parametrize("name", ["hermes", "qwen_xml"])
def test_calls_are_read_after_every_form_of_thought(name: str) -> None:
    call = FORMATS[name].write("t", {"code": "print('</think>')"})
    for form in thought_forms.FORMS.values():
        (found,) = FORMATS[name].read(thought_forms.filled(form, call))
        assert (found.name, found.arguments["code"]) == ("t", "print('</think>')"), form
    for form in thought_forms.UNENDED.values():
        assert FORMATS[name].read(form + call) == []


def test_marks_are_read_in_linear_time() -> None:
    for text in ("<tool_call></think>" * 50_000, "<tool_call>" * 50_000, "<think>" * 50_000):
        assert len(FORMATS["hermes"].read(text)) <= 1
    assert len(FORMATS["hermes"].read("<tool_call></tool_call>" * 50_000)) == MAX_CALLS + 1
    body = "<parameter=code>" * 200_000  # none is closed: one pattern took 20 s for 12,500
    calls = FORMATS["qwen_xml"].read(f"<tool_call><function=f>{body}</function></tool_call>")
    assert calls[0].arguments == {}


SPEC = ToolSpec("t", "d", CASES["schema of a tool"])


@pytest.mark.parametrize(("arguments", "why"), CASES["arguments and what is said of them"])
@pytest.mark.parametrize("name", ["hermes", "qwen_xml"])
def test_arguments_have_the_types_of_the_schema(name: str, arguments: Any, why: str) -> None:
    if why:
        assert why in fitting(SPEC, ToolCall("t", arguments))[1]
    else:
        (call,) = FORMATS[name].read(FORMATS[name].write("t", arguments))
        assert fitting(SPEC, call) == (arguments, "")


# --- @tool: a function as a tool -----------------------------------------------------------------


@tool
def everything(
    a: str,
    b: int,
    c: Annotated[float, "A number."],
    d: list[int],
    e: dict[str, float],
    f: Literal["x", "y"],
    ctx: Context,
    g: bool = False,
    h: Optional[int] = None,  # noqa: UP045
    i: list | None = None,
    j: int | str = "k",
    k: Any = None,
) -> str:
    """Do everything.

    And more.

    Args:
        a: First,
            over two lines.
        b (int): Second: with a colon.

    Returns:
        Nothing of use.
    """
    return f"{a} {b} {c} {d} {e} {f} {g} {h} {i} {j} {k}"


def test_the_schema_says_types_defaults_and_help() -> None:
    schema = everything.spec.parameters
    assert everything.spec.description == "Do everything.\n\nAnd more."
    assert schema["required"] == ["a", "b", "c", "d", "e", "f"]
    assert schema["additionalProperties"] is False
    assert schema["properties"] == CASES["properties of a function's schema"]
    assert everything.context == "ctx"


@pytest.mark.parametrize("text", CASES["docstrings"])
def test_three_habits_of_docstrings_are_read(text: str) -> None:
    assert described(text) == ("Do it.", {"x": "How many.", "y": "Why."})


@pytest.mark.parametrize(("source", "why"), CASES["functions that are no tools"])
def test_functions_that_cannot_be_tools_are_named(source: str, why: str) -> None:
    names: dict[str, Any] = {}
    exec(source, names)
    with pytest.raises(TaskError, match=why) as caught:
        tool(names["f"])
    assert "\n" not in str(caught.value)


BASE = {"a": "s", "b": 1, "c": 2.0, "d": [1], "e": {"p": 1.5}, "f": "x"}


def fitted(arguments: dict[str, Any]) -> tuple[dict[str, Any], str]:
    return fitting(everything.spec, ToolCall("everything", arguments), everything.kinds)


@pytest.mark.parametrize(("name", "given", "wanted"), CASES["values that a tool converts"])
def test_values_are_converted(name: str, given: Any, wanted: Any) -> None:
    made, problem = fitted(BASE | {name: given})
    assert (problem, made[name]) == ("", wanted) and type(made[name]) is type(wanted)


@pytest.mark.parametrize(("name", "given", "why"), CASES["values that a tool refuses"])
def test_what_does_not_fit_is_said(name: str, given: Any, why: str) -> None:
    made, problem = fitted(BASE | {name: given})
    assert made == BASE | {name: given} and why in problem


nested = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([*BASE, "g", "h", "i", "j", "k", "other"]), nested))
@settings(deadline=None)
def test_no_arguments_raise(arguments: dict[str, Any]) -> None:
    made, problem = fitted(arguments)
    assert problem or set(BASE) <= set(made)


# --- Chats in the forms that people have: obeyed as their makers mean them, or refused by name


ARGUMENTS = {"a": 1, "b": ["x", None]}


def user(content: Any = "u", **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **more}


def says(content: Any = "a", **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def stored(arguments: Any, name: str = "f") -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}


def shared(*turns: tuple[str, Any]) -> dict[str, Any]:
    return {"conversations": [{"from": who, "value": value} for who, value in turns]}


def last(*messages: dict[str, Any], **row: Any) -> Turn:
    return chat_of({"messages": list(messages), **row}, "row 1").turns[-1]


CALLED = {"name": "f", "arguments": ARGUMENTS}


@pytest.mark.parametrize(
    "message",
    [
        says(None, tool_calls=[stored(json.dumps(ARGUMENTS))]),
        says("", tool_calls=[stored(ARGUMENTS)]),
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


def test_what_is_not_to_be_learned_says_so_and_thoughts_are_read() -> None:
    for name in LEARNED:
        for value, learned in ((0, False), (False, False), (1, True), (1.0, True), (None, True)):
            assert last(user(), says(**{name: value})).learned is learned
        assert not last(says(), user(**{name: 0})).learned
        for message in (says(**{name: 0.5}), says(**{name: "yes"}), user(**{name: 1})):
            with pytest.raises(TaskError, match=f"row 1: `{name}`"):
                last(user(), message)
    for name in THOUGHTS:
        assert last(user(), says(**{name: "hm"})).thought == "hm"
        with pytest.raises(TaskError, match=f"`{name}` of an assistant message is no text"):
            last(user(), says(**{name: ["hm"]}))


def test_tools_are_what_was_written() -> None:
    one = {"type": "object", "properties": {"topic": {"type": "string", "default": None}}}
    schema = {"type": "function", "function": {"name": "f", "parameters": one}}
    spec = tools_of([schema], "row")[0]
    united = json.loads(json.dumps(schema))  # as Arrow makes it beside a tool with an id
    united["function"]["parameters"]["properties"]["id"] = None
    for written in (json.dumps([schema]), [schema["function"]], [united]):
        assert spec.parameters == one and tools_of(written, "row") == [spec]
    assert without_nulls({"a": [{"b": None, "c": 0}]}) == {"a": [{"c": 0}]}


@pytest.mark.parametrize(("row", "said"), CASES["chat rows that are refused"])
def test_what_cannot_be_obeyed_is_refused_by_name(row: dict[str, Any], said: str) -> None:
    with pytest.raises(TaskError, match=r"^row 7: ") as error:
        chat_of(row, "row 7")
    assert said in str(error.value)


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
    one = [user(), says(content, tool_calls=[stored(arguments)])]
    text = json.dumps(arguments, indent=2, ensure_ascii=False)
    other = [user(), says(content, tool_calls=[stored(text) | {"id": "other"}])]
    assert same_words(one) == same_words(other)
    assert same_words(one) != same_words([user(), says(content)])
    assert same_words(one) != same_words(
        [user(), says(content, tool_calls=[stored(arguments, "g")])]
    )
    assert last(*other).calls == (ToolCall("f", arguments),)


KINDS = {"n": {"type": "integer"}, "t": {"type": "string"}}
OFFERED = ToolSpec("f", "", {"type": "object", "properties": KINDS})


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("said", ["", "I look.", "<think>\n<tool_call>x\n</think>\n\nNow."])
def test_calls_in_a_text_are_read_in_any_format(form: str, said: str) -> None:
    arguments = {"n": 3, "t": "7"}
    spelled = FORMATS[form].write("f", arguments)
    text = "\n".join([said, spelled, spelled] if said else [spelled, spelled])
    turn = read_calls(Turn("assistant", text, learned=True), [OFFERED])
    assert turn == Turn("assistant", said, (ToolCall("f", arguments),) * 2, learned=True)
    for other in (f"{text} and so on", "<tool_call>{</tool_call>", "no call"):
        assert read_calls(turn := Turn("assistant", other), [OFFERED]) is turn
    assert read_calls(turn := Turn("user", text), [OFFERED]) is turn
