"""`assay serve`: routes, the key, errors as clients expect them, and the engine's queue."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from assay.seeds import derive_seed
from rollouts.engines.engine import Engine
from rollouts.event_loop import asyncio_run
from rollouts.openai_server import (
    Limits,
    Request,
    RequestError,
    Row,
    chunks,
    read_chat,
    read_completion,
    reply,
)
from rollouts.prompts import ChatTokenizer
from rollouts.trajectory import Completion, Sampling

if TYPE_CHECKING:
    from aiohttp import web

MOST_BYTES = 64 << 20  # of a request's body
BUSY_S = 5  # what a client is told to wait when the queue is full
GATHER_S = 0.005  # clients that ask side by side are a few milliseconds apart


class _Job(NamedTuple):
    ids: Sequence[int]
    sampling: Sampling
    n: int
    seed: int
    done: asyncio.Future[list[Completion]]


class Batches:
    """Requests that wait together are answered together.

    `rows` bounds the samples of one call of the engine, `waiting` the requests in the queue.
    Requests of equal sampling settings share a call; what a request draws depends on its own seed
    alone."""

    def __init__(self, engine: Engine, rows: int, waiting: int) -> None:
        self._engine, self._rows, self._most = engine, rows, waiting
        self._queue: list[_Job] = []
        self._free = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, "engine")
        self.calls = 0  # of the engine, so far

    @property
    def waiting(self) -> int:
        """Requests in the queue now."""
        return len(self._queue)

    async def ask(
        self, ids: Sequence[int], sampling: Sampling, n: int, seed: int
    ) -> list[Completion]:
        """`n` completions of one prompt. Raises `RequestError` when the queue is full; whatever the
        engine raises comes here."""
        if len(self._queue) >= self._most:
            raise RequestError("too many requests wait; try again later", "", 429, "busy")
        job = _Job(ids, sampling, n, seed, asyncio.get_running_loop().create_future())
        self._queue.append(job)
        await asyncio.sleep(GATHER_S)
        while not job.done.done():
            async with self._free:
                if not job.done.done():
                    await self._answer(self._next())
        return job.done.result()

    def _next(self) -> list[_Job]:
        """The oldest request and those that can go with it."""
        first = self._queue[0]
        alike = [j for j in self._queue if (j.sampling, j.n) == (first.sampling, first.n)]
        taken = alike[: max(1, self._rows // first.n)]
        self._queue = [job for job in self._queue if job not in taken]
        return taken

    async def _answer(self, jobs: Sequence[_Job]) -> None:
        first, self.calls = jobs[0], self.calls + 1
        prompts, seeds = [job.ids for job in jobs], [job.seed for job in jobs]

        def work() -> list[list[Completion]]:
            return asyncio_run(self._engine.generate(prompts, first.sampling, first.n, seeds))

        try:
            found = await asyncio.get_running_loop().run_in_executor(self._thread, work)
            for job, group in zip(jobs, found, strict=True):
                job.done.set_result(group)
        except Exception as error:
            for job in jobs:
                job.done.set_exception(error)
        finally:
            for job in jobs:  # the server ends
                job.done.cancel()


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

        made = web.Application(middlewares=[_errors(self._key)], client_max_size=MOST_BYTES)
        about = {"id": self.limits.name, "object": "model", "created": 0, "owned_by": "assay"}
        about["max_model_len"] = self.limits.context
        told: Mapping[str, Row] = {
            "/health": {"status": "ok"},
            "/version": {"version": metadata.version("assay")},
            "/v1/models": {"object": "list", "data": [about]},
        }

        async def tell(request: web.Request) -> web.Response:
            return web.json_response(told[request.path])

        for path in told:
            made.router.add_get(path, tell)
        made.router.add_post("/v1/chat/completions", self._chat)
        made.router.add_post("/v1/completions", self._completions)
        return made

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        asked = [read_chat(await _body(request), self.tokenizer, self.limits)]
        return await self._answer(request, asked, "chatcmpl", "chat.completion")

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        asked = read_completion(await _body(request), self.tokenizer, self.limits)
        return await self._answer(request, asked, "cmpl", "text_completion")

    async def _answer(
        self, request: web.Request, asked: Sequence[Request], name: str, kind: str
    ) -> web.StreamResponse:
        """A request without a seed draws by its number since the server started."""
        from aiohttp import web

        number = next(self._numbers)
        waits: list[Any] = []
        for i, one in enumerate(asked):
            own = derive_seed(self._seed, "request", number, i) if one.seed is None else one.seed
            waits.append(self.batches.ask(one.ids, one.sampling, one.n, own))
        groups = await asyncio.gather(*waits)
        head: Row = {"id": f"{name}-{number}", "object": kind, "created": int(time.time())}
        whole = reply(head | {"model": self.limits.name}, asked, groups, self.tokenizer)
        if not asked[0].stream:
            return web.json_response(whole)
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        for chunk in chunks(whole, asked[0].usage_chunk):
            await stream.write(chunk)
        await stream.write_eof()
        return stream


async def _body(request: web.Request) -> Any:
    try:
        return json.loads(await request.read())
    except (ValueError, RecursionError):
        raise RequestError("the body is no JSON") from None


def _errors(key: str) -> Any:
    """Every failure as the protocol's error object; the engine's own is a 500 of one line."""
    from aiohttp import web

    def failed(status: int, said: str, code: str, field: str = "") -> web.Response:
        kind = "invalid_request_error" if status < 500 else "server_error"
        row: Row = {"message": said, "type": kind, "param": field or None, "code": code or None}
        headers = {"Retry-After": str(BUSY_S)} if status == 429 else {}
        return web.json_response({"error": row}, status=status, headers=headers)

    @web.middleware
    async def handle(request: web.Request, handler: Any) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").removeprefix("Bearer ").encode()
        if key and request.path != "/health" and not hmac.compare_digest(given, key.encode()):
            return failed(401, "wanted the server's key as a bearer token", "invalid_api_key")
        try:
            return await handler(request)
        except RequestError as error:
            return failed(error.status, str(error), error.code, error.field)
        except web.HTTPException as error:
            return failed(error.status, error.reason, "")
        except Exception as error:
            return failed(500, f"{type(error).__name__}: {error}", "engine_failed")

    return handle
