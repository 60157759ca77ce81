"""The ways `assay rollout` gets answers: a model here, an endpoint, a script, or gold as it is.

Each takes tasks and hands over every task's samples as soon as they are complete.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rewards.seeds import derive_seed
from rewards.task import Answer, Task
from rollouts.chat_rollout import chat_rollout
from rollouts.engines.engine import Engine
from rollouts.engines.http_engine import ServerEngine
from rollouts.environment import Budget
from rollouts.episode import rollout
from rollouts.play import ChatEngine
from rollouts.prompts import ChatTokenizer
from rollouts.solvers import answer_by
from rollouts.trajectory import Sampling, Trajectory
from rollouts.workshop import Workshop

Done = Callable[[Task, list[Trajectory]], None]
Way = Callable[[Sequence[Task], Done], Awaitable[None]]


@dataclass(frozen=True)
class Draw:
    """What every way needs: how to sample, how often, and where episodes happen."""

    sampling: Sampling
    n: int
    seed: int
    shop: Workshop
    budget: Budget


def by_engine(engine: Engine, tokenizer: ChatTokenizer, draw: Draw, chunk: int) -> Way:
    """In lockstep, `chunk` tasks at a time."""

    async def run(tasks: Sequence[Task], done: Done) -> None:
        for at in range(0, len(tasks), chunk):
            part = tasks[at : at + chunk]
            groups = await rollout(
                part,
                engine,
                tokenizer,
                draw.sampling,
                draw.n,
                draw.seed,
                maker=draw.shop.maker,
                budget=draw.budget,
            )
            for task, group in zip(part, groups, strict=True):
                done(task, group)

    return run


def by_chat(engine: Any, draw: Draw, in_flight: int) -> Way:
    """Each episode by itself, `in_flight` side by side. An engine that has a session is opened and
    closed around it."""

    async def ask(chat: ChatEngine, tasks: Sequence[Task], done: Done) -> None:
        await chat_rollout(
            tasks,
            chat,
            draw.sampling,
            draw.n,
            draw.seed,
            maker=draw.shop.maker,
            budget=draw.budget,
            in_flight=in_flight,
            on_group=done,
        )

    async def run(tasks: Sequence[Task], done: Done) -> None:
        if hasattr(engine, "__aenter__"):
            async with engine as opened:
                await ask(opened, tasks, done)
        else:
            await ask(engine, tasks, done)

    return run


def by_server(engine: ServerEngine, tokenizer: ChatTokenizer, draw: Draw, in_flight: int) -> Way:
    """Each episode by itself, as token ids: a slow tool holds up its own episode alone."""

    async def run(tasks: Sequence[Task], done: Done) -> None:
        async with engine as opened:
            await chat_rollout(
                tasks,
                opened.complete,
                draw.sampling,
                draw.n,
                draw.seed,
                tokenizer=tokenizer,
                maker=draw.shop.maker,
                budget=draw.budget,
                in_flight=in_flight,
                on_group=done,
            )

    return run


def by_answer(name: str, tokenizer: ChatTokenizer | None, draw: Draw) -> Way:
    """`gold`, `empty` or `cheat:NAME`: the answer itself, without an episode."""

    async def run(tasks: Sequence[Task], done: Done) -> None:
        answers = [answer_by(name, task) for task in tasks]  # all, before the first is written
        for task, answer in zip(tasks, answers, strict=True):
            done(task, [as_trajectory(task, j, answer, tokenizer, draw) for j in range(draw.n)])

    return run


def as_trajectory(
    task: Task, sample: int, answer: Answer, tokenizer: ChatTokenizer | None, draw: Draw
) -> Trajectory:
    """An answer as a trajectory; with ids where there is a tokenizer and the task has no tools
    (an answer without the calls before it is nothing to learn from)."""
    prompt: list[int] = []
    said: list[int] = []
    if tokenizer is not None and not task.tools:
        prompt, said = tokenizer.prompt(task.prompt), tokenizer.answer(answer.text)
    zeros = [0.0] * (len(prompt) + len(said))
    return Trajectory(
        task_id=task.id,
        sample=sample,
        ids=prompt + said,
        loss_mask=[0] * len(prompt) + [1] * len(said),
        logprobs=zeros,
        sampling_logprobs=list(zeros),
        stop="length" if answer.truncated else "eos",
        text=answer.text,
        seed=derive_seed(draw.seed, task.id, sample),
        messages=[*task.prompt, {"role": "assistant", "content": answer.text}],
        files=answer.files,
        failure=answer.failure,
        tokenizer=tokenizer.fingerprint if tokenizer is not None and said else "",
    )
