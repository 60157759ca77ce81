"""Let an engine answer tasks: the one function behind RL, rejection sampling and evaluation.

A task without tools is one message: all prompts go to the engine at once. A task with tools is an
episode (rollouts/play.py); episodes run in lockstep (rollouts/lockstep.py).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from assay.seeds import derive_seed
from assay.task import Task, TaskError
from rollouts.conversation import ChatConversation, TokenConversation
from rollouts.engines.engine import Engine
from rollouts.environment import Budget, Environment, Maker
from rollouts.lockstep import Lockstep
from rollouts.play import Ask, ChatEngine, Episode, play
from rollouts.prompts import ChatTokenizer
from rollouts.record import to_json
from rollouts.trajectory import Completion, Sampling, Trajectory, completion_ids

__all__ = [
    "Ask",
    "ChatEngine",
    "completion_ids",
    "rollout",
    "run_episode",
    "to_json",
    "trajectory",
]


async def rollout(
    tasks: Sequence[Task],
    engine: Engine,
    tokenizer: ChatTokenizer,
    sampling: Sampling,
    n: int,
    run_seed: int,
    turn: int = 0,
    *,
    maker: Maker | None = None,
    budget: Budget | None = None,
) -> list[list[Trajectory]]:
    """`n` trajectories a task, in order. Sample j of a task draws from (run, task, j, turn); where
    the same task stands there again, from a run seed of its own (`seeds_of_repeats`).

    Tasks that name tools become episodes in the environments that `maker` gives (needed only
    then). An episode whose infrastructure broke is tried once more before it is handed over with
    its `failure`.
    """
    plain = [i for i, task in enumerate(tasks) if not task.tools]
    acting = [i for i, task in enumerate(tasks) if task.tools]
    done: dict[int, list[Trajectory]] = {}
    run_seeds = seeds_of_repeats([task.id for task in tasks], run_seed)
    if plain:
        part, own = [tasks[i] for i in plain], [run_seeds[i] for i in plain]
        groups = await _single_turn(part, engine, tokenizer, sampling, n, own, turn)
        done |= dict(zip(plain, groups, strict=True))
    if acting:
        if maker is None:
            names = ", ".join(tasks[acting[0]].tools)
            raise TaskError(
                f"task {tasks[acting[0]].id} needs {names}; give rollout an environment"
            )
        part, own = [tasks[i] for i in acting], [run_seeds[i] for i in acting]
        run = Lockstep(engine, tokenizer, sampling, maker, budget or Budget())
        groups = await run.groups(part, n, own)
        done |= dict(zip(acting, groups, strict=True))
    return [done[i] for i in range(len(tasks))]


def seeds_of_repeats(ids: Sequence[str], run_seed: int) -> list[int]:
    """One seed for each place: `run_seed` where an id stands for the first time, one of its own
    where it stands again, so that the answers there are further ones."""
    seen: Counter[str] = Counter()
    seeds: list[int] = []
    for name in ids:
        again = seen[name]
        seeds.append(derive_seed(run_seed, "again", again) if again else run_seed)
        seen[name] += 1
    return seeds


async def _single_turn(
    tasks: Sequence[Task],
    engine: Engine,
    tokenizer: ChatTokenizer,
    sampling: Sampling,
    n: int,
    run_seeds: Sequence[int],
    turn: int,
) -> list[list[Trajectory]]:
    """The fast path: every prompt once, no environment."""
    started = time.perf_counter()
    prompts = [tokenizer.prompt(task.prompt) for task in tasks]
    seeds = [derive_seed(s, task.id, turn) for s, task in zip(run_seeds, tasks, strict=True)]
    groups = await engine.generate(prompts, replace(sampling, last=True), n, seeds)
    wall = (time.perf_counter() - started) / max(len(tasks) * n, 1)
    return [
        [
            trajectory(task, j, prompt, completion, tokenizer, seed, wall)
            for j, completion in enumerate(group)
        ]
        for task, prompt, group, seed in zip(tasks, prompts, groups, seeds, strict=True)
    ]


async def run_episode(
    task: Task,
    sample: int,
    environment: Environment,
    ask: Ask | ChatEngine,
    sampling: Sampling,
    run_seed: int,
    budget: Budget | None = None,
    tokenizer: ChatTokenizer | None = None,
) -> Trajectory:
    """One episode by itself, for engines that take one request each (verl, an endpoint).

    `ask(ids, sampling, seed)` continues ids, and needs `tokenizer`; a `ChatEngine` needs none.
    """
    if callable(ask) and tokenizer is None:
        raise TaskError("an engine of token ids needs the model's tokenizer")
    talk = TokenConversation(tokenizer) if callable(ask) and tokenizer else ChatConversation()
    episode = Episode(task, sample, run_seed, lambda: environment, budget or Budget(), talk)
    return await play(episode, ask, sampling)


def trajectory(
    task: Task,
    sample: int,
    prompt: list[int],
    completion: Completion,
    tokenizer: ChatTokenizer,
    seed: int,
    wall_s: float,
) -> Trajectory:
    """Prompt and completion as one id sequence; the mask covers the sampled tokens alone."""
    zeros = [0.0] * len(prompt)
    failure = completion.failure
    if failure is not None:  # what was drawn means nothing
        completion = Completion([], [], [], "error", failure)
    text = tokenizer.text(completion.ids)
    return Trajectory(
        task_id=task.id,
        sample=sample,
        ids=prompt + completion.ids,
        loss_mask=[0] * len(prompt) + completion.drawn(),
        logprobs=zeros + completion.logprobs,
        sampling_logprobs=zeros + completion.sampling_logprobs,
        stop=completion.stop,
        text=text,
        failure=failure,
        seed=seed,
        wall_s=wall_s,
        messages=[*task.prompt, {"role": "assistant", "content": text}],
        tokenizer=tokenizer.fingerprint,
    )
