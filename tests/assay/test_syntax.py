"""Source is read in every thread, also where Python's own parser loses count."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.syntax import parse_python, python_literal
from rewards.krama import answer

LONG = "[" + ", ".join(str(i) for i in range(400)) + "]"


class _Parses:
    """Garbage whose finalizer parses, as another thread does that runs in between, and leaves
    garbage of the same kind, `left` times."""

    def __init__(self, left: int) -> None:
        self.me, self.left = self, left

    def __del__(self) -> None:
        ast.parse("1 + 1")
        if self.left:
            _Parses(self.left - 1)


@contextmanager
def finalizers() -> Iterator[None]:
    """The collector runs often, and finds garbage of that kind six times: less often than a parse
    is tried again."""
    before = gc.get_threshold()
    gc.set_threshold(30, 1, 1)
    _Parses(5)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.collect()


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


def test_answers_are_read_while_finalizers_parse() -> None:
    with finalizers():
        assert answer.as_list(LONG.replace("0", "'0'", 1)) == ["0", *range(1, 400)]


@given(st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=8))
def test_a_literal_is_read_as_python_reads_it(value: Any) -> None:
    assert python_literal(repr(value)) == value == ast.literal_eval(repr(value))
