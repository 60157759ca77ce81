"""Many episodes with an endpoint or a server: each by itself, a bounded number side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from rewards.seeds import derive_seed
from rewards.task import Task
from rollouts.conversation import ChatConversation, TokenConversation
from rollouts.environment import Budget, Closing, Environment, Maker, Opening, Reply, Said
from rollouts.play import Ask, ChatEngine, Episode, play
from rollouts.prompts import ChatTokenizer
from rollouts.trajectory import Sampling, Trajectory, retried


class Plain:
    """The environment of a task without tools: the first message is the answer."""

    def __init__(self, task: Task) -> None:
        self._task = task

    async def open(self) -> Opening:
        return Opening(self._task.prompt)

    async def reply(self, said: Said) -> Reply:
        return Reply()

    async def close(self) -> Closing:
        return Closing()


async def chat_rollout(
    tasks: Sequence[Task],
    engine: ChatEngine | Ask,
    sampling: Sampling,
    n: int,
    run_seed: int,
    *,
    tokenizer: ChatTokenizer | None = None,
    maker: Maker | None = None,
    budget: Budget | None = None,
    in_flight: int = 16,
    on_done: Callable[[], None] | None = None,
    on_group: Callable[[Task, list[Trajectory]], None] | None = None,
) -> list[list[Trajectory]]:
    """`n` trajectories a task, in order; a broken one is tried once more.

    A `ChatEngine` gives words, no ids, and nothing can be trained on them. What continues ids
    (`Ask`) needs the model's `tokenizer`, and gives trajectories with ids and log-probabilities.
    `on_done` is called after each trajectory, `on_group` with each task whose samples are all
    there; what it raises ends the run.
    """
    slots = asyncio.Semaphore(in_flight)

    def surroundings(task: Task, sample: int) -> Environment:
        if not task.tools or maker is None:
            return Plain(task)
        return maker(task, sample, derive_seed(run_seed, task.id, sample))

    async def attempt(task: Task, sample: int) -> Trajectory:
        make = partial(surroundings, task, sample)
        bounds = budget or Budget()
        talk = ChatConversation() if tokenizer is None else TokenConversation(tokenizer)
        episode = Episode(task, sample, run_seed, make, bounds, talk)
        return await play(episode, engine, sampling)

    groups: dict[int, dict[int, Trajectory]] = {}

    async def one(task: Task, index: int, sample: int) -> Trajectory:
        async with slots:
            found = await attempt(task, sample)
            if found.failure is not None:
                found = retried(found, await attempt(task, sample))
        if on_done is not None:
            on_done()
        group = groups.setdefault(index, {})
        group[sample] = found
        if on_group is not None and len(group) == n:
            on_group(task, [group[j] for j in range(n)])
        return found

    runs = [
        asyncio.ensure_future(one(task, i, j)) for i, task in enumerate(tasks) for j in range(n)
    ]
    try:
        flat = await asyncio.gather(*runs)
    finally:  # after bad input or a cancellation no episode is left running, nor left open
        for run in runs:
            run.cancel()
        await asyncio.gather(*runs, return_exceptions=True)
    return [list(flat[i * n : (i + 1) * n]) for i in range(len(tasks))]
