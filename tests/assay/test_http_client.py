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
from rollouts.conversation import ChatReply, ContextFull
from rollouts.engines.http_engine import EndpointError, OpenAIEngine
from rollouts.sampler import tokens_of
from rollouts.trajectory import Sampling, Trajectory, retried

TABLES = tables("assay")

Reply = tuple[int, Any, dict[str, str]]
OK = {"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]}


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
    assert [_retry_after(said) for said in (None, "7", "x", "-3")] == [0, 7, 0, 0]
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


def test_cached_and_reasoning_tokens_are_kept() -> None:
    usage: dict[str, Any] = {"prompt_tokens": 9, "completion_tokens": 5}
    more = {"cached_tokens": 8}, {"reasoning_tokens": 3, "audio": None}
    told = {f"{name}_details": row for name, row in zip(usage, more, strict=True)}
    reply, _ = chat([(200, OK | {"usage": usage | told}, {})])
    assert reply.usage == usage | {"cached_tokens": 8, "reasoning_tokens": 3}


def test_the_cost_of_a_first_attempt_is_kept() -> None:
    ids: list[Any] = []
    broken = Trajectory("t", 0, *[ids] * 4, "eos", "", 1, usage={"completion_tokens": 5})
    second = Trajectory("t", 0, *[ids] * 4, "eos", "", 1, usage={"completion_tokens": 7})
    assert tokens_of(retried(broken, second))[1] == 12
