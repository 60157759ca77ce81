"""Answers in the words of the protocol: whole, or as the chunks of a stream."""

from __future__ import annotations

import codecs
import json
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rollouts.prompts import ChatTokenizer
from rollouts.serving.asked import Asked
from rollouts.tool_calls import ToolCall
from rollouts.trajectory import Completion

Row = dict[str, Any]


@dataclass(frozen=True)
class Head:
    """What every part of one reply says: its id, the model's name, the second it was made."""

    id: str
    model: str
    created: int


@dataclass(frozen=True)
class Said:
    """One sample in words. `reason`: stop, length or tool_calls. `completion`: the tokens that
    spell them, to the one in which a stop text begins."""

    text: str
    calls: list[ToolCall]
    reason: str
    completion: Completion


def said(completion: Completion, asked: Asked, tokenizer: ChatTokenizer) -> Said:
    """Cut at the first stop text, with the calls that were made. A call that cannot be read is
    left in the text: the client is to see it."""
    text = tokenizer.text(completion.ids)
    reason = "length" if completion.stop == "length" else "stop"
    ends = [place for stop in asked.stops if (place := text.find(stop)) >= 0]
    if ends:
        text, reason = text[: min(ends)], "stop"
        completion = _up_to(text, completion, tokenizer)
    calls = tokenizer.calls.read(text) if asked.reads_calls else []
    if not calls or any(call.error for call in calls):
        return Said(text, [], reason, completion)
    return Said(text.partition("<tool_call>")[0].rstrip(), calls, "tool_calls", completion)


def _up_to(text: str, completion: Completion, tokenizer: ChatTokenizer) -> Completion:
    """The first tokens of a completion, as many as a beginning of its text needs."""
    ids = completion.ids
    count = bisect_left(
        range(len(ids)), True, key=lambda k: tokenizer.text(ids[:k]).startswith(text)
    )
    return replace(
        completion,
        ids=ids[:count],
        logprobs=completion.logprobs[:count],
        sampling_logprobs=completion.sampling_logprobs[:count],
        stop="eos",
    )


def _usage(asked: Sequence[Asked], groups: Sequence[Sequence[Said]]) -> Row:
    read = sum(len(one.ids) for one in asked)
    written = sum(len(one.completion.ids) for group in groups for one in group)
    return {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
    }


def chat_reply(
    head: Head, asked: Asked, group: Sequence[Completion], tokenizer: ChatTokenizer
) -> Row:
    choices: list[Row] = []
    spoken = [said(completion, asked, tokenizer) for completion in group]
    for i, one in enumerate(spoken):
        choices.append(
            {
                "index": i,
                "message": _message(one, head, i),
                "logprobs": _chat_logprobs(one.completion, tokenizer) if asked.logprobs else None,
                "finish_reason": one.reason,
            }
            | _ids(asked, one.completion)
        )
    return _reply(head, "chat.completion", choices, _usage([asked], [spoken]))


def completion_reply(
    head: Head,
    asked: Sequence[Asked],
    groups: Sequence[Sequence[Completion]],
    tokenizer: ChatTokenizer,
) -> Row:
    choices: list[Row] = []
    spoken = [
        [said(completion, one, tokenizer) for completion in group]
        for one, group in zip(asked, groups, strict=True)
    ]
    for one, group in zip(asked, spoken, strict=True):
        for sample in group:
            logprobs = _text_logprobs(sample.completion, tokenizer) if one.logprobs else None
            choices.append(
                {
                    "index": len(choices),
                    "text": sample.text,
                    "logprobs": logprobs,
                    "finish_reason": sample.reason,
                }
                | _ids(one, sample.completion)
            )
    return _reply(head, "text_completion", choices, _usage(asked, spoken))


def chunks(reply: Row, usage_too: bool) -> Iterator[bytes]:
    """The server-sent events of a whole reply: each sample's text in one chunk."""
    chat = reply["object"] == "chat.completion"
    kind = "chat.completion.chunk" if chat else "text_completion"
    head: Row = {name: reply[name] for name in ("id", "created", "model")} | {"object": kind}
    more: Row = {"usage": None} if usage_too else {}
    for choice in reply["choices"]:
        index: Row = {"index": choice["index"], "finish_reason": None}
        last: Row = {"index": choice["index"], "finish_reason": choice["finish_reason"]}
        own = {k: v for k, v in choice.items() if k in ("logprobs", "token_ids") and v is not None}
        if not chat:
            yield _event(head | {"choices": [index | own | {"text": choice["text"]}]} | more)
            yield _event(head | {"choices": [last | {"text": ""}]} | more)
            continue
        message: Row = choice["message"]
        delta: Row = {"role": "assistant", "content": message["content"] or ""}
        if calls := message.get("tool_calls"):
            delta["tool_calls"] = [{"index": i} | call for i, call in enumerate(calls)]
        yield _event(head | {"choices": [index | own | {"delta": delta}]} | more)
        yield _event(head | {"choices": [last | {"delta": Row()}]} | more)
    if usage_too:
        last = {"choices": list[Row](), "usage": reply["usage"]}
        yield _event(head | last)
    yield b"data: [DONE]\n\n"


def _event(row: Row) -> bytes:
    return f"data: {json.dumps(row, ensure_ascii=False)}\n\n".encode("utf-8", "replace")


def _reply(head: Head, kind: str, choices: list[Row], used: Row) -> Row:
    return {
        "id": head.id,
        "object": kind,
        "created": head.created,
        "model": head.model,
        "choices": choices,
        "usage": used,
    }


def _message(one: Said, head: Head, sample: int) -> Row:
    message: Row = {"role": "assistant", "content": one.text}
    if one.calls:
        message["content"] = one.text or None
        message["tool_calls"] = [
            {
                "id": f"call-{head.id}-{sample}-{i}",
                "type": "function",
                "function": {
                    "name": call.name,
                    "arguments": json.dumps(call.arguments, ensure_ascii=False),
                },
            }
            for i, call in enumerate(one.calls)
        ]
    return message


def _ids(asked: Asked, completion: Completion) -> Row:
    if not asked.token_ids:
        return {}
    return {"token_ids": completion.ids, "prompt_token_ids": asked.ids}


def _chat_logprobs(completion: Completion, tokenizer: ChatTokenizer) -> Row:
    pieces = tokenizer.pieces(completion.ids)
    return {
        "content": [
            {
                "token": _spelled(piece),
                "logprob": logprob,
                "bytes": list(piece),
                "top_logprobs": [],
            }
            for piece, logprob in zip(pieces, completion.logprobs, strict=True)
        ],
        "refusal": None,
    }


def _text_logprobs(completion: Completion, tokenizer: ChatTokenizer) -> Row:
    """A token's offset is the number of whole characters before it."""
    pieces = tokenizer.pieces(completion.ids)
    offsets, at = list[int](), 0
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for piece in pieces:
        offsets.append(at)
        at += len(decoder.decode(piece))
    return {
        "tokens": [_spelled(piece) for piece in pieces],
        "token_logprobs": completion.logprobs,
        "top_logprobs": None,
        "text_offset": offsets,
    }


def _spelled(piece: bytes) -> str:
    """A token as text; a part of a character as the protocol writes it: `bytes:\\xf0\\x9f`."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)
