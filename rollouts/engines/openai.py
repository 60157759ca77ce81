"""Any OpenAI-compatible chat endpoint as a `ChatEngine`: words and calls in and out, no ids.

Nothing can be trained on what it says (see `ChatEngine`); it serves evaluation and SFT data. A
request that fails for the endpoint's reasons is tried again with growing pauses, then raises
`EndpointError`, an `OSError`: the episode is then an infrastructure failure, not a wrong answer.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Any, cast

from rollouts.conversation import ChatReply
from rollouts.tools import ToolCall, call_format, make_call
from rollouts.trajectory import Sampling, Stop

_AGAIN = (408, 409, 425, 429, 500, 502, 503, 504)


class EndpointError(OSError):
    """The endpoint could not be had, or refused; the message says what it said."""


class OpenAIEngine:
    """`POST {url}/chat/completions`. Use as `async with OpenAIEngine(url, model) as engine`.

    `url` ends where `/chat/completions` begins (usually in `/v1`). `in_flight` bounds requests
    side by side, `attempts` the tries of one, `timeout_s` one try. The key is read from the
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
        calls: str = "hermes",
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"endpoint {url!r}: give a URL that starts with http:// or https://")
        self.url, self.model = url.rstrip("/"), model
        self._key = os.environ.get(key_env, "")
        self._slots = asyncio.Semaphore(in_flight)
        self._attempts, self._timeout_s, self._pause_s = attempts, timeout_s, pause_s
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
        import aiohttp

        why = ""
        for attempt in range(self._attempts):
            if attempt:
                await asyncio.sleep(self._pause_s * 2 ** (attempt - 1))
            try:
                async with self._session.post(f"{self.url}/chat/completions", json=body) as answer:
                    text = await answer.text()
                    if answer.status == 200:
                        return cast("Mapping[str, Any]", await answer.json(content_type=None))
                    why = f"HTTP {answer.status}: {text[:300]}"
                    if answer.status not in _AGAIN:
                        break
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                why = f"{type(error).__name__}: {error}"
        raise EndpointError(f"{self.url}: {why}")

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
        counted = cast("dict[str, Any]", row.get("usage") or {})
        usage = {k: v for k, v in counted.items() if isinstance(v, int)}
        return ChatReply(text, calls or self._calls.read(text), stop, usage)


def _native(call: Any) -> ToolCall:
    function = call["function"]
    return make_call(function.get("name"), function.get("arguments"), str(call.get("id") or "call"))
