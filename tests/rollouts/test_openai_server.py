"""The endpoint over a real (tiny) model: what clients are told, and what the engine drew."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from places import tables

pytest.importorskip("aiohttp")
import aiohttp
from aiohttp import web

from rollouts.engines.torch.engine import TorchEngine
from rollouts.engines.torch.load import load_llama
from rollouts.openai_server import Batches, Limits, Service
from rollouts.prompts import ChatTokenizer
from rollouts.trajectory import Completion, Sampling

CASES = tables("rollouts")

ASK = [{"role": "user", "content": "Say the number 7."}]
Asker = Callable[..., Awaitable[tuple[int, Any]]]


@pytest.fixture(scope="module")
def model(tiny_folder: Path) -> tuple[TorchEngine, ChatTokenizer]:
    tokenizer = ChatTokenizer(tiny_folder)
    return TorchEngine(load_llama(tiny_folder, "float32"), tokenizer.stop_ids), tokenizer


@asynccontextmanager
async def serving(
    engine: Any, tokenizer: ChatTokenizer, key: str = "", context: int = 200
) -> AsyncIterator[tuple[str, Asker, Batches]]:
    """(URL up to /v1, how to post, the queue)."""
    batches = Batches(engine, 8, 100)
    runner = web.AppRunner(Service(batches, tokenizer, Limits("tiny", context), key, 0).app())
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/v1"  # type: ignore[union-attr]
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with aiohttp.ClientSession(headers=headers) as session:

        async def post(path: str, body: Any) -> tuple[int, Any]:
            async with session.post(url + path, json=body) as reply:
                text = await reply.text()
                stream = text.startswith("data: ")
                return reply.status, text if stream else json.loads(text)

        yield url, post, batches
    await runner.cleanup()


def replies(engine: Any, tokenizer: ChatTokenizer, asked: Sequence[tuple[str, Any]]) -> list[Any]:
    """(status, reply) of requests one after the other."""

    async def ask() -> list[Any]:
        async with serving(engine, tokenizer) as (_, post, _b):
            return [await post(path, body) for path, body in asked]

    return asyncio.run(ask())


def test_greedy_answers_are_the_engines_own(model: tuple[TorchEngine, ChatTokenizer]) -> None:
    """In chats, completions and streams."""
    engine, tokenizer = model
    ids = tokenizer.prompt(ASK)
    ((own,),) = engine.generate_now([ids], Sampling(12, 0.0), 1, [0])
    body = {"temperature": 0, "max_tokens": 12, "return_token_ids": True}
    asked: list[Any] = [("/chat/completions", {"messages": ASK, "logprobs": True, **body})]
    more = {"stream": True, "stream_options": {"include_usage": True}}
    asked += [(asked[0][0], asked[0][1] | more)]
    asked += [("/completions", {"prompt": ids, "logprobs": 1, **body})]
    (_, chat), (_, stream), (_, plain) = replies(engine, tokenizer, asked)
    one, two = chat["choices"][0], plain["choices"][0]
    assert one["token_ids"] == two["token_ids"] == own.ids and one["prompt_token_ids"] == ids
    text = tokenizer.text(own.ids)
    assert one["message"]["content"] == two["text"] == text
    assert [t["logprob"] for t in one["logprobs"]["content"]] == pytest.approx(own.logprobs, 1e-4)
    assert two["logprobs"]["token_logprobs"] == pytest.approx(own.logprobs, 1e-4)
    used = (chat["usage"]["prompt_tokens"], chat["usage"]["completion_tokens"])
    assert used == (len(ids), len(own.ids))
    assert one["finish_reason"] == ("length" if own.stop == "length" else "stop")
    *events, done = [line.removeprefix("data: ") for line in stream.split("\n\n") if line]
    rows = [json.loads(event) for event in events]
    assert "".join(c["delta"].get("content", "") for r in rows for c in r["choices"]) == text
    assert rows[-2]["choices"][0]["finish_reason"] == one["finish_reason"]
    assert rows[-1]["usage"] == chat["usage"] and done == "[DONE]"


def test_a_seed_fixes_what_is_drawn_and_neighbours_do_not_matter(
    model: tuple[TorchEngine, ChatTokenizer],
) -> None:
    async def ask() -> tuple[list[Any], int]:
        async with serving(*model) as (_, post, batches):
            path, body = "/chat/completions", {"max_tokens": 16, "n": 2}
            mine = body | {"messages": ASK, "seed": 11}
            alone = [(await post(path, mine))[1] for _ in range(2)]
            before = batches.calls
            others = [body | {"messages": [{"role": "user", "content": i}]} for i in "123"]
            beside = await asyncio.gather(*(post(path, b) for b in [*others, mine]))
            return [*alone, beside[-1][1]], batches.calls - before

    found, calls = asyncio.run(ask())
    one, again, beside = ([c["message"]["content"] for c in r["choices"]] for r in found)
    assert one == again == beside and one[0] != one[1]
    assert calls < 4  # they shared a call of the engine


TALK = "one two three"


class Scripted:
    """Says what it is told to, as the ids of the tiny tokenizer."""

    def __init__(self, tokenizer: ChatTokenizer, text: str) -> None:
        self._ids = tokenizer.answer(text)
        self.asked: list[Sequence[int]] = []

    def generate_now(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, n: int, seeds: Sequence[int]
    ) -> list[list[Completion]]:
        self.asked += prompts
        zeros = [0.0] * len(self._ids)
        return [[Completion(self._ids, zeros, zeros, "eos")] * n for _ in prompts]


PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}}}
TOOL = {"type": "function", "function": {"name": "add", "parameters": PARAMETERS}}
CALL = 'Let me see.\n<tool_call>\n{"name": "add", "arguments": {"a": 3}}\n</tool_call>'


@pytest.mark.parametrize(
    ("stop", "text", "ids"),
    [([" three", " two"], "one", "one"), (["tw"], "one ", "one "), (["four"], TALK, None)],
)
def test_text_ids_and_usage_end_at_a_stop_text(
    model: tuple[TorchEngine, ChatTokenizer], stop: list[str], text: str, ids: str | None
) -> None:
    tokenizer = model[1]
    body = {"stop": stop, "logprobs": True, "return_token_ids": True}
    asked = [("/completions", {"prompt": "x", **body, "logprobs": 1})]
    asked += [("/chat/completions", {"messages": ASK, **body})]
    wanted = tokenizer.answer(TALK) if ids is None else tokenizer.answer(ids)[:-1]
    for _, reply in replies(Scripted(tokenizer, TALK), tokenizer, asked):
        (choice,) = reply["choices"]
        assert choice["token_ids"] == wanted and choice["finish_reason"] == "stop"
        assert reply["usage"]["completion_tokens"] == len(wanted)
        assert choice.get("text", choice.get("message", {}).get("content")) == text
        logprobs = choice["logprobs"]
        assert len(logprobs.get("tokens") or logprobs["content"]) == len(wanted)


WRONG: list[tuple[str, Any, int, str]] = CASES["requests that are refused"]


def test_what_cannot_be_done_is_refused_by_name(model: tuple[TorchEngine, ChatTokenizer]) -> None:
    found = replies(*model, [(path, body) for path, body, _, _ in WRONG])
    for (path, body, status, words), (got, reply) in zip(WRONG, found, strict=True):
        assert got == status, (path, body, reply)
        assert words in reply["error"]["message"]


def test_the_key_is_asked_for(model: tuple[TorchEngine, ChatTokenizer]) -> None:
    async def ask() -> list[int]:
        async with serving(*model, key="s3cret") as (url, post, _b):
            with_key, _ = await post("/chat/completions", {"messages": ASK, "max_tokens": 1})
            async with aiohttp.ClientSession() as stranger:
                refused = await stranger.get(f"{url}/models")
                health = await stranger.get(url.removesuffix("/v1") + "/health")
                return [with_key, refused.status, health.status]

    assert asyncio.run(ask()) == [200, 401, 200]


def test_an_engine_that_fails_is_the_servers(model: tuple[TorchEngine, ChatTokenizer]) -> None:
    class Broken:
        def generate_now(self, *_: Any) -> Any:
            raise RuntimeError("out of memory")

    ((status, reply),) = replies(Broken(), model[1], [("/completions", {"prompt": "x"})])
    assert (status, reply["error"]["message"]) == (500, "RuntimeError: out of memory")


def test_the_official_client_reads_every_answer(model: tuple[TorchEngine, ChatTokenizer]) -> None:
    openai = pytest.importorskip("openai")
    engine = Scripted(model[1], CALL)

    async def ask() -> None:
        async with serving(engine, model[1], key="k", context=4000) as (url, _, _b):
            client = openai.AsyncOpenAI(base_url=url, api_key="k", max_retries=0)
            chat = client.chat.completions
            whole = await chat.create(model="tiny", messages=ASK, tools=[TOOL])
            choice = whole.choices[0]
            assert (choice.message.content, choice.finish_reason) == ("Let me see.", "tool_calls")
            assert choice.message.tool_calls[0].function.arguments == '{"a": 3}'
            again = [*ASK, choice.message.model_dump(exclude_none=True)]
            again.append({"role": "tool", "content": "4", "tool_call_id": "x"})
            stream = await chat.create(model="tiny", messages=again, stream=True)
            parts = [chunk.choices[0].delta.content or "" async for chunk in stream]
            assert "".join(parts) == CALL
            said = [model[1].raw(ids) for ids in engine.asked]
            assert '"name": "add"' in said[0]  # the schema
            assert CALL.partition("\n")[2] in said[1] and "<tool_response>\n4\n" in said[1]
            plain = await client.completions.create(model="tiny", prompt=["a", "b"], logprobs=1)
            assert [c.index for c in plain.choices] == [0, 1]
            assert [m.id for m in (await client.models.list()).data] == ["tiny"]
            with pytest.raises(openai.BadRequestError, match="maximum context length"):
                await chat.create(model="tiny", messages=ASK, max_tokens=9999)
            await client.close()

    asyncio.run(ask())
