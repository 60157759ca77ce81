"""Requests to an endpoint that is busy, broken, or asked for more than its model can read."""

from __future__ import annotations

import asyncio
import email.utils
import json
import time
from typing import Any

import pytest
from places import tables

pytest.importorskip("aiohttp")
from asking import chat_rollout
from chat_server import Body, Raw, serving

from assay.http_client import Patience, _retry_after
from assay.task import Task
from rollouts.conversation import ChatConversation, ChatReply, ContextFull
from rollouts.engines.http_engine import EndpointError, OpenAIEngine
from rollouts.environment import EpisodeStart
from rollouts.tool_calls import ToolCall
from rollouts.trajectory import Sampling

TABLES = tables("assay")

Reply = tuple[int, Any, dict[str, str]]
OK = {"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]}
VLLM = "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens"


def asked(replies: list[Reply], go: Any, **options: Any) -> tuple[Any, list[Body]]:
    """What `go` gives with an engine whose endpoint replies so, the last for ever; and what was
    asked there."""

    def reply(_: Body) -> Raw:
        status, body, headers = replies[min(len(seen), len(replies)) - 1]
        return Raw([json.dumps(body).encode()], "application/json", status, headers)

    async def run(url: str) -> Any:
        async with OpenAIEngine(url, "m", **{"pause_s": 0.001, **options}) as engine:
            return await go(engine)

    with serving(reply) as (url, seen):
        return asyncio.run(run(url)), seen


def chat(replies: list[Reply], **options: Any) -> tuple[ChatReply, list[Body]]:
    asks = [{"role": "user", "content": "q"}]
    return asked(replies, lambda engine: engine.chat(asks, [], Sampling(50), 1), **options)


def test_a_busy_endpoint_is_waited_for_longer_than_a_broken_one() -> None:
    busy: list[Reply] = [(429, {}, {})] * 9
    reply, seen = chat([*busy, (200, OK, {})], attempts=2)
    assert reply.text == "x" and len(seen) == 10
    told: list[Reply] = [(500, {}, {"Retry-After": "0.001"})] * 4
    assert len(chat([*told, (200, OK, {})], attempts=2)[1]) == 5
    with pytest.raises(EndpointError, match=r"HTTP 503.*2 tries"):
        chat([(503, {}, {})], attempts=2)
    with pytest.raises(EndpointError, match=r"HTTP 400"):  # what its words hold is no status
        chat([(400, {"error": {"message": "no", "code": 503}}, {}), (200, OK, {})], attempts=2)
    with pytest.raises(EndpointError, match="HTTP 429"):
        chat([(429, {}, {"Retry-After": "3600"})])  # longer than patience: not waited for


def test_retry_after_is_seconds_or_a_date() -> None:
    assert (_retry_after(None), _retry_after("7"), _retry_after("x"), _retry_after("-3")) == (
        0,
        7,
        0,
        0,
    )
    later = email.utils.formatdate(time.time() + 100, usegmt=True)
    assert 90 < _retry_after(later) <= 101
    patience = Patience(pause_s=1.0, longest_s=8.0)
    for tries in range(1, 50):
        assert 0.5 * min(2 ** (tries - 1), 8) <= patience.pause(tries, 0.0) <= 12
    assert patience.pause(1, 30.0) == 30.0


@pytest.mark.parametrize("said", TABLES["a_conversation_that_is_too_long_is_cut_and_not_broken"])
def test_a_conversation_that_is_too_long_is_cut_and_not_broken(said: str) -> None:
    full: list[Reply] = [(400, {"error": {"message": said}}, {})]
    with pytest.raises(ContextFull):
        chat(full)
    with pytest.raises(ContextFull):
        chat([(200, {"error": {"message": said}}, {})])

    async def go(engine: OpenAIEngine) -> Any:
        task = Task("t", "answer", "own", "train", [{"role": "user", "content": "q"}], {})
        return await chat_rollout([task], engine, Sampling(50), 1, 0)

    groups, seen = asked(full, go)
    found = groups[0][0]
    assert (found.stop, found.failure, found.answer().truncated) == ("length", None, True)
    assert len(seen) == 2  # with and without max_tokens; not tried again


def test_too_large_a_limit_gets_the_room_that_is_left() -> None:
    reply, seen = chat([(400, {"message": VLLM}, {}), (200, OK, {})])
    assert reply.text == "x"
    assert "max_tokens" in seen[0] and "max_tokens" not in seen[1]
    with pytest.raises(EndpointError, match=r"HTTP 400.*bad role"):
        chat([(400, {"message": "bad role"}, {})])


def test_cached_and_reasoning_tokens_are_kept() -> None:
    usage = {
        "prompt_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 8},
        "completion_tokens": 5,
        "completion_tokens_details": {"reasoning_tokens": 3, "audio": None},
    }
    reply, _ = chat([(200, OK | {"usage": usage}, {})])
    assert reply.usage == {
        "prompt_tokens": 9,
        "completion_tokens": 5,
        "cached_tokens": 8,
        "reasoning_tokens": 3,
    }


def test_a_native_call_without_a_name_is_a_bad_call_that_can_be_sent_back() -> None:
    calls = [
        {"id": "c1", "function": {"arguments": "{}"}},
        {"id": "c1", "function": {"name": "a b", "arguments": "{}"}},
        {"id": None},
        "odd",
    ]
    message = {"content": None, "tool_calls": calls}
    reply, _ = chat([(200, {"choices": [{"message": message}]}, {})])
    assert [bool(c.error) for c in reply.calls] == [True, False, True, True]
    talk = ChatConversation()
    talk.start(EpisodeStart([{"role": "user", "content": "q"}]))
    talk.hear(reply)
    talk.add([{"role": "tool", "content": str(i)} for i in range(4)])
    sent = talk.messages[1]["tool_calls"]
    assert [c["function"]["name"] for c in sent] == ["unknown", "a_b", "unknown", "unknown"]
    ids = [c["id"] for c in sent]
    assert len(set(ids)) == 4 and [m["tool_call_id"] for m in talk.messages[2:]] == ids


def test_the_cost_of_a_first_attempt_is_kept() -> None:
    class Breaks:
        turns = 0

        async def chat(self, messages: Any, tools: Any, sampling: Any, seed: int) -> ChatReply:
            Breaks.turns += 1
            if Breaks.turns == 2:
                raise OSError("gone")
            call = [ToolCall("t", id="c")] if Breaks.turns == 1 else []
            return ChatReply("x", call, "eos", {"completion_tokens": 4 + Breaks.turns})

    class Asks:
        def __init__(self, task: Task, sample: int, seed: int) -> None:
            self.task = task

        async def open(self) -> EpisodeStart:
            return EpisodeStart(self.task.prompt)

        async def reply(self, said: Any) -> Any:
            from rollouts.environment import Reply

            return Reply([{"role": "tool", "content": "r"}] if said.calls else [])

        async def close(self) -> Any:
            from rollouts.environment import EpisodeEnd

            return EpisodeEnd()

    task = Task("t", "answer", "own", "train", [{"role": "user", "content": "q"}], {}, ("t",))
    step = chat_rollout([task], Breaks(), Sampling(), 1, 0, maker=Asks)
    ((found,),) = asyncio.run(step)
    assert found.usage == {"completion_tokens": 7}
    assert found.notes["retried_usage"] == {"completion_tokens": 5}
