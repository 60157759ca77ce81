"""Questions reworded by any OpenAI-compatible endpoint, each kept only where a check passes.

The endpoint proposes; `data_gen.rewording_facts` decides, without a model. A refused rewording
leaves the question as it was. What was said is journalled by the hash of the request, so that the
same requests over the same journal give the same bytes and ask nobody.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_gen.rewording_facts import Facts, lacks, named
from rewards.extras import install_extra
from rewards.journal import Appender, end_journal, read_journal, rewrite_journal
from rewards.task import TaskError
from rollouts.conversation import ContextFull
from rollouts.engines.openai import EndpointError, OpenAIEngine
from rollouts.now import run_now
from rollouts.trajectory import Sampling

__all__ = ["FILE", "Facts", "Job", "Rewording", "Writer", "report", "reword_all", "reworded"]

FILE = "rewordings.jsonl"
SAMPLING = Sampling(max_new_tokens=4000, temperature=0.8)
_SHOWN = 300  # characters of a refused rewording in a report
_PROMPT = (
    "Reword this question as one colleague would ask another. Keep these to the letter:\n{kept}\n"
    "Leave nothing out, add nothing, do not answer it. Reply with the question alone, on one line."
    "\n\n{question}"
)

Job = tuple[str, Facts, int]  # (question, facts, seed)


@dataclass(frozen=True)
class Rewording:
    """The words to use. `refused` says why they are still those of the question, "" where they are
    new; `said` is what the endpoint said."""

    text: str
    refused: str = ""
    said: str = ""


@dataclass
class Writer:
    """An endpoint that rewords, and what it has said. `url` ends before `/chat/completions`; the
    key is read from the environment variable `key_env`; `journal` is a file beside the output."""

    url: str
    model: str
    journal: Path
    key_env: str = "OPENAI_API_KEY"
    in_flight: int = 8
    attempts: int = 5  # of one request that fails
    timeout_s: float = 300.0  # of one request
    pause_s: float = 1.0  # before the second try
    patience_s: float = 600.0  # of waiting for an endpoint that says it is busy
    known: dict[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    asked: int = 0  # requests that the journal did not answer

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise TaskError(f"writer {self.url!r}: give a URL that starts with http:// or https://")
        if not self.model:
            raise TaskError(f"writer {self.url}: name the model that it shall use")
        if importlib.util.find_spec("aiohttp") is None:
            raise TaskError(f"asking an endpoint needs aiohttp: {install_extra('client')}")
        for number, row in enumerate(read_journal(self.journal), 1):
            if not all(isinstance(row.get(key), str) for key in ("request", "text", "stop")):
                raise TaskError(
                    f"{self.journal} line {number}: no journalled reply (request, text, stop); "
                    "remove the line, or the file, and it is asked again"
                )
            self.known[row["request"]] = row

    def name(self, prompt: str, seed: int) -> str:
        """The hash of a request: of everything that decides the reply, and not of where it went."""
        body = [self.model, prompt, SAMPLING.temperature, SAMPLING.max_new_tokens, seed]
        text = json.dumps(body, ensure_ascii=True)
        return hashlib.sha256(text.encode("ascii")).hexdigest()

    def keep(self, row: Mapping[str, str]) -> None:
        self.known[row["request"]] = row
        self.asked += 1
        self.journal.parent.mkdir(parents=True, exist_ok=True)
        with Appender(self.journal) as file:
            file.add([row])

    def settle(self, requests: Sequence[str]) -> None:
        """The journal in the order of the requests, then what older commands asked, by hash: which
        reply came first does not show."""
        order = list(dict.fromkeys([*requests, *sorted(self.known)]))
        rewrite_journal(self.journal, (self.known[name] for name in order))
        end_journal(self.journal)


def reworded(question: str, facts: Facts, endpoint: Writer, seed: int) -> Rewording:
    """One question reworded, or as it was. Raises `TaskError` when the endpoint cannot be had."""
    return reword_all([(question, facts, seed)], endpoint)[0]


def reword_all(
    jobs: Sequence[Job], endpoint: Writer, advance: Callable[[int], Any] = lambda _: None
) -> list[Rewording]:
    """`reworded` for many questions, several requests side by side, in the order of the jobs.

    Raises `TaskError` when the endpoint cannot be had; what it said until then is in the journal.
    """
    prompts = [(_prompt(question, facts), seed) for question, facts, seed in jobs]
    names = [endpoint.name(prompt, seed) for prompt, seed in prompts]
    missing = {n: p for n, p in zip(names, prompts, strict=True) if n not in endpoint.known}
    advance(len(names) - len(missing))
    if missing:
        run_now(_ask(endpoint, missing, advance))
    if names:
        endpoint.settle(names)
    return [
        _decided(question, facts, endpoint.known[name])
        for (question, facts, _), name in zip(jobs, names, strict=True)
    ]


def report(found: Mapping[str, Rewording]) -> dict[str, Any]:
    """Counts for a certificate, and every refused rewording by the name of its task."""
    refused = {name: one for name, one in found.items() if one.refused}
    why = Counter(one.refused.partition(":")[0] for one in refused.values())
    return {
        "asked": len(found),
        "reworded": len(found) - len(refused),
        "refused": dict(sorted(why.items(), key=lambda pair: (-pair[1], pair[0]))),
        "refusals": {
            name: {"why": one.refused, "said": one.said[:_SHOWN]} for name, one in refused.items()
        },
    }


def _prompt(question: str, facts: Facts) -> str:
    kept = "\n".join(f"- {part}" for part in named(question, facts))
    return _PROMPT.format(kept=kept or "- (nothing)", question=question)


def _decided(question: str, facts: Facts, row: Mapping[str, str]) -> Rewording:
    said = row["text"].rpartition("</think>")[2].strip()
    if row["stop"] != "eos":
        return Rewording(question, f"cut off: {row['stop']}", said)
    if said == question:
        return Rewording(question, "not changed", said)
    why = lacks(question, said, facts)
    return Rewording(question, why, said) if why else Rewording(said, "", said)


async def _ask(
    endpoint: Writer, missing: Mapping[str, tuple[str, int]], advance: Callable[[int], Any]
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
            reply = await engine.chat([{"role": "user", "content": prompt}], (), SAMPLING, seed)
            text, stop = reply.text, str(reply.stop)
        except ContextFull:
            text, stop = "", "length"
        endpoint.keep({"request": name, "model": endpoint.model, "text": text, "stop": stop})
        advance(1)

    async with engine:
        waiting = [asyncio.create_task(one(name, *asked)) for name, asked in missing.items()]
        try:
            await asyncio.gather(*waiting)
        except EndpointError as error:
            raise TaskError(
                f"the writer gave no answer: {error}; {endpoint.asked} new answers are kept in "
                f"{endpoint.journal}, and no task set was written: the same command goes on there"
            ) from None
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
