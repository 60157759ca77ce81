"""Answers in the words of the protocol: whole, or as the chunks of a stream."""

from __future__ import annotations

import codecs
import json
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rollouts.prompts import ChatTokenizer
from rollouts.serving.request import Request
from rollouts.tool_calls import ToolCall
from rollouts.trajectory import Completion

Row = dict[str, Any]


@dataclass(frozen=True)
class Sample:
    """One sample in words. `reason`: stop, length or tool_calls. `completion`: the tokens that
    spell them, to the one in which a stop text begins."""

    text: str
    calls: list[ToolCall]
    reason: str
    completion: Completion


def _sample(completion: Completion, asked: Request, tokenizer: ChatTokenizer) -> Sample:
    """Cut at the first stop text, with the calls that were made. A call that cannot be read is
    left in the text: the client is to see it."""
    text = tokenizer.text(completion.ids)
    reason = "length" if completion.stop == "length" else "stop"
    ends = [place for stop in asked.stops if (place := text.find(stop)) >= 0]
    if ends:
        text, reason = text[: min(ends)], "stop"
        ids = completion.ids
        count = bisect_left(
            range(len(ids)), True, key=lambda k: tokenizer.text(ids[:k]).startswith(text)
        )
        laws = completion.logprobs[:count], completion.sampling_logprobs[:count]
        completion = replace(
            completion, ids=ids[:count], logprobs=laws[0], sampling_logprobs=laws[1], stop="eos"
        )
    calls = tokenizer.calls.read(text) if asked.reads_calls else []
    if not calls or any(call.error for call in calls):
        return Sample(text, [], reason, completion)
    return Sample(text.partition("<tool_call>")[0].rstrip(), calls, "tool_calls", completion)


def reply(
    head: Row,
    asked: Sequence[Request],
    groups: Sequence[Sequence[Completion]],
    tokenizer: ChatTokenizer,
) -> Row:
    """The whole reply. `head`: its id, model, time, and the kind of its object."""
    chat, choices, written = head["object"] == "chat.completion", list[Row](), 0
    for one, group in zip(asked, groups, strict=True):
        for completion in group:
            sample, place = _sample(completion, one, tokenizer), len(choices)
            logprobs = _chat_logprobs if chat else _text_logprobs
            drawn = sample.completion
            written += len(drawn.ids)
            said = (
                {"message": _message(sample, head["id"], place)} if chat else {"text": sample.text}
            )
            choices.append(
                {"index": place}
                | said
                | {"logprobs": logprobs(drawn, tokenizer) if one.logprobs else None}
                | {"finish_reason": sample.reason}
                | ({"token_ids": drawn.ids, "prompt_token_ids": one.ids} if one.token_ids else {})
            )
    read = sum(len(one.ids) for one in asked)
    used = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    return head | {"choices": choices, "usage": used}


def _message(sample: Sample, name: str, place: int) -> Row:
    message: Row = {"role": "assistant", "content": sample.text}
    if sample.calls:
        message["content"] = sample.text or None
        message["tool_calls"] = [
            {
                "id": f"call-{name}-{place}-{i}",
                "type": "function",
                "function": {
                    "name": call.name,
                    "arguments": json.dumps(call.arguments, ensure_ascii=False),
                },
            }
            for i, call in enumerate(sample.calls)
        ]
    return message


def chunks(whole: Row, usage_too: bool) -> Iterator[bytes]:
    """The server-sent events of a whole reply: each sample's text in one chunk."""
    chat = whole["object"] == "chat.completion"
    kind = "chat.completion.chunk" if chat else "text_completion"
    head: Row = {name: whole[name] for name in ("id", "created", "model")} | {"object": kind}
    more: Row = {"usage": None} if usage_too else {}
    for choice in whole["choices"]:
        first: Row = {"index": choice["index"], "finish_reason": None}
        first |= {k: choice[k] for k in ("logprobs", "token_ids") if choice.get(k) is not None}
        last: Row = {"index": choice["index"], "finish_reason": choice["finish_reason"]}
        said: Row = {"text": choice.get("text")}
        if chat:
            message: Row = choice["message"]
            said = {"delta": {"role": "assistant", "content": message["content"] or ""}}
            if calls := message.get("tool_calls"):
                said["delta"]["tool_calls"] = [{"index": i} | c for i, c in enumerate(calls)]
        yield _event(head | {"choices": [first | said]} | more)
        nothing: Row = {"delta": Row()} if chat else {"text": ""}
        yield _event(head | {"choices": [last | nothing]} | more)
    if usage_too:
        yield _event(head | {"choices": list[Row](), "usage": whole["usage"]})
    yield b"data: [DONE]\n\n"


def _event(row: Row) -> bytes:
    return f"data: {json.dumps(row, ensure_ascii=False)}\n\n".encode("utf-8", "replace")


def _chat_logprobs(completion: Completion, tokenizer: ChatTokenizer) -> Row:
    pairs = zip(tokenizer.pieces(completion.ids), completion.logprobs, strict=True)
    content = [
        {"token": _spelled(piece), "logprob": law, "bytes": list(piece), "top_logprobs": []}
        for piece, law in pairs
    ]
    return {"content": content, "refusal": None}


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
