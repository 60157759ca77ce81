"""Any OpenAI-compatible chat endpoint as a `ChatEngine`: words and calls in and out, no ids.

Nothing can be trained on what it says (see `ChatEngine`); it serves evaluation and SFT data. A
request that fails for the endpoint's reasons is tried again (rewards/http_client.py), then
raises `EndpointError`, an `OSError`: the episode is then an infrastructure failure, not a wrong
answer. A conversation that the model cannot read any more ends as `length`.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from rewards.http_client import EndpointError, Patience, post_json
from rollouts.conversation import ChatReply, ContextFull
from rollouts.tools import ToolCall, call_format, make_call
from rollouts.trajectory import Sampling, Stop

__all__ = ["EndpointError", "OpenAIEngine"]

# how endpoints say that a conversation is longer than their model can read
_FULL = re.compile(
    r"context.?length|context.?window|context.?size|maximum model length|max_model_len"
    r"|prompt is too long|input.{0,40}(too long|exceeds)|reduce the length"
    r"|too large for model with|max_new_tokens. must be|maximum number of tokens",
    re.IGNORECASE,
)
_LIMITS = ("max_tokens", "max_completion_tokens")


class OpenAIEngine:
    """`POST {url}/chat/completions`. Use as `async with OpenAIEngine(url, model) as engine`.

    `url` ends where `/chat/completions` begins (usually in `/v1`). `in_flight` bounds requests
    side by side, `attempts` the tries of one, `timeout_s` one try, `patience_s` the waiting for an
    endpoint that says it is busy, or that fails. The key is read from the
    environment variable `key_env`, never from settings. `calls` names how calls are spelled in
    the text when the endpoint does not read them itself. `extra` is put into every request last:
    whatever else an endpoint takes, and None for what it refuses (`{"temperature": None}`).
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        key_env: str = "OPENAI_API_KEY",
        in_flight: int = 16,
        attempts: int = 5,
        timeout_s: float = 600.0,
        pause_s: float = 1.0,
        patience_s: float = 600.0,
        calls: str = "hermes",
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"endpoint {url!r}: give a URL that starts with http:// or https://")
        self.url, self.model = url.rstrip("/"), model
        self._key = os.environ.get(key_env, "")
        self._slots = asyncio.Semaphore(in_flight)
        self._timeout_s = timeout_s
        self._patience = Patience(attempts, patience_s, pause_s)
        self._calls = call_format(calls)
        self._extra = dict(extra or {})
        self._session: Any = None

    async def __aenter__(self) -> OpenAIEngine:
        import aiohttp

        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        self._session = aiohttp.ClientSession(
            headers=headers, timeout=aiohttp.ClientTimeout(total=self._timeout_s)
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        sampling: Sampling,
        seed: int,
    ) -> ChatReply:
        """One message. `top_k` goes along only when set: not every endpoint knows it; with
        `max_new_tokens=0` the endpoint's own bound holds."""
        body: dict[str, Any] = {
            "model": self.model,
            "messages": list(messages),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": seed % (1 << 31),
        }
        if sampling.max_new_tokens:
            body["max_tokens"] = sampling.max_new_tokens
        if sampling.top_k:
            body["top_k"] = sampling.top_k
        if tools:
            body["tools"] = list(tools)
        body = {k: v for k, v in (body | self._extra).items() if v is not None}
        async with self._slots:
            return self._reply(await self._post(body))

    async def _post(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Raises `EndpointError`, and `ContextFull` for a conversation that is too long. One that
        only leaves less room than `max_tokens` gets the room that is left."""
        url = f"{self.url}/chat/completions"
        try:
            return await post_json(self._session, url, body, self._patience)
        except EndpointError as error:
            if not _full(error):
                raise
        bare = {k: v for k, v in body.items() if k not in _LIMITS}
        try:
            if len(bare) < len(body):
                return await post_json(self._session, url, bare, self._patience)
        except EndpointError as error:
            if not _full(error):
                raise
        raise ContextFull

    def _reply(self, row: Mapping[str, Any]) -> ChatReply:
        try:
            choice = row["choices"][0]
            message = choice["message"]
            raw: list[Any] = message.get("tool_calls") or []
            text = str(message.get("content") or "")
            calls = [_native(call) for call in raw]
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise EndpointError(f"{self.url}: the answer holds no message ({error!r})") from None
        reason = choice.get("finish_reason")
        stop: Stop = "length" if reason == "length" else "eos"
        return ChatReply(text, calls or self._calls.read(text), stop, _usage(row.get("usage")))


def _full(error: EndpointError) -> bool:
    return error.status in (400, 413, 422) and bool(_FULL.search(error.body))


def _usage(counted: Any) -> dict[str, int]:
    """Token counts, with those of cached prompts and of reasoning where the endpoint tells."""
    if not isinstance(counted, dict):
        return {}
    row = cast("dict[str, Any]", counted)
    found = {k: v for k, v in row.items() if isinstance(v, int)}
    for place, name in (
        ("prompt_tokens_details", "cached_tokens"),
        ("completion_tokens_details", "reasoning_tokens"),
    ):
        details: Any = row.get(place)
        value: Any = cast("dict[str, Any]", details).get(name) if isinstance(details, dict) else 0
        if isinstance(value, int) and value:
            found[name] = value
    return found


def _native(call: Any) -> ToolCall:
    """A call as the endpoint read it; one without a name is a bad call."""
    row = cast("dict[str, Any]", call) if isinstance(call, dict) else {}
    function: Any = row.get("function")
    said = cast("dict[str, Any]", function) if isinstance(function, dict) else {}
    return make_call(said.get("name"), said.get("arguments"), str(row.get("id") or "call"))
