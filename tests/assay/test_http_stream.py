"""Streamed answers: whatever way the same words are cut, they are the same message."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import tables

from assay.http_client import EndpointError, read_stream

TABLES = tables("assay")

ARGUMENTS = '{"code": "print(1)\\n# é 漢"}'


def choice(delta: Any, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def pieces_of(text: str, cuts: list[int]) -> list[str]:
    places = sorted({min(c, len(text)) for c in cuts} | {0, len(text)})
    return [text[a:b] for a, b in pairwise(places)]


def rows_of(text: str, thought: str, cuts: list[int]) -> list[dict[str, Any]]:
    """An answer of thoughts, words and two calls as the rows of a stream."""
    first = {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}
    second = {"index": 1, "id": "b", "type": "function", "function": {"name": "g"}}
    rows = [choice({"role": "assistant", "content": ""})]
    rows += [choice({"reasoning_content": p}) for p in pieces_of(thought, cuts)]
    rows += [choice({"content": p}) for p in pieces_of(text, cuts)]
    for head in (first, second):
        rows.append(choice({"tool_calls": [head]}))
        for p in pieces_of(ARGUMENTS, cuts):
            part = {"index": head["index"], "function": {"arguments": p}}
            rows.append(choice({"tool_calls": [part]}))
    return [*rows, choice({}, "tool_calls"), {"choices": [], "usage": {"completion_tokens": 7}}]


def broken(data: str) -> str:
    """Why a stream gives no answer; "" where it gives one."""
    try:
        read_stream(data)
    except EndpointError as error:
        return str(error)
    return ""


def wire(rows: list[Any], end: str = "\n", done: bool = True) -> str:
    lines = [f"data: {json.dumps(row, ensure_ascii=False)}" for row in rows]
    lines += ["data: [DONE]"] if done else []
    return (end * 2).join([": hello", *lines, ""])


texts = st.text(st.characters(codec="utf-8"), max_size=40)
cuts = st.lists(st.integers(0, 4000), max_size=12)


@given(texts, texts, cuts, st.sampled_from(["\n", "\r\n", "\r"]))
def test_any_cutting_gives_the_same_message(
    text: str, thought: str, words: list[int], end: str
) -> None:
    row = read_stream(wire(rows_of(text, thought, words), end))
    message = row["choices"][0]["message"]
    assert message["content"] == text and message.get("reasoning_content", "") == thought
    calls = message["tool_calls"]
    assert [(c["id"], c["function"]["name"]) for c in calls] == [("a", "f"), ("b", "g")]
    assert [c["function"]["arguments"] for c in calls] == [ARGUMENTS] * 2
    assert row["choices"][0]["finish_reason"] == "tool_calls"
    assert row["usage"] == {"completion_tokens": 7}


@given(st.integers(0, 10**6))
def test_a_stream_that_ends_early_is_no_answer(at: int) -> None:
    """Until the reason for the end has been said whole, nothing is taken for an answer."""
    rows = rows_of("words", "", [3])
    data = wire(rows)
    said = data.index('"finish_reason": "tool_calls"') + len('"finish_reason": "tool_calls"}]}')
    assert broken(data[: at % said])
    assert not broken(data[:said])
    assert not broken(wire(rows, done=False))


def test_calls_of_one_index_are_told_apart_by_their_ids() -> None:
    """A call said whole, and one with its name in every piece."""
    parts = [("a", "{}"), ("b", "{"), ("b", "}")]
    calls = [{"index": 0, "id": i, "function": {"name": "f", "arguments": a}} for i, a in parts]
    found = read_stream(wire([choice({"tool_calls": [call]}) for call in calls]))
    made = [(c["id"], c["function"]) for c in found["choices"][0]["message"]["tool_calls"]]
    assert made == [(name, {"name": "f", "arguments": "{}"}) for name in "ab"]


@pytest.mark.parametrize("data", TABLES["an_error_in_a_stream_is_one"])
def test_an_error_in_a_stream_is_one(data: str) -> None:
    said = wire([choice({"content": "half"})], done=False)
    assert "gone" in broken(said + data + wire([choice({}, "stop")]))
