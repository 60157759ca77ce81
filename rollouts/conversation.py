"""The two ways to hold a conversation: as token ids (training), or as messages (an endpoint)."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from rollouts.environment import Budget, EpisodeStart
from rollouts.prompts import ChatTokenizer
from rollouts.tool_calls import ToolCall, ToolSpec
from rollouts.trajectory import Completion, Sampling, Stop

_ODD = re.compile(r"[^a-zA-Z0-9_-]")


@dataclass(frozen=True)
class ChatReply:
    """One message of a chat endpoint: words and calls, never token ids. `reasoning` is what the
    model thought before; `message` the whole message as it came, where there is one."""

    text: str
    calls: list[ToolCall]
    stop: Stop
    usage: Mapping[str, int] = field(default_factory=dict[str, int])
    reasoning: str = ""
    message: Mapping[str, Any] = field(default_factory=dict[str, Any])


class ContextFull(Exception):
    """The conversation is longer than the model can read: its message was cut by a token limit."""


Ask = Callable[[Sequence[int], Sampling, int], Awaitable[Completion]]
"""(ids, sampling, seed) → what an engine of token ids goes on with."""


class ChatEngine(Protocol):
    """Anything that answers messages in words. It gives no token ids, so nothing can be trained
    on what it says; it serves evaluation and the making of SFT data."""

    async def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        sampling: Sampling,
        seed: int,
    ) -> ChatReply:
        """One message. Raises `OSError` when the endpoint cannot be had."""
        ...


class TokenConversation:
    """Ids as they were sampled, with mask and log-probabilities; only ever appended to.

    A conversation that its environment wrote anew (`rewritten`) leaves no ids to train on: they
    are no one sequence. `usage` counts its tokens as an endpoint does, message by message.
    """

    untold = 0  # messages whose tokens are not known

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self._tokenizer = tokenizer
        self.messages: list[dict[str, Any]] = []
        self.ids: list[int] = []
        # of each id: the loss mask and both log-probabilities
        self._drawn: list[tuple[int, float, float]] = []
        self.rewritten = False
        self.usage: Counter[str] = Counter()
        self._ended = False
        self._tools: Sequence[ToolSpec] = ()
        self._asked: list[int] = []

    def start(self, opening: EpisodeStart) -> None:
        self.messages = [dict(m) for m in opening.messages]
        self._tools = opening.tools
        self._given(self._tokenizer.prompt(opening.messages, opening.tools))

    def prompt(self) -> list[int]:
        """All ids so far, for the engine; what was there at the last call must still stand."""
        if self.ids[: len(self._asked)] != self._asked:
            raise AssertionError("ids of an earlier turn changed: the prefix property is broken")
        self._asked = list(self.ids)
        return list(self.ids)

    async def ask(
        self, engine: Ask | ChatEngine, prompt: Sequence[Any], sampling: Sampling, seed: int
    ) -> Completion:
        """What the engine goes on with."""
        return await cast("Ask", engine)(prompt, sampling, seed)

    def hear(self, said: Completion | ChatReply, limit: int) -> tuple[str, list[ToolCall], bool]:
        """Append one completion, cut to `limit` tokens: (its text, its calls, whether it is cut).
        What was drawn without a meaning (`failure`) is left out."""
        completion = cast("Completion", said)
        count = min(len(completion.ids), limit) if completion.failure is None else 0
        self.usage.update(prompt_tokens=len(self.ids), completion_tokens=count)
        ids = list(completion.ids[:count])
        cut = completion.stop == "length" or count < len(completion.ids)
        self._ended = bool(ids) and ids[-1] in self._tokenizer.stop_ids
        laws = completion.logprobs[:count], completion.sampling_logprobs[:count]
        self.ids += ids
        self._drawn += zip(completion.drawn(count), *laws, strict=True)
        text = self._tokenizer.text(ids)
        self.messages.append({"role": "assistant", "content": text})
        return text, self._tokenizer.calls.read(text), cut

    def add(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Append what answers the model: the template's ids around it, without loss."""
        self.messages += [dict(m) for m in messages]
        self._given(self._tokenizer.follow(messages, self._ended, self._tools))

    def rewrite(
        self, context: Sequence[Mapping[str, Any]], messages: Sequence[Mapping[str, Any]]
    ) -> None:
        """Go on from another conversation; `messages` are what the record says of it."""
        self.messages += [dict(m) for m in messages]
        self.ids, self._drawn, self._asked = [], [], []
        self.rewritten = True
        self._given(self._tokenizer.prompt(context, self._tools))

    def room(self, most: int, budget: Budget) -> int:
        """Tokens the next message may have, `most` or fewer."""
        return min(most, budget.tokens - len(self.ids)) if budget.tokens else most

    def fields(self) -> dict[str, Any]:
        """What a trajectory keeps of it: the ids, or the usage where there are none."""
        if self.rewritten:
            return _without_ids(self.usage)
        mask, logprobs, sampling = (
            map(list, zip(*self._drawn, strict=True)) if self.ids else ([], [], [])
        )
        return {
            "ids": self.ids,
            "loss_mask": mask,
            "logprobs": logprobs,
            "sampling_logprobs": sampling,
            "tokenizer": self._tokenizer.fingerprint,
        }

    def _given(self, ids: Sequence[int]) -> None:
        """Append ids that were not drawn."""
        self.ids += ids
        self._drawn += [(0, 0.0, 0.0)] * len(ids)


class ChatConversation:
    """Messages alone: what an endpoint is sent and what it said. There are no ids to train on.

    `sent` goes to the endpoint: its own messages go back whole, with every member that they came
    with (reasoning, signatures). `messages` are the same with content as text, for the record.
    """

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.sent: list[dict[str, Any]] = []
        self.tools: list[dict[str, Any]] = []
        self.usage: Counter[str] = Counter()
        self.untold = 0  # messages whose tokens the endpoint did not tell
        self._call_ids: list[str] = []
        self._function = ""  # named by a call of the older form, which has no id

    def start(self, opening: EpisodeStart) -> None:
        self.messages = [dict(m) for m in opening.messages]
        self.sent = [dict(m) for m in opening.messages]
        self.tools = [tool.schema() for tool in opening.tools]

    def prompt(self) -> list[dict[str, Any]]:
        """All messages so far, for the endpoint."""
        return self.sent

    async def ask(
        self, engine: Ask | ChatEngine, prompt: Sequence[Any], sampling: Sampling, seed: int
    ) -> ChatReply:
        """The endpoint's next message."""
        return await cast("ChatEngine", engine).chat(prompt, self.tools, sampling, seed)

    def hear(
        self, said: Completion | ChatReply, limit: int = 0
    ) -> tuple[str, list[ToolCall], bool]:
        """Append one answer: (its text, its calls, whether it is cut). The endpoint's own calls win
        over calls spelled in the text."""
        reply = cast("ChatReply", said)
        kept = {k: v for k, v in reply.message.items() if v is not None and k != "tool_calls"}
        row: dict[str, Any] = {**kept, "role": "assistant", "content": reply.text}
        self._function, self._call_ids = "", []
        if "function_call" in kept:
            self._function = _name(reply.calls[0].name) if reply.calls else ""
        elif any(call.id for call in reply.calls):
            self._call_ids = _distinct([c.id for c in reply.calls])
            raw: list[Any] = reply.message.get("tool_calls") or [{} for _ in reply.calls]
            row["tool_calls"] = [
                _call(*each) for each in zip(reply.calls, raw, self._call_ids, strict=True)
            ]
        content: Any = reply.message.get("content", reply.text)
        if content is None and not self._call_ids and not self._function:
            content = reply.text  # null stands beside calls only
        self.sent.append(row | {"content": content})
        if reply.reasoning:
            row = {"role": "assistant", "reasoning_content": reply.reasoning} | row
        self.messages.append(row)
        self.usage.update(reply.usage)
        self.untold += "completion_tokens" not in reply.usage
        return reply.text, reply.calls, reply.stop == "length"

    def add(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Append what answers the model; tool answers name the call they belong to, in order."""
        ids = iter(self._call_ids)
        for message in messages:
            row = dict(message)
            if row["role"] == "tool" and (call_id := next(ids, "")):
                row["tool_call_id"] = call_id
            elif row["role"] == "tool" and self._function:
                row = {"role": "function", "name": self._function, "content": row["content"]}
            elif row["role"] == "tool":  # the call was spelled in the text: answer there
                said = f"<tool_response>\n{row['content']}\n</tool_response>"
                row = {"role": "user", "content": said}
            self.messages.append(row)
            self.sent.append(row)

    def rewrite(
        self, context: Sequence[Mapping[str, Any]], messages: Sequence[Mapping[str, Any]]
    ) -> None:
        """Go on from another conversation; `messages` are what the record says of it."""
        self.messages += [dict(m) for m in messages]
        self.sent = [dict(m) for m in context]
        self._function, self._call_ids = "", []

    def room(self, most: int, budget: Budget) -> int:
        """The endpoint counts its own tokens."""
        return most

    def fields(self) -> dict[str, Any]:
        """What a trajectory keeps of it: the usage, no ids."""
        return _without_ids(self.usage)


def _without_ids(usage: Mapping[str, int]) -> dict[str, Any]:
    law = {"logprobs": list[float](), "sampling_logprobs": list[float]()}
    return {"ids": list[int](), "loss_mask": list[int](), **law, "usage": dict(usage)}


def _call(call: ToolCall, raw: Any, call_id: str) -> dict[str, Any]:
    """A call as it came, as an endpoint takes it back: under an id of its own, with a name that is
    one, and arguments as text, also where they are no JSON."""
    whole = cast("dict[str, Any]", raw) if isinstance(raw, dict) else {}
    inner: Any = whole.get("function")
    function = cast("dict[str, Any]", inner) if isinstance(inner, dict) else {}
    given: Any = function.get("arguments")
    arguments = given if isinstance(given, str) else json.dumps(call.arguments)
    return {
        **whole,
        "id": call_id,
        "type": whole.get("type") or "function",
        "function": {**function, "name": _name(call.name), "arguments": arguments},
    }


def _name(name: str) -> str:
    return _ODD.sub("_", name)[:64] or "unknown"


def _distinct(ids: Sequence[str]) -> list[str]:
    """Ids that name one call each: an endpoint may repeat one, or give none."""
    seen: set[str] = set()
    out: list[str] = []
    for i, given in enumerate(ids):
        new = given if given and given not in seen else f"{given or 'call'}-{i}"
        seen.add(new)
        out.append(new)
    return out
