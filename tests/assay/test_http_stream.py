"""Streamed answers: whatever way the same words are cut, they are the same message."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.http_stream import EventStream

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


def assembled(data: bytes, cuts: list[int] = []) -> EventStream:  # noqa: B006
    stream = EventStream()
    places = sorted({min(c, len(data)) for c in cuts} | {0, len(data)})
    for a, b in pairwise(places):
        stream.feed(data[a:b])
    stream.close()
    return stream


def wire(rows: list[Any], end: str = "\n", done: bool = True) -> bytes:
    lines = [f"data: {json.dumps(row, ensure_ascii=False)}" for row in rows]
    lines += ["data: [DONE]"] if done else []
    return (end * 2).join(["\ufeff: hello", *lines, ""]).encode()


texts = st.text(st.characters(codec="utf-8"), max_size=40)
cuts = st.lists(st.integers(0, 4000), max_size=12)


@settings(deadline=None)
@given(texts, texts, cuts, cuts, st.sampled_from(["\n", "\r\n", "\r"]))
def test_any_cutting_gives_the_same_message(
    text: str, thought: str, words: list[int], places: list[int], end: str
) -> None:
    stream = assembled(wire(rows_of(text, thought, words), end), places)
    assert (stream.broken, stream.error) == ("", None)
    row = stream.row()
    message = row["choices"][0]["message"]
    assert message["content"] == text and message.get("reasoning_content", "") == thought
    calls = message["tool_calls"]
    assert [(c["id"], c["function"]["name"]) for c in calls] == [("a", "f"), ("b", "g")]
    assert [c["function"]["arguments"] for c in calls] == [ARGUMENTS] * 2
    assert row["choices"][0]["finish_reason"] == "tool_calls"
    assert row["usage"] == {"completion_tokens": 7}


@settings(deadline=None)
@given(st.integers(0, 10**6))
def test_a_stream_that_ends_early_is_no_answer(at: int) -> None:
    """Until the reason for the end has been said whole, nothing is taken for an answer."""
    rows = rows_of("words", "", [3])
    data = wire(rows)
    said = data.index(b'"finish_reason": "tool_calls"') + len(b'"finish_reason": "tool_calls"}]}')
    assert assembled(data[: at % said]).broken
    assert not assembled(data[:said]).broken
    assert not assembled(wire(rows, done=False)).broken


def test_odd_streams() -> None:
    """A call said whole, index 0 for each of several, a name with every piece, data over lines,
    content as parts."""
    one = {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}
    two = {"index": 0, "id": "b", "function": {"name": "f", "arguments": "{"}}
    more = {"index": 0, "id": "b", "function": {"name": "f", "arguments": "}"}}
    found = assembled(wire([choice({"tool_calls": [c]}) for c in (one, two, more)])).row()
    calls = found["choices"][0]["message"]["tool_calls"]
    assert [(c["id"], c["function"]) for c in calls] == [
        ("a", {"name": "f", "arguments": "{}"}),
        ("b", {"name": "f", "arguments": "{}"}),
    ]
    pretty = json.dumps(choice({"content": "x"}, "stop"), indent=1).replace("\n", "\ndata: ")
    stream = assembled(f"event: message\ndata: {pretty}\n\n".encode())
    assert stream.row()["choices"][0]["message"] == {"content": "x"}
    parts = [
        [{"type": "thinking", "thinking": [{"type": "text", "text": "a"}]}],
        [{"type": "thinking", "thinking": [{"type": "text", "text": "b"}]}],
        "c",
        "d",
    ]
    content = assembled(wire([choice({"content": p}) for p in parts])).row()
    assert content["choices"][0]["message"]["content"] == [
        {"type": "thinking", "thinking": [{"type": "text", "text": "ab"}]},
        {"type": "text", "text": "cd"},
    ]


@pytest.mark.parametrize(
    "data",
    [
        b'data: {"error": {"message": "gone", "code": 502}}\n\n',
        b'event: error\ndata: {"message": "gone"}\n\n',
        b'{"error": "gone"}\n',
        b'data: {"choices": [{"error": {"message": "gone"}}]}\n\n',
    ],
)
def test_an_error_in_a_stream_is_one(data: bytes) -> None:
    said = wire([choice({"content": "half"})], done=False)
    assert "gone" in str(assembled(said + data + wire([choice({}, "stop")])).error)


def test_what_is_no_json_is_said() -> None:
    assert "{oops" in assembled(b"data: {oops\n\ndata: [DONE]\n\n").broken
