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
from typing import Any

from assay.seeds import derive_seed
from assay.task import Task
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
        maker: Maker,
        budget: Budget,
    ) -> None:
        self.engine, self.tokenizer, self.sampling = engine, tokenizer, sampling
        self.maker, self.budget = maker, budget

    async def groups(
        self, tasks: Sequence[Task], n: int, run_seeds: Sequence[int]
    ) -> list[list[Trajectory]]:
        """`n` trajectories a task; `run_seeds`, one a task, tell repetitions of a task apart."""
        places = zip(tasks, run_seeds, strict=True)
        wanted = [(task, j, seed) for task, seed in places for j in range(n)]
        found = await self._run(wanted)
        again = [i for i, t in enumerate(found) if t.failure is not None]
        if again:
            second = await self._run([wanted[i] for i in again])
            for i, t in zip(again, second, strict=True):
                found[i] = retried(found[i], t)
        return [found[k * n : (k + 1) * n] for k in range(len(tasks))]

    async def _run(self, wanted: Sequence[tuple[Task, int, int]]) -> list[Trajectory]:
        episodes = [
            Episode(
                task,
                j,
                seed,
                partial(self.maker, task, j, derive_seed(seed, task.id, j)),
                self.budget,
                TokenConversation(self.tokenizer),
            )
            for task, j, seed in wanted
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
        """(the next message of each, the tokens it may have).

        First messages of a task are drawn as one group that shares its prefill, from sample 0 to
        the highest one that is wanted: sample j draws the same, however many run beside it and
        when it is tried again.
        """
        rooms = [e.room(self.sampling.max_new_tokens) for e in live]
        sampling = replace(self.sampling, max_new_tokens=max(rooms))
        said: dict[int, Completion] = {}
        for width, groups in _by_width(live, prompts).items():
            heads = [group[0] for group in groups]
            drawn = await self.engine.generate(
                [prompts[i] for i in heads], sampling, width, [_seed(live[i]) for i in heads]
            )
            for group, completions in zip(groups, drawn, strict=True):
                said |= {i: completions[live[i].sample if live[i].turn == 0 else 0] for i in group}
        return [said[i] for i in range(len(live))], rooms


def _seed(episode: Episode) -> int:
    """Of the group in the first turn, of the episode's own message afterwards."""
    if episode.turn == 0:
        return derive_seed(episode.run_seed, episode.task.id, 0)
    return episode.seed()


async def _all(steps: Iterable[Awaitable[None]]) -> None:
    """Wait for every step, then raise the first error: no step is left running."""
    for found in await asyncio.gather(*steps, return_exceptions=True):
        if isinstance(found, BaseException):
            raise found


def _by_width(live: Sequence[Episode], prompts: Sequence[list[int]]) -> dict[int, list[list[int]]]:
    """Completions wanted of a prompt → groups of episodes that share it. On their first turn these
    are the samples of one task with the same prompt; afterwards each stands alone."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for i, episode in enumerate(live):
        first = episode.turn == 0
        key = (id(episode.task), episode.run_seed, tuple(prompts[i])) if first else (i,)
        groups.setdefault(key, []).append(i)
    out: dict[int, list[list[int]]] = {}
    for group in groups.values():
        first = live[group[0]].turn == 0
        width = max(live[i].sample for i in group) + 1 if first else 1
        out.setdefault(width, []).append(group)
    return out
