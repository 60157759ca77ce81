"""Let an engine answer tasks: the one function behind RL, rejection sampling and evaluation.

A task without tools is one message: all prompts go to the engine at once. A task with tools is an
episode: ask the model, let the environment react, append, and again, until one of them is done or
a budget is used up. Episodes run in lockstep: every round sends all live ones to the engine in one
call (the first round with one prompt a group), then lets their tools run side by side. So the
batches, and with them the bits, depend on nothing but the tasks and the seeds.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from rewards.seeds import derive_seed
from rewards.task import Score, Task, TaskError
from rollouts.conversation import ChatConversation, ChatReply, Heard, TokenConversation
from rollouts.dare.failures import FORESEEN, bug_report
from rollouts.engines.engine import Engine
from rollouts.environment import (
    Budget,
    Closing,
    Environment,
    Maker,
    Reply,
    Said,
)
from rollouts.prompts import ChatTokenizer
from rollouts.tools import ToolSpec
from rollouts.trajectory import Completion, EpisodeStop, Sampling, Trajectory


class ChatEngine(Protocol):
    """Anything that answers messages in words. It gives no token ids, so nothing can be trained
    on what it says; it serves evaluation and the making of SFT data."""

    async def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        sampling: Sampling,
        seed: int,
    ) -> ChatReply:
        """One message. Raises `OSError` when the endpoint cannot be had."""
        ...


class Episode:
    """One conversation, a step at a time: `open`, then `hear` and `take` while `live`; then
    `close`, whatever happened, and `trajectory`.

    No step raises but for bad input (`FORESEEN`) and a cancellation: what breaks, a bug included,
    ends this episode with a `failure`.
    """

    def __init__(
        self,
        task: Task,
        sample: int,
        run_seed: int,
        make: Callable[[], Environment],
        budget: Budget,
        talk: TokenConversation | ChatConversation,
    ) -> None:
        self.task, self.sample, self.run_seed = task, sample, run_seed
        self.talk, self.budget, self._make = talk, budget, make
        self._environment: Environment | None = None
        self._closing = Closing()
        self.turn, self.live = 0, False
        self.tools: Sequence[ToolSpec] = ()
        self.wall_s = 0.0
        self._text, self._tool_s = "", 0.0
        self._stop: EpisodeStop = "error"
        self._failure: str | None = None
        self._notes: dict[str, Any] = {}
        self._records: list[dict[str, Any]] = []
        self._errors: Counter[str] = Counter()

    def seed(self) -> int:
        """What the next message draws from: (run, task, sample, turn)."""
        return derive_seed(self.run_seed, self.task.id, self.sample, self.turn)

    def room(self, most: int) -> int:
        """Tokens the next message may have, `most` or fewer."""
        if not self.budget.tokens or not isinstance(self.talk, TokenConversation):
            return most
        return min(most, self.budget.tokens - len(self.talk.ids))

    async def open(self) -> None:
        """Prepare the environment and start the conversation."""
        await self._guard(self._open())

    async def _open(self) -> None:
        self._environment = self._make()
        opening = await self._environment.open()
        self.tools, self.live = opening.tools, True
        self.talk.start(opening)
        if self.room(1) < 1:
            self._end("length")

    def prompt(self) -> list[int] | None:
        """All ids so far, for an engine; None when no message is wanted."""
        if not self.live or not isinstance(self.talk, TokenConversation):
            return None
        try:
            return self.talk.prompt()
        except Exception as error:
            self.broken(error)
            return None

    async def take(self, completion: Completion | ChatReply, room: int) -> None:
        """One model message of at most `room` tokens: let the environment react, append its
        answer, or end."""
        await self._guard(self._take(completion, room))

    async def _take(self, completion: Completion | ChatReply, room: int) -> None:
        assert self._environment is not None
        self.turn += 1
        if isinstance(self.talk, TokenConversation):
            assert isinstance(completion, Completion)
            heard = self.talk.hear(completion, room)
        else:
            assert isinstance(completion, ChatReply)
            heard = self.talk.hear(completion)
        self._text = heard.text
        last = self.turn >= self.budget.turns
        said = Said(heard.text, heard.calls, heard.cut, self.turn - 1, last)
        reply = await self._environment.reply(said)
        self._react(reply, heard, last)

    def _react(self, reply: Reply, heard: Heard, last: bool) -> None:
        self._records += [{"turn": self.turn - 1, **record} for record in reply.records]
        self._errors.update(reply.errors)
        self._tool_s += reply.seconds
        if reply.messages and not (reply.done or last):
            self.talk.add(reply.messages)
        if reply.done:
            self._end("done")
        elif not reply.messages:
            self._end("length" if heard.cut else "eos")
        elif last:
            self._end("length" if heard.cut else "turns")
        elif self._tool_s >= self.budget.seconds:
            self._end("time")
        elif self.room(1) < 1:
            self._end("length")

    def broken(self, error: Exception, where: str = "") -> None:
        """End without an outcome; the first thing that broke is the one that is told."""
        why, notes = bug_report(error)
        if self._failure is None:
            self._failure = where + why
        self._notes = notes | self._notes
        self._end("error")

    async def close(self) -> None:
        """Let the environment go, once, however often this is called."""
        environment, self._environment = self._environment, None
        self.live = False
        if environment is not None:
            await self._guard(self._close(environment))

    async def _close(self, environment: Environment) -> None:
        self._closing = await environment.close()

    def trajectory(self) -> Trajectory:
        """What happened, once closed."""
        left = self._closing
        tokens = self.talk if isinstance(self.talk, TokenConversation) else None
        return Trajectory(
            task_id=self.task.id,
            sample=self.sample,
            ids=tokens.ids if tokens else [],
            loss_mask=tokens.loss_mask if tokens else [],
            logprobs=tokens.logprobs if tokens else [],
            sampling_logprobs=tokens.sampling_logprobs if tokens else [],
            stop=self._stop,
            text=self._text,
            seed=derive_seed(self.run_seed, self.task.id, self.sample),
            turns=self.turn,
            tool_calls=self._records,
            wall_s=self.wall_s,
            tool_s=self._tool_s,
            messages=self.talk.messages,
            tools=[t.schema() for t in self.tools],
            files=left.files,
            failure=self._failure,
            errors=dict(self._errors),
            notes={**left.notes, **self._notes},
            usage=dict(self.talk.usage) if isinstance(self.talk, ChatConversation) else {},
        )

    def _end(self, stop: EpisodeStop) -> None:
        self._stop, self.live = stop, False

    async def _guard(self, step: Awaitable[None]) -> None:
        """Await a step; whatever it raises ends this episode alone."""
        try:
            await step
        except FORESEEN:
            raise
        except Exception as error:
            self.broken(error)


Ask = Callable[[Sequence[int], Sampling, int], Awaitable[Completion]]


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


async def play(episode: Episode, ask: Ask | ChatEngine, sampling: Sampling) -> Trajectory:
    """An episode from its opening to its end."""
    started = time.perf_counter()
    try:
        await episode.open()
        while episode.live:
            room = episode.room(sampling.max_new_tokens)
            try:
                said = await _next_message(episode, ask, replace(sampling, max_new_tokens=room))
            except FORESEEN:
                raise
            except Exception as error:
                episode.broken(error, "engine: ")
                break
            await episode.take(said, room)
    finally:  # also when this is cancelled
        episode.wall_s = time.perf_counter() - started
        await episode.close()
    return episode.trajectory()


async def _next_message(
    episode: Episode, ask: Ask | ChatEngine, sampling: Sampling
) -> Completion | ChatReply:
    talk, seed = episode.talk, episode.seed()
    if isinstance(talk, ChatConversation):
        assert not callable(ask)
        return await ask.chat(talk.messages, talk.tools, sampling, seed)
    assert callable(ask)
    return await ask(talk.prompt(), sampling, seed)


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
    """`n` trajectories a task, in order. Sample j of a task draws from (run, task, j, turn).

    Tasks that name tools become episodes in the environments that `maker` gives (needed only
    then). An episode whose infrastructure broke is tried once more before it is handed over with
    its `failure`.
    """
    plain = [i for i, task in enumerate(tasks) if not task.tools]
    acting = [i for i, task in enumerate(tasks) if task.tools]
    done: dict[int, list[Trajectory]] = {}
    if plain:
        part = [tasks[i] for i in plain]
        groups = await _single_turn(part, engine, tokenizer, sampling, n, run_seed, turn)
        done |= dict(zip(plain, groups, strict=True))
    if acting:
        if maker is None:
            names = ", ".join(tasks[acting[0]].tools)
            raise TaskError(
                f"task {tasks[acting[0]].id} needs {names}; give rollout an environment"
            )
        part = [tasks[i] for i in acting]
        run = _Lockstep(engine, tokenizer, sampling, run_seed, maker, budget or Budget())
        groups = await run.groups(part, n)
        done |= dict(zip(acting, groups, strict=True))
    return [done[i] for i in range(len(tasks))]


async def _single_turn(
    tasks: Sequence[Task],
    engine: Engine,
    tokenizer: ChatTokenizer,
    sampling: Sampling,
    n: int,
    run_seed: int,
    turn: int,
) -> list[list[Trajectory]]:
    """The fast path: every prompt once, no environment."""
    started = time.perf_counter()
    prompts = [tokenizer.prompt(task.prompt) for task in tasks]
    seeds = [derive_seed(run_seed, task.id, turn) for task in tasks]
    groups = await engine.generate(prompts, sampling, n, seeds)
    wall = (time.perf_counter() - started) / max(len(tasks) * n, 1)
    return [
        [
            trajectory(task, j, prompt, completion, tokenizer, seed, wall)
            for j, completion in enumerate(group)
        ]
        for task, prompt, group, seed in zip(tasks, prompts, groups, seeds, strict=True)
    ]


class _Lockstep:
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


def retried(first: Trajectory, second: Trajectory) -> Trajectory:
    """The second attempt, with a note of what broke the first one."""
    bug = {"bug": first.notes["bug"]} if "bug" in first.notes else {}
    return replace(second, notes={**bug, **second.notes, "retried": first.failure})


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
    text = tokenizer.text(completion.ids)
    return Trajectory(
        task_id=task.id,
        sample=sample,
        ids=prompt + completion.ids,
        loss_mask=[0] * len(prompt) + [1] * len(completion.ids),
        logprobs=zeros + completion.logprobs,
        sampling_logprobs=zeros + completion.sampling_logprobs,
        stop=completion.stop,
        text=text,
        seed=seed,
        wall_s=wall_s,
        messages=[*task.prompt, {"role": "assistant", "content": text}],
    )


def completion_ids(trajectory: Trajectory) -> tuple[list[int], list[int], list[int]]:
    """(prompt ids, ids from the first sampled to the last sampled, the mask of the latter)."""
    mask = trajectory.loss_mask
    start = trajectory.prompt_length
    end = max((i + 1 for i in range(start, len(mask)) if mask[i]), default=start)
    return trajectory.ids[:start], trajectory.ids[start:end], mask[start:end]


def to_json(trajectory: Trajectory, score: Score, task: Task) -> dict[str, Any]:
    """One line of a rollouts file: what was asked, what came back, and how it scored."""
    row = {
        "task_id": trajectory.task_id,
        "sample": trajectory.sample,
        "text": trajectory.text,
        "stop": trajectory.stop,
        "tokens": trajectory.sampled,
        "seed": trajectory.seed,
        **score.to_json(),
        "track": task.track,
        "ids": trajectory.ids,
        "loss_mask": trajectory.loss_mask,
        "logprobs": [round(x, 6) for x in trajectory.logprobs],
        "sampling_logprobs": [round(x, 6) for x in trajectory.sampling_logprobs],
        "messages": trajectory.messages,  # what `assay select` makes a training row of
    }
    if task.meta.get("published") or task.gold.get("doubt"):
        row["published"] = True  # `assay select` refuses it
    if not task.tools:
        return row
    return row | {
        "turns": trajectory.turns,
        "tool_calls": trajectory.tool_calls,
        "errors": dict(trajectory.errors),
        "failure": trajectory.failure,
        "tools": trajectory.tools,
        "notes": dict(trajectory.notes),
        "files": {name: len(data) for name, data in sorted(trajectory.files.items())},
        "wall_s": round(trajectory.wall_s, 6),
        "tool_s": round(trajectory.tool_s, 6),
    }
