"""Python source and literals, read from any thread.

Older releases of Python (3.11 up to .8, 3.12 up to .2) keep the depth of the tree that `ast.parse`
builds once for the whole process. Two threads that parse at the same time, or a finalizer that
parses while a tree is built, make it raise `SystemError: AST constructor recursion depth mismatch`
on sound source (https://github.com/python/cpython/issues/106905). Model outputs are scored in
threads, so they are parsed here: one thread at a time, and again where another library's parsing
came between.
"""

from __future__ import annotations

import ast
from threading import RLock
from typing import Any

_TURN = RLock()
_TRIES = 8


def parse_python(source: str | bytes, filename: str = "<unknown>") -> ast.Module:
    """`ast.parse`, and its errors on bad source: SyntaxError, ValueError, RecursionError,
    MemoryError."""
    return _parsed(source, filename, "exec")


def python_literal(text: str) -> Any:
    """`ast.literal_eval` of a text, and its errors: TypeError besides those of `parse_python`."""
    return ast.literal_eval(_parsed(text.lstrip(" \t"), "<unknown>", "eval"))


def _parsed(source: str | bytes, filename: str, mode: str) -> Any:
    with _TURN:
        for _ in range(_TRIES - 1):
            try:
                return ast.parse(source, filename, mode)
            except SystemError as error:
                if "recursion depth" not in str(error):
                    raise
        return ast.parse(source, filename, mode)
