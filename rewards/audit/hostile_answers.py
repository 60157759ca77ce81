"""What a model might hand in that no scorer should pay for, made from gold."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any, cast

from assay.task import Answer

HUGE = 200_000  # characters
DEEP = 20_000  # brackets


def attacks(gold: Answer) -> dict[str, Answer]:
    """Answers that no model should profit from, by name, made from gold's text and files."""
    return {name: _changed(gold, change) for name, change in _ATTACKS.items()} | {
        "gold cut off": Answer(gold.text, True, gold.files)
    }


def _changed(gold: Answer, change: Callable[[str], str]) -> Answer:
    files = {
        name: change(data.decode("utf-8", "replace")).encode("utf-8", "surrogatepass")
        for name, data in gold.files.items()
    }
    return Answer(change(gold.text), gold.truncated, files)


def _leaves(put: str, more: int = 0) -> Callable[[str], str]:
    """A change of gold that is JSON: `put` in place of every value, and `more` keys beside its
    own. Of gold that is not JSON only those keys are left, or `put` itself."""

    def change(text: str) -> str:
        value: Any = None
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(text)
        made = _blank(value)
        if more:
            own = cast("dict[str, Any]", made) if isinstance(made, dict) else {}
            made = own | {f"key{i}": _PLACE for i in range(more)}
        return json.dumps(made).replace(json.dumps(_PLACE), put)

    return change


def _blank(value: Any) -> Any:
    """The value with a mark at every leaf."""
    if isinstance(value, dict):
        return {key: _blank(v) for key, v in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_blank(v) for v in cast("list[Any]", value)]
    return _PLACE


def _half(text: str) -> str:
    return text[: len(text) // 2]


def _lines_twice(text: str) -> str:
    """Every line but the first a second time: a table's rows under one header."""
    head, *rows = text.splitlines() or [""]
    return "\n".join([head, *rows, *rows])


def _each_line_twice(text: str) -> str:
    return "\n".join(line for line in text.splitlines() for _ in range(2))


# Letters of other alphabets that look like Latin ones.
_ALIKE = str.maketrans(
    "aceopxyABCEHKMOPTXi",
    "\u0430\u0441\u0435\u043e\u0440\u0445\u0443"
    "\u0410\u0412\u0421\u0415\u041d\u041a\u041c\u041e\u0420\u0422\u0425\u0456",
)
_WIDE = {c: c + 0xFEE0 for c in range(0x21, 0x7F)}


def _joined(text: str) -> str:
    return "\u200b".join(text)


_PLACE = "\x00value\x00"
_LISTS = "[" * DEEP + "]" * DEEP
_ATTACKS: dict[str, Callable[[str], str]] = {
    "chatter around gold": lambda text: f"Sure! Here is it:\n{text}\nI hope this helps.",
    "gold twice": lambda text: f"{text}\n{text}",
    "NaN": lambda text: "NaN",
    "infinity": lambda text: "[Infinity, -Infinity, 1e999]",
    "null": lambda text: "null",
    "null for every value": _leaves("null"),
    "500 null keys": _leaves("null", more=500),
    "NaN for every value": _leaves("NaN"),
    "1e999 for every value": _leaves("1e999"),
    "9999 digits for every value": _leaves("9" * 9999),
    "true for every value": _leaves("true"),
    "huge text for every value": _leaves(json.dumps("x" * (HUGE // 100))),
    "nested lists for every value": _leaves(_LISTS),
    "NUL bytes": lambda text: "\0" * 100,
    "lone surrogates": lambda text: "\ud800" * 10,
    "huge": lambda text: "x" * HUGE,
    "gold, then huge": lambda text: text + " x" * (HUGE // 2),
    "many tags": lambda text: "<answer>" * 1000 + text,
    "half of gold": _half,
    "all but the end of gold": lambda text: text[:-1],
    "gold's rows twice": _lines_twice,
    "each row of gold twice": _each_line_twice,
    "gold in a list": lambda text: f"[{text}, {text}]",
    "gold as a JSON string": lambda text: json.dumps(text),
    "gold as an answer": lambda text: json.dumps({"answer": text, "reward": 1, "outcome": 1}),
    "gold in every tag": lambda text: "".join(
        f"<{t}>{text}</{t}>" for t in ("answer", "output", "result", "clean_text", "status")
    ),
    "gold or another": lambda text: f"{text} or {text[::-1]}",
    "gold in look-alike letters": lambda text: text.translate(_ALIKE),
    "gold in wide letters": lambda text: text.translate(_WIDE),
    "gold with zero-width spaces": _joined,
    "gold after thinking": lambda text: f"<think>{text}</think>",
    "nested lists": lambda text: _LISTS,
    "nested objects": lambda text: '{"a":' * DEEP + "1" + "}" * DEEP,
}
