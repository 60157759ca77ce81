"""Tool calls read out of what a model wrote, in both spellings; functions as tools."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Optional

import pytest
import thought_forms
from hypothesis import given, settings
from hypothesis import strategies as st
from places import tables

from assay.task import TaskError
from rollouts.tool_calls import FORMATS, MAX_CALLS, ToolCall, ToolSpec, call_format, fitting
from rollouts.tools import Context, described, tool

CASES = tables("rollouts")

texts = st.text(max_size=60)
SPEC = ToolSpec(
    "t",
    "d",
    {
        "type": "object",
        "required": ["code", "names"],
        "properties": {
            "code": {"type": "string"},
            "names": {"type": "array", "items": {"type": "string"}},
        },
    },
)


@pytest.mark.parametrize("name", FORMATS)
@given(frame=st.sampled_from(["{}", "<tool_call>{}</tool_call>", "<tool_call>{{{}"]), text=texts)
def test_reading_never_raises(name: str, frame: str, text: str) -> None:
    for call in call_format(name).read(frame.format(text)):
        assert call.error or call.name


@given(code=st.text(max_size=80), names=st.lists(st.text(max_size=9), max_size=3))
def test_hermes_gives_back_what_was_written(code: str, names: list[str]) -> None:
    arguments = {"code": code, "names": names}
    text = FORMATS["hermes"].write("t", arguments)
    if "tool_call>" in code or any("tool_call>" in n for n in names) or "think>" in text:
        return
    (call,) = FORMATS["hermes"].read(f"First this.\n{text}\n")
    assert (call.name, call.arguments, call.error) == ("t", arguments, "")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("<tool_call>\n{bad}\n</tool_call>", "not valid JSON"),
        ("<tool_call>[1]</tool_call>", "not a JSON object"),
        ('<tool_call>{"name": "t"}</tool_call>', "arguments are not an object"),
        ('<tool_call>{"arguments": {}}</tool_call>', "names no tool"),
        ('<tool_call>{"name": "t", "argum', "not finished"),
        ("<tool_call>" + "[" * 100_000 + "</tool_call>", "not valid JSON"),
    ],
)
def test_what_cannot_be_read_is_a_call_with_an_error(text: str, why: str) -> None:
    (call,) = FORMATS["hermes"].read(text)
    assert why in call.error


def test_arguments_nested_too_deeply_are_an_error() -> None:
    for depth, error in ((60, ""), (70, "nested more than 64 deep"), (5000, "JSON")):
        body = f'{{"name": "t", "arguments": {{"x": {"[" * depth}{"]" * depth}}}}}'
        (call,) = FORMATS["hermes"].read(f"<tool_call>{body}</tool_call>")
        assert error in call.error and bool(call.error) == bool(error)
        text = f"<function=t><parameter=x>{'[' * depth}{']' * depth}</parameter></function>"
        (call,) = FORMATS["qwen_xml"].read(f"<tool_call>{text}</tool_call>")
        assert bool(call.error) == (depth == 70)  # 5000 cannot be read, and so stays text


@pytest.mark.parametrize("form", thought_forms.FORMS)
@pytest.mark.parametrize("name", ["hermes", "qwen_xml"])
def test_calls_are_read_after_every_form_of_thought(name: str, form: str) -> None:
    call = FORMATS[name].write("t", {"code": "print('</think>')"})
    (found,) = FORMATS[name].read(thought_forms.filled(thought_forms.FORMS[form], call))
    assert (found.name, found.arguments["code"]) == ("t", "print('</think>')")


@pytest.mark.parametrize("form", thought_forms.UNENDED)
def test_no_call_is_read_out_of_a_thought_that_does_not_end(form: str) -> None:
    call = FORMATS["hermes"].write("t", {"n": 1})
    assert FORMATS["hermes"].read(thought_forms.UNENDED[form] + call) == []


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("<think>a</think>ONE TWO<think>done</think>", [1, 2]),
        ("maybe TWO no</think>ONE", [1]),
        ("a <tool_call> tag is needed</think>ONE", [1]),
        ("<think>a <tool_call> tag</think>ONE", [1]),
        ("TWO<think>no</think>ONE", [1]),
        ("ONE so<think>and", [1]),
    ],
)
def test_calls_before_the_end_of_reasoning_are_thoughts(text: str, numbers: list[int]) -> None:
    for name, number in (("ONE", 1), ("TWO", 2)):
        text = text.replace(name, FORMATS["hermes"].write("t", {"n": number}))
    assert [c.arguments["n"] for c in FORMATS["hermes"].read(text)] == numbers


def test_many_marks_are_read_in_linear_time() -> None:
    for text in ("<tool_call></think>" * 50_000, "<tool_call>" * 50_000, "<think>" * 50_000):
        assert len(FORMATS["hermes"].read(text)) <= 1
    assert len(FORMATS["hermes"].read("<tool_call></tool_call>" * 50_000)) == MAX_CALLS + 1


TYPED = ToolSpec(
    "t",
    "d",
    {
        "type": "object",
        "properties": {
            "code": {"type": "string"},
            "n": {"type": "integer"},
            "x": {"type": "number"},
            "yes": {"type": "boolean"},
            "names": {"type": "array", "items": {"type": "string"}},
            "any": {"description": "number, text or list"},
        },
    },
)


@pytest.mark.parametrize("arguments", CASES["arguments of each type"])
@pytest.mark.parametrize("name", ["hermes", "qwen_xml"])
def test_values_have_the_types_of_the_schema(name: str, arguments: dict[str, Any]) -> None:
    (call,) = FORMATS[name].read(FORMATS[name].write("t", arguments))
    assert fitting(TYPED, call) == (arguments, "")


@pytest.mark.parametrize(("arguments", "why"), CASES["arguments and what is said of them"])
def test_arguments_are_held_to_the_schema(arguments: dict[str, Any], why: str) -> None:
    found = fitting(SPEC, ToolCall("t", arguments))[1]
    assert (why in found) if why else found == ""


_AS_ONE_PATTERN = re.compile(r"<parameter=([^>\s]+)>\n?(.*?)\n?</parameter>", re.DOTALL)
_PARTS = ("<parameter=a>", "<parameter=b>", "</parameter>", "\n", "x", "<parameter=", ">", " ")


@settings(deadline=None)
@given(st.lists(st.sampled_from(_PARTS), max_size=14).map("".join))
def test_parameters_are_read_as_one_pattern_reads_them(body: str) -> None:
    call = FORMATS["qwen_xml"].read(f"<tool_call><function=f>{body}</function></tool_call>")[0]
    assert call.spelled == dict(_AS_ONE_PATTERN.findall(body))


def test_parameters_that_nothing_closes_are_looked_at_once() -> None:
    """The pattern as a whole is quadratic in them: 4,000 took 2 s, 12,500 take 20."""
    body = "<parameter=code>" * 200_000
    calls = FORMATS["qwen_xml"].read(f"<tool_call><function=f>{body}</function></tool_call>")
    assert calls[0].arguments == {}


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
    assert schema["properties"] == {
        "a": {"type": "string", "description": "First, over two lines."},
        "b": {"type": "integer", "description": "Second: with a colon."},
        "c": {"type": "number", "description": "A number."},
        "d": {"type": "array", "items": {"type": "integer"}},
        "e": {"type": "object", "additionalProperties": {"type": "number"}},
        "f": {"type": "string", "enum": ["x", "y"]},
        "g": {"type": "boolean", "default": False},
        "h": {"type": "integer"},
        "i": {"type": "array"},
        "j": {"anyOf": [{"type": "integer"}, {"type": "string"}], "default": "k"},
        "k": {"default": None},
    }
    assert everything.context == "ctx"


@pytest.mark.parametrize("text", CASES["docstrings"])
def test_three_habits_of_docstrings_are_read(text: str) -> None:
    assert described(text) == ("Do it.", {"x": "How many.", "y": "Why."})


@given(st.text(alphabet="Args: \nx-", max_size=80))
@settings(deadline=None)
def test_any_docstring_is_read(text: str) -> None:
    about, helps = described(text)
    assert isinstance(about, str) and all(isinstance(v, str) for v in helps.values())


ABOUT = "    'Take x.'\n"


@pytest.mark.parametrize(("source", "why"), CASES["functions that are no tools"])
def test_functions_that_cannot_be_tools_are_named(source: str, why: str) -> None:
    names: dict[str, Any] = {}
    exec(source, names)
    with pytest.raises(TaskError, match=why) as caught:
        tool(names["f"])
    assert "\n" not in str(caught.value)


def fitted(arguments: dict[str, Any]) -> tuple[dict[str, Any], str]:
    return fitting(everything.spec, ToolCall("everything", arguments), everything.kinds)


BASE = {"a": "s", "b": 1, "c": 2.0, "d": [1], "e": {"p": 1.5}, "f": "x"}


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


def test_a_tool_is_still_its_function() -> None:
    @tool
    def add(x: int, y: int = 2) -> int:
        """Add."""
        return x + y

    assert add(1) == 3 and add.name == "add"
