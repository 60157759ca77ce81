"""An OpenAI-compatible endpoint that is asked while tasks are built, and a journal of its answers.

The endpoint proposes; the builder decides, without a model. What was said is journalled by the hash
of the request, so that the same requests over the same journal give the same bytes and ask nobody.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.errors import install_extra
from assay.journal import append_rows, read_journal, rewrite_journal
from assay.task import TaskError
from assay.thoughts import answer_after_thoughts
from rollouts.conversation import ContextFull
from rollouts.engines.http_engine import EndpointError, OpenAIEngine
from rollouts.event_loop import asyncio_run
from rollouts.trajectory import Sampling

FILE = "rewordings.jsonl"  # the journal beside a build
SAMPLING = Sampling(max_new_tokens=4000, temperature=0.8)
GREEDY = Sampling(max_new_tokens=4000, temperature=0.0)  # to read something, and not to write it

Request = tuple[str, int]  # (prompt, seed)
Reply = Mapping[str, str]  # request, model, text, stop


@dataclass
class Endpoint:
    """An endpoint, and what it has said. `url` ends before `/chat/completions`; the key is read
    from the environment variable `key_env`; `journal` is a file beside the output; `role` is what
    messages call it."""

    url: str
    model: str
    journal: Path
    key_env: str = "OPENAI_API_KEY"
    in_flight: int = 8
    attempts: int = 5  # of one request that fails
    timeout_s: float = 300.0  # of one request
    pause_s: float = 1.0  # before the second try
    patience_s: float = 600.0  # of waiting for an endpoint that says it is busy
    role: str = "writer"
    known: dict[str, Reply] = field(default_factory=dict[str, Reply])
    asked: int = 0  # requests that the journal did not answer
    order: list[str] = field(default_factory=list[str])  # of the requests so far

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise TaskError(
                f"{self.role} {self.url!r}: give a URL that starts with http:// or https://"
            )
        if not self.model:
            raise TaskError(f"{self.role} {self.url}: name the model that it shall use")
        if importlib.util.find_spec("aiohttp") is None:
            raise TaskError(f"asking an endpoint needs aiohttp: {install_extra('client')}")
        self.known |= self._journalled()

    def _journalled(self) -> dict[str, Reply]:
        found: dict[str, Reply] = {}
        for number, row in enumerate(read_journal(self.journal), 1):
            if not all(isinstance(row.get(key), str) for key in ("request", "text", "stop")):
                raise TaskError(
                    f"{self.journal} line {number}: no journalled reply (request, text, stop); "
                    "remove the line, or the file, and it is asked again"
                )
            found[row["request"]] = row
        return found

    def name(self, prompt: str, seed: int, sampling: Sampling = SAMPLING) -> str:
        """The hash of a request: of everything that decides the reply, and not of where it went."""
        body = [self.model, prompt, sampling.temperature, sampling.max_new_tokens, seed]
        text = json.dumps(body, ensure_ascii=True)
        return hashlib.sha256(text.encode("ascii")).hexdigest()

    def keep(self, row: Reply) -> None:
        self.known[row["request"]] = row
        self.asked += 1
        append_rows(self.journal, [row])

    def settle(self) -> None:
        """The journal in the order of the requests, then what others asked over it, by hash: which
        reply came first does not show."""
        self.known = self._journalled() | self.known
        order = list(dict.fromkeys([*self.order, *sorted(self.known)]))
        rewrite_journal(self.journal, (self.known[name] for name in order))


def answers(
    endpoint: Endpoint,
    requests: Sequence[Request],
    advance: Callable[[int], Any] = lambda _: None,
    sampling: Sampling = SAMPLING,
) -> list[Reply]:
    """The reply to each request, several side by side, in the order of the requests.

    Raises `TaskError` when the endpoint cannot be had; what it said until then is in the journal.
    """
    names = [endpoint.name(*request, sampling) for request in requests]
    missing = {n: r for n, r in zip(names, requests, strict=True) if n not in endpoint.known}
    advance(len(names) - len(missing))
    if missing:
        asyncio_run(_ask(endpoint, missing, advance, sampling))
    if names:
        endpoint.order += names
        endpoint.settle()
    return [endpoint.known[name] for name in names]


def said(reply: Reply) -> str:
    """The text of a reply without what a model thought before it."""
    return answer_after_thoughts(reply["text"]).strip()


async def _ask(
    endpoint: Endpoint,
    missing: Mapping[str, Request],
    advance: Callable[[int], Any],
    sampling: Sampling,
) -> None:
    engine = OpenAIEngine(
        endpoint.url,
        endpoint.model,
        key_env=endpoint.key_env,
        in_flight=endpoint.in_flight,
        attempts=endpoint.attempts,
        timeout_s=endpoint.timeout_s,
        pause_s=endpoint.pause_s,
        patience_s=endpoint.patience_s,
    )

    async def one(name: str, prompt: str, seed: int) -> None:
        try:
            reply = await engine.chat([{"role": "user", "content": prompt}], (), sampling, seed)
            text, stop = reply.text, str(reply.stop)
        except ContextFull:
            text, stop = "", "length"
        except EndpointError as error:
            if "no_answer" not in error.notes:
                raise
            text, stop = "", str(error.notes["no_answer"])  # it would be so again
        endpoint.keep({"request": name, "model": endpoint.model, "text": text, "stop": stop})
        advance(1)

    async with engine:
        waiting = [asyncio.create_task(one(name, *asked)) for name, asked in missing.items()]
        try:
            await asyncio.gather(*waiting)
        except EndpointError as error:
            raise TaskError(
                f"the {endpoint.role} gave no answer: {error}; {endpoint.asked} new answers are "
                f"kept in {endpoint.journal}, and no task set was written: the same command goes "
                "on there"
            ) from None
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
