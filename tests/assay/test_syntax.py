"""Source is read in every thread, also where Python's own parser loses count."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.syntax import parse_python, python_literal


def test_a_parse_that_another_disturbed_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    said = SystemError("AST constructor recursion depth mismatch (before=189, after=69)")
    left = [said, said]
    real = ast.parse

    def parse(*args: Any, **kwargs: Any) -> ast.AST:
        if left:
            raise left.pop()
        return real(*args, **kwargs)

    monkeypatch.setattr(ast, "parse", parse)
    assert python_literal(" [1, 'a']") == [1, "a"]
    assert not left


@pytest.mark.parametrize("message", ["AST constructor recursion depth mismatch", "another"])
def test_a_parser_that_never_works_is_heard(monkeypatch: pytest.MonkeyPatch, message: str) -> None:
    def parse(*_: Any, **__: Any) -> ast.AST:
        raise SystemError(message)

    monkeypatch.setattr(ast, "parse", parse)
    with pytest.raises(SystemError, match=message):
        parse_python("1")


@given(st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=8))
def test_a_literal_is_read_as_python_reads_it(value: Any) -> None:
    assert python_literal(repr(value)) == value == ast.literal_eval(repr(value))
