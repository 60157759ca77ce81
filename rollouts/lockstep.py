"""Many episodes over an engine that takes many prompts in one call.

Every round sends all live episodes to the engine in one call (the first round with one prompt a
group), then lets their tools run side by side. So the batches, and with them the bits, depend on
nothing but the tasks and the seeds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from rewards.seeds import derive_seed
from rewards.task import Task
from rollouts.conversation import TokenConversation
from rollouts.engines.engine import Engine
from rollouts.environment import Budget, Maker
from rollouts.play import Episode
from rollouts.prompts import ChatTokenizer
from rollouts.trajectory import Completion, Sampling, Trajectory, retried


class Lockstep:
    """Many episodes over an engine that takes many prompts in one call."""

    def __init__(
        self,
        engine: Engine,
        tokenizer: ChatTokenizer,
        sampling: Sampling,
        run_seed: int,
        maker: Maker,
        budget: Budget,
    ) -> None:
        self.engine, self.tokenizer, self.sampling = engine, tokenizer, sampling
        self.run_seed, self.maker, self.budget = run_seed, maker, budget

    async def groups(self, tasks: Sequence[Task], n: int) -> list[list[Trajectory]]:
        wanted = [(task, j) for task in tasks for j in range(n)]
        found = await self._run(wanted)
        again = [i for i, t in enumerate(found) if t.failure is not None]
        if again:
            second = await self._run([wanted[i] for i in again])
            for i, t in zip(again, second, strict=True):
                found[i] = retried(found[i], t)
        return [found[k * n : (k + 1) * n] for k in range(len(tasks))]

    async def _run(self, wanted: Sequence[tuple[Task, int]]) -> list[Trajectory]:
        episodes = [
            Episode(
                task,
                j,
                self.run_seed,
                partial(self.maker, task, j, derive_seed(self.run_seed, task.id, j)),
                self.budget,
                TokenConversation(self.tokenizer),
            )
            for task, j in wanted
        ]
        try:
            await _all(e.open() for e in episodes)
            while asked := [(e, ids) for e in episodes if (ids := e.prompt()) is not None]:
                started = time.perf_counter()
                live = [e for e, _ in asked]
                said, rooms = await self._ask(live, [ids for _, ids in asked])
                await _all(e.take(c, r) for e, c, r in zip(live, said, rooms, strict=True))
                share = (time.perf_counter() - started) / len(live)
                for episode in live:
                    episode.wall_s += share
        finally:  # also when the engine raises, or this is cancelled
            await _all(e.close() for e in episodes)
        return [e.trajectory() for e in episodes]

    async def _ask(
        self, live: Sequence[Episode], prompts: Sequence[list[int]]
    ) -> tuple[list[Completion], list[int]]:
        """(the next message of each, the tokens it may have). In the first round samples of one
        prompt share its prefill."""
        rooms = [e.room(self.sampling.max_new_tokens) for e in live]
        sampling = replace(self.sampling, max_new_tokens=max(rooms))
        said: dict[int, Completion] = {}
        alone: list[int] = []
        for width, starts in _families(live, prompts).items():
            if width == 1:
                alone = starts
                continue
            heads = [live[i] for i in starts]
            seeds = [derive_seed(self.run_seed, e.task.id, 0) for e in heads]
            groups = await self.engine.generate(
                [prompts[i] for i in starts], sampling, width, seeds
            )
            said |= {i + j: c for i, g in zip(starts, groups, strict=True) for j, c in enumerate(g)}
        if alone:
            seeds = [live[i].seed() for i in alone]
            singles = await self.engine.generate([prompts[i] for i in alone], sampling, 1, seeds)
            said |= {i: group[0] for i, group in zip(alone, singles, strict=True)}
        return [said[i] for i in range(len(live))], rooms


async def _all(steps: Iterable[Awaitable[None]]) -> None:
    """Wait for every step, then raise the first error: no step is left running."""
    for found in await asyncio.gather(*steps, return_exceptions=True):
        if isinstance(found, BaseException):
            raise found


def _families(live: Sequence[Episode], prompts: Sequence[list[int]]) -> dict[int, list[int]]:
    """Width → starts of runs that may share a prefill: samples 0..width-1 of one task, on their
    first turn, with the same prompt. Everything else has width 1."""
    out: dict[int, list[int]] = {}
    at = 0
    while at < len(live):
        end = at + 1
        while (
            end < len(live)
            and live[end].turn == 0
            and live[end].task is live[at].task
            and live[end].sample == end - at
            and live[at].sample == 0
            and prompts[end] == prompts[at]
        ):
            end += 1
        out.setdefault(end - at, []).append(at)
        at = end
    return out
