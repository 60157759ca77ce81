"""The chat endpoint engine against a local stub server over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("aiohttp")
from aiohttp import web

from rollouts.engines.http_engine import EndpointError, OpenAIEngine
from rollouts.trajectory import Sampling

SAMPLING = Sampling(max_new_tokens=50, temperature=0.7, top_p=0.8, top_k=20)
ASK = [{"role": "user", "content": "hi"}]


def answer(message: dict[str, Any], reason: str = "stop") -> dict[str, Any]:
    return {
        "choices": [{"message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 4, "details": {}},
    }


async def serve_and_ask(replies: list[Any], tools: list[Any], **options: Any) -> tuple[Any, list]:
    """Each request takes the next reply (a number is an HTTP status, the last one stays)."""
    seen: list[dict[str, Any]] = []

    async def handle(request: web.Request) -> web.Response:
        seen.append({**(await request.json()), "auth": request.headers.get("Authorization")})
        reply = replies[min(len(seen), len(replies)) - 1]
        return (
            web.Response(status=reply, text="no")
            if isinstance(reply, int)
            else (web.json_response(reply))
        )

    app = web.Application()
    app.router.add_post("/v1/chat/completions", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
    try:
        url = f"http://127.0.0.1:{port}/v1/"
        async with OpenAIEngine(url, "m", pause_s=0.001, **options) as engine:
            return await engine.chat(ASK, tools, SAMPLING, 1 << 40), seen
    finally:
        await runner.cleanup()


def test_words_and_settings_go_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "abc")
    reply, seen = asyncio.run(
        serve_and_ask([answer({"content": "hey"})], [{"type": "function"}], key_env="MY_KEY")
    )
    assert (reply.text, reply.calls, reply.stop) == ("hey", [], "eos")
    assert reply.usage == {"prompt_tokens": 9, "completion_tokens": 4}
    body = seen[0]
    assert (body["top_k"], body["top_p"], body["max_tokens"]) == (20, 0.8, 50)
    assert body["auth"] == "Bearer abc" and 0 <= body["seed"] < 1 << 31 and body["tools"]


def test_native_calls_and_spelled_ones_are_both_read() -> None:
    native = {
        "content": None,
        "tool_calls": [
            {"id": "c1", "function": {"name": "t", "arguments": '{"a": 1}'}},
            {"id": "c2", "function": {"name": "t", "arguments": "{a"}},
        ],
    }
    reply, _ = asyncio.run(serve_and_ask([answer(native, "tool_calls")], []))
    assert [(c.id, c.arguments) for c in reply.calls] == [("c1", {"a": 1}), ("c2", {})]
    assert "not valid JSON" in reply.calls[1].error
    text = '<tool_call>\n{"name": "t", "arguments": {}}\n</tool_call>'
    reply, _ = asyncio.run(serve_and_ask([answer({"content": text}, "length")], []))
    assert reply.calls[0].name == "t" and reply.stop == "length"


def test_busy_servers_are_asked_again_and_refusals_are_not() -> None:
    reply, seen = asyncio.run(serve_and_ask([503, 429, answer({"content": "x"})], []))
    assert reply.text == "x" and len(seen) == 3
    with pytest.raises(EndpointError, match="HTTP 401"):
        asyncio.run(serve_and_ask([401], []))
    with pytest.raises(EndpointError, match="HTTP 500"):
        asyncio.run(serve_and_ask([500], [], attempts=2))
    with pytest.raises(EndpointError, match="holds no message"):
        asyncio.run(serve_and_ask([{"choices": []}], []))
    with pytest.raises(ValueError, match="http://"):
        OpenAIEngine("localhost:1", "m")
