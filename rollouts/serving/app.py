"""The HTTP side: routes, the key, errors as clients expect them."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections.abc import AsyncIterator, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from assay.seeds import derive_seed
from rollouts.prompts import ChatTokenizer
from rollouts.serving.asked import Asked, Limits, read_chat, read_completion
from rollouts.serving.batches import Batches, Full
from rollouts.serving.refused import RequestError
from rollouts.serving.replies import Head, Row, chat_reply, chunks, completion_reply
from rollouts.trajectory import Completion

if TYPE_CHECKING:
    from aiohttp import web

MOST_BYTES = 64 << 20  # of a request's body
BUSY_S = 5  # what a client is told to wait when the queue is full


class Service:
    """What the routes share. `key` empty: anybody may ask."""

    def __init__(
        self, batches: Batches, tokenizer: ChatTokenizer, limits: Limits, key: str, seed: int
    ) -> None:
        self.batches, self.tokenizer, self.limits = batches, tokenizer, limits
        self._key, self._seed, self._numbers = key, seed, count(1)

    def app(self) -> web.Application:
        """The application, to be run by aiohttp."""
        from aiohttp import web

        async def running(_: web.Application) -> AsyncIterator[None]:
            async with self.batches:
                yield

        made = web.Application(middlewares=[_errors(self._key)], client_max_size=MOST_BYTES)
        made.cleanup_ctx.append(running)
        made.router.add_get("/health", self._health)
        made.router.add_get("/version", self._version)
        made.router.add_get("/v1/models", self._models)
        made.router.add_post("/v1/chat/completions", self._chat)
        made.router.add_post("/v1/completions", self._completions)
        return made

    async def _health(self, _: web.Request) -> web.Response:
        from aiohttp import web

        return web.json_response({"status": "ok"})

    async def _version(self, _: web.Request) -> web.Response:
        from importlib import metadata

        from aiohttp import web

        return web.json_response({"version": metadata.version("assay")})

    async def _models(self, _: web.Request) -> web.Response:
        from aiohttp import web

        row = {
            "id": self.limits.name,
            "object": "model",
            "created": 0,
            "owned_by": "assay",
            "max_model_len": self.limits.context,
        }
        return web.json_response({"object": "list", "data": [row]})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        asked = read_chat(await _body(request), self.tokenizer, self.limits)
        head, groups = await self._answer("chatcmpl", [asked])
        reply = chat_reply(head, asked, groups[0], self.tokenizer)
        return await _send(request, reply, asked)

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        asked = read_completion(await _body(request), self.tokenizer, self.limits)
        head, groups = await self._answer("cmpl", asked)
        return await _send(request, completion_reply(head, asked, groups, self.tokenizer), asked[0])

    async def _answer(
        self, kind: str, asked: Sequence[Asked]
    ) -> tuple[Head, list[list[Completion]]]:
        """A request without a seed draws by its number since the server started."""
        number = next(self._numbers)
        seeds = [
            derive_seed(self._seed, "request", number, i) if one.seed is None else one.seed
            for i, one in enumerate(asked)
        ]
        groups = await asyncio.gather(
            *(
                self.batches.ask(one.ids, one.sampling, one.n, seed)
                for one, seed in zip(asked, seeds, strict=True)
            )
        )
        return Head(f"{kind}-{number}", self.limits.name, int(time.time())), groups


def _errors(key: str) -> Any:
    """Every failure as the protocol's error object; the engine's own is a 500 of one line."""
    from aiohttp import web

    @web.middleware
    async def handle(request: web.Request, handler: Any) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").removeprefix("Bearer ").encode()
        if key and request.path != "/health" and not hmac.compare_digest(given, key.encode()):
            return _failed(401, "wanted the server's key as a bearer token", "invalid_api_key")
        try:
            return await handler(request)
        except RequestError as error:
            return _failed(error.status, str(error), error.code, error.field)
        except Full:
            reply = _failed(429, "too many requests wait; try again later", "busy")
            reply.headers["Retry-After"] = str(BUSY_S)
            return reply
        except web.HTTPException as error:
            return _failed(error.status, error.reason, "")
        except Exception as error:
            return _failed(500, f"{type(error).__name__}: {error}", "engine_failed")

    return handle


def _failed(status: int, said: str, code: str, field: str = "") -> web.Response:
    from aiohttp import web

    kind = "invalid_request_error" if status < 500 else "server_error"
    row: Row = {"message": said, "type": kind, "param": field or None, "code": code or None}
    return web.json_response({"error": row}, status=status)


async def _body(request: web.Request) -> Any:
    try:
        return json.loads(await request.read())
    except (ValueError, RecursionError):
        raise RequestError("the body is no JSON") from None


async def _send(request: web.Request, reply: Row, asked: Asked) -> web.StreamResponse:
    from aiohttp import web

    if not asked.stream:
        return web.json_response(reply)
    stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await stream.prepare(request)
    for chunk in chunks(reply, asked.usage_chunk):
        await stream.write(chunk)
    await stream.write_eof()
    return stream
