"""An `Engine` over one or more servers of the same model: token ids in, token ids out.

What a server drew is kept as it is, never decoded and encoded again. A request that fails for the
server's reasons is tried again (rewards/http_client.py) and then raises `EndpointError`: the
episode is an infrastructure failure, not a wrong answer.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rewards.http_client import EndpointError, Patience, post_json
from rewards.seeds import derive_seed
from rollouts.engines.dialects import WORDS, AnswerError
from rollouts.trajectory import Completion, Sampling


class ServerEngine:
    """Use as `async with ServerEngine(["http://…"], "vllm", model, stop_ids) as engine`.

    Addresses end before `/v1`; a request goes to the server that has the fewest. `in_flight` bounds
    the requests at one server. `length` is the longest sequence they read, and `version` the
    server's (empty where it tells none), both asked of the first.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        kind: str,
        model: str,
        stop_ids: Sequence[int],
        *,
        key_env: str = "OPENAI_API_KEY",
        in_flight: int = 64,
        timeout_s: float = 3600.0,
        patience: Patience | None = None,
    ) -> None:
        self._words, self._model = WORDS[kind], model
        self._addresses = [url.rstrip("/").removesuffix("/v1") for url in addresses]
        self._stops = list(stop_ids)
        self._key = os.environ.get(key_env, "")
        self._slots = {url: asyncio.Semaphore(in_flight) for url in self._addresses}
        self._busy = dict.fromkeys(self._addresses, 0)
        self._timeout_s, self._patience = timeout_s, patience or Patience()
        self._session: Any = None
        self.length, self.version = 0, ""

    async def __aenter__(self) -> ServerEngine:
        import aiohttp

        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        self._session = aiohttp.ClientSession(
            headers=headers, timeout=aiohttp.ClientTimeout(total=self._timeout_s)
        )
        url = self._addresses[0] + self._words.about
        try:
            async with self._session.get(url) as answer:
                self.length = self._words.length(await answer.json(content_type=None))
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            await self._session.close()
            raise EndpointError(f"{url}: {type(error).__name__}: {error}") from None
        self.version = await self._told_version()
        return self

    async def _told_version(self) -> str:
        import aiohttp

        try:
            async with self._session.get(self._addresses[0] + self._words.version) as answer:
                told: Any = await answer.json(content_type=None)
            return str(told["version"])
        except (aiohttp.ClientError, TimeoutError, ValueError, TypeError, LookupError):
            return ""  # behind a proxy, say: nothing depends on it

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def complete(self, ids: Sequence[int], sampling: Sampling, seed: int) -> Completion:
        """One completion; with `length` known, no longer than the server's model reads."""
        if self.length:
            room = self.length - len(ids)
            if room < 1:
                return Completion([], [], [], "length")
            most = min(sampling.max_new_tokens or room, room)
            sampling = replace(sampling, max_new_tokens=most)
        body = self._words.ask(self._model, ids, sampling, seed, self._stops)
        url = min(self._addresses, key=lambda one: self._busy[one])
        self._busy[url] += 1
        try:
            async with self._slots[url]:
                row = await post_json(self._session, url + self._words.path, body, self._patience)
        finally:
            self._busy[url] -= 1
        try:
            return self._words.read(row, sampling)
        except (AnswerError, TypeError, LookupError) as error:
            raise EndpointError(f"{url}: no answer of token ids: {error}") from None

    async def generate(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, n: int, seeds: Sequence[int]
    ) -> list[list[Completion]]:
        """`n` completions a prompt; sample j of prompt i asks with a seed from (seeds[i], j)."""
        found = await asyncio.gather(
            *(
                self.complete(ids, sampling, derive_seed(seed, "sample", j))
                for ids, seed in zip(prompts, seeds, strict=True)
                for j in range(n)
            )
        )
        return [list(found[k * n : (k + 1) * n]) for k in range(len(prompts))]
