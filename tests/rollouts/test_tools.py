"""`@tool`: the schema of a function, refusals, and the conversion of a model's arguments."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Optional

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from places import tables

from assay.task import TaskError
from rollouts.tool_calls import ToolCall, fitting
from rollouts.tools import Context, described, tool

CASES = tables("rollouts")


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
