"""Let models answer tasks: the one loop behind RL, rejection sampling, evaluation and verl.

`Episode` is one conversation: ask the model, let the environment react, append, until one of them
is done or a budget is used up. A task without tools is a conversation of one message. A model is
asked for token ids (training), or for messages (an endpoint). `rollout` holds many conversations at
once with an engine that decodes many prompts in one call.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from assay.seeds import derive_seed
from assay.task import Task, TaskError
from rollouts.conversation import (
    Ask,
    ChatConversation,
    ChatEngine,
    ContextFull,
    TokenConversation,
)
from rollouts.engines.engine import Engine
from rollouts.environment import (
    Budget,
    Environment,
    EnvironmentFailure,
    EpisodeEnd,
    EpisodeStart,
    Maker,
    ModelTurn,
    Reply,
)
from rollouts.prompts import ChatTokenizer
from rollouts.sandbox.model import SandboxError
from rollouts.tool_calls import ToolSpec
from rollouts.trajectory import (
    UNTOLD,
    Completion,
    EpisodeStop,
    Sampling,
    Trajectory,
    retried,
)

BROKEN = (OSError, SandboxError, EnvironmentFailure)  # what counts as infrastructure
FORESEEN = (TaskError,)  # bad input, said in one sentence: these end the run
_REPORT = 20_000  # characters of a traceback that are kept, its end


# --- one episode -------------------------------------------------------------------------------


class SingleTurn:
    """The environment of a task without tools: the first message is the answer."""

    def __init__(self, task: Task, sample: int = 0, seed: int = 0) -> None:
        self._task = task

    async def open(self) -> EpisodeStart:
        return EpisodeStart(self._task.prompt)

    async def reply(self, said: ModelTurn) -> Reply:
        return Reply()

    async def close(self) -> EpisodeEnd:
        return EpisodeEnd()


class Episode:
    """One conversation about a task: `hold` it, `close` it whatever happened, then ask for its
    `trajectory`; `play` does all three. `tokenizer` is the model's where token ids are drawn.

    No step raises but for bad input (`FORESEEN`) and a cancellation: what breaks, a bug included,
    ends this episode with a `failure`.
    """

    def __init__(
        self,
        task: Task,
        sample: int,
        run_seed: int,
        maker: Maker,
        budget: Budget,
        tokenizer: ChatTokenizer | None = None,
    ) -> None:
        self.task, self.sample, self.run_seed, self.turn = task, sample, run_seed, 0
        self._talk = ChatConversation() if tokenizer is None else TokenConversation(tokenizer)
        self._budget, self._maker = budget, maker
        self._environment: Environment | None = None
        self._tools: Sequence[ToolSpec] = ()
        self._end = EpisodeEnd()
        self._text, self._wall_s, self._tool_s = "", 0.0, 0.0
        self._stop: EpisodeStop | None = None
        self._failure: str | None = None
        self._notes: dict[str, Any] = {}
        self._records: list[dict[str, Any]] = []
        self._errors: Counter[str] = Counter()

    async def play(self, engine: Ask | ChatEngine, sampling: Sampling) -> Trajectory:
        try:
            await self.hold(engine, sampling)
        finally:  # also when this is cancelled
            await self.close()
        return self.trajectory()

    async def hold(self, engine: Ask | ChatEngine, sampling: Sampling) -> None:
        """The conversation from its opening to its end."""
        started = time.perf_counter()
        try:
            task, seed = self.task, derive_seed(self.run_seed, self.task.id, self.sample)
            self._environment = self._maker(task, self.sample, seed)
            start = await self._environment.open()
            self._tools = start.tools
            self._talk.start(start)
            while self._stop is None:
                await self._next(self._environment, engine, sampling)
        except FORESEEN:
            raise
        except Exception as error:
            self._broke(error)
        finally:
            self._wall_s = time.perf_counter() - started

    async def _next(
        self, environment: Environment, engine: Ask | ChatEngine, sampling: Sampling
    ) -> None:
        """One message of the model, and what the environment makes of it."""
        budget, talk = self._budget, self._talk
        if talk.room(1, budget) < 1:
            self._stop = "length"
            return
        room = talk.room(sampling.max_new_tokens, budget)
        seed = derive_seed(self.run_seed, self.task.id, self.sample, self.turn)
        prompt = talk.prompt()
        try:
            message = await talk.ask(engine, prompt, replace(sampling, max_new_tokens=room), seed)
        except FORESEEN:
            raise
        except ContextFull:
            self._stop = "length"
            return
        except Exception as error:
            self._broke(error, "engine: ")
            return
        self.turn += 1
        self._text, calls, cut = talk.hear(message, room)
        if isinstance(message, Completion) and message.failure is not None:
            self._failure, self._stop = message.failure, "error"
            return
        last = self.turn >= budget.turns
        left = budget.seconds - self._tool_s
        said = ModelTurn(self._text, calls, cut, self.turn - 1, last, left)
        reply = await environment.reply(said)
        self._records += [{"turn": self.turn - 1, **record} for record in reply.records]
        self._errors.update(reply.errors)
        self._tool_s += reply.seconds
        if reply.context is not None and not (reply.done or last):
            talk.rewrite(reply.context, reply.messages)
        elif reply.messages and not (reply.done or last):
            talk.add(reply.messages)
        if reply.done:
            self._stop = "done"
        elif not reply.messages and reply.context is None:
            self._stop = "length" if cut else "eos"
        elif last:
            self._stop = "length" if cut else "turns"
        elif self._tool_s >= budget.seconds:
            self._stop = "time"

    def _broke(self, error: Exception, where: str = "") -> None:
        """End without an outcome; the first thing that broke is the one that is told."""
        why, notes = bug_report(error)
        if self._failure is None:
            self._failure = where + why
        self._notes = notes | self._notes
        self._stop = "error"

    async def close(self) -> None:
        """Let the environment go, once, however often this is called."""
        environment, self._environment = self._environment, None
        if environment is None:
            return
        try:
            self._end = await environment.close()
        except FORESEEN:
            raise
        except Exception as error:
            self._broke(error)

    def trajectory(self) -> Trajectory:
        """What happened, once closed."""
        untold = {UNTOLD: self._talk.untold} if self._talk.untold else {}
        return Trajectory(
            task_id=self.task.id,
            sample=self.sample,
            stop=self._stop or "error",
            text=self._text,
            seed=derive_seed(self.run_seed, self.task.id, self.sample),
            turns=self.turn,
            tool_calls=self._records,
            wall_s=self._wall_s,
            tool_s=self._tool_s,
            messages=self._talk.messages,
            tools=[tool.schema() for tool in self._tools],
            files=self._end.files,
            failure=self._failure,
            errors=dict(self._errors),
            notes={**self._end.notes, **self._notes, **untold},
            **self._talk.fields(),
        )


def bug_report(error: BaseException) -> tuple[str, dict[str, Any]]:
    """(one line for a trajectory's `failure`, what its `notes` keep): broken infrastructure in
    words, with what an endpoint's error notes; of an exception that nobody foresaw the traceback,
    as `bug`."""
    said = f"{type(error).__name__}: {error}"[:500]
    if isinstance(error, BROKEN):
        notes: Any = getattr(error, "notes", None)  # of an `EndpointError`
        return said, dict(notes or {})
    whole = "".join(traceback.format_exception(error))
    return f"bug: {said}", {"bug": whole[-_REPORT:]}


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
    words = tokenizer if callable(ask) else None

    def maker(task: Task, sample: int, seed: int) -> Environment:
        return environment

    one = Episode(task, sample, run_seed, maker, budget or Budget(), words)
    return await one.play(ask, sampling)


# --- many episodes over an engine that takes many prompts in one call ---------------------------


async def rollout(
    tasks: Sequence[Task],
    engine: Engine,
    tokenizer: ChatTokenizer,
    sampling: Sampling,
    n: int,
    run_seed: int,
    *,
    maker: Maker | None = None,
    budget: Budget | None = None,
) -> list[list[Trajectory]]:
    """`n` trajectories a task, in order. Turn k of sample j of a task draws from (run, task, j, k);
    where the same task stands there again, from a run seed of its own (`seeds_of_repeats`).

    Tasks that name tools run in the environments that `maker` gives (needed only then). An episode
    of theirs whose infrastructure broke is tried once more before it is handed over with its
    `failure`.
    """
    run_seeds = seeds_of_repeats([task.id for task in tasks], run_seed)
    items = [(task, j, s) for task, s in zip(tasks, run_seeds, strict=True) for j in range(n)]
    plain = [i for i, (task, _, _) in enumerate(items) if not task.tools]
    acting = [i for i, (task, _, _) in enumerate(items) if task.tools]
    found: dict[int, Trajectory] = {}

    async def play(
        chosen: Sequence[int], make: Maker, how: Sampling, bounds: Budget
    ) -> list[Trajectory]:
        episodes = [Episode(*items[i], make, bounds, tokenizer) for i in chosen]
        return await _Rounds(engine, episodes).play(how)

    if plain:
        runs = await play(plain, SingleTurn, replace(sampling, last=True), Budget(turns=1))
        for i, run in zip(plain, runs, strict=True):  # all samples draw from their group's seed
            found[i] = replace(run, seed=derive_seed(items[i][2], run.task_id, 0))
    if acting:
        if maker is None:
            task = items[acting[0]][0]
            raise TaskError(
                f"task {task.id} needs {', '.join(task.tools)}; give rollout an environment"
            )
        bounds = budget or Budget()
        found |= zip(acting, await play(acting, maker, sampling, bounds), strict=True)
        again = [i for i in acting if found[i].failure is not None]
        second = await play(again, maker, sampling, bounds)
        found |= {i: retried(found[i], run) for i, run in zip(again, second, strict=True)}
    return [[found[k * n + j] for j in range(n)] for k in range(len(tasks))]


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


class _Rounds:
    """One engine for episodes that are played side by side: it is asked when every one of them
    waits for a message or has ended. So the batches, and with them the bits, depend on nothing but
    the tasks and the seeds."""

    def __init__(self, engine: Engine, episodes: Sequence[Episode]) -> None:
        self._engine, self._episodes = engine, episodes
        self._playing = len(episodes)
        self._asked: dict[int, tuple[Sequence[int], Sampling, int]] = {}
        self._heard: dict[int, asyncio.Future[Completion]] = {}
        self._complete = asyncio.Event()

    async def play(self, sampling: Sampling) -> list[Trajectory]:
        """The trajectories, in order. Raises what the engine raises, once all are closed."""
        started = time.perf_counter()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._answer())
                for place in range(len(self._episodes)):
                    group.create_task(self._hold(place, sampling))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        share = (time.perf_counter() - started) / max(len(self._episodes), 1)
        return [replace(episode.trajectory(), wall_s=share) for episode in self._episodes]

    async def _hold(self, place: int, sampling: Sampling) -> None:
        episode = self._episodes[place]
        try:
            await episode.hold(partial(self._ask, place), sampling)
        finally:
            self._playing -= 1
            self._look()
            await episode.close()

    async def _ask(
        self, place: int, ids: Sequence[int], sampling: Sampling, seed: int
    ) -> Completion:
        self._asked[place] = ids, sampling, seed
        self._heard[place] = asyncio.get_running_loop().create_future()
        self._look()
        return await self._heard[place]

    def _look(self) -> None:
        if len(self._asked) == self._playing:
            self._complete.set()

    async def _answer(self) -> None:
        """Answer round after round, until no episode is left."""
        while self._playing:
            await self._complete.wait()
            self._complete.clear()
            asked = dict(sorted(self._asked.items()))
            self._asked.clear()
            for width, groups in self._groups(asked).items():
                # room for the longest; who may have less is cut
                most = max(sampling.max_new_tokens for _, sampling, _ in asked.values())
                how = replace(next(iter(asked.values()))[1], max_new_tokens=most)
                heads = [group[0] for group in groups]
                prompts = [asked[place][0] for place in heads]
                seeds = [self._seed(place, asked[place][2]) for place in heads]
                drawn = await self._engine.generate(prompts, how, width, seeds)
                for group, completions in zip(groups, drawn, strict=True):
                    for place in group:
                        one = self._episodes[place]
                        self._heard[place].set_result(completions[0 if one.turn else one.sample])

    def _seed(self, place: int, own: int) -> int:
        """Of the group in the first turn, of the episode's own message afterwards."""
        one = self._episodes[place]
        return own if one.turn else derive_seed(one.run_seed, one.task.id, 0)

    def _groups(self, asked: Mapping[int, Any]) -> dict[int, list[list[int]]]:
        """Completions wanted of a prompt → groups of episodes that share it.

        First messages of a task are drawn as one group that shares its prefill, from sample 0 to
        the highest one that is wanted: sample j draws the same, however many run beside it and
        when it is tried again. Afterwards each stands alone.
        """
        groups: dict[tuple[Any, ...], list[int]] = {}
        for place, (ids, _, _) in asked.items():
            one = self._episodes[place]
            key = (place,) if one.turn else (id(one.task), one.run_seed, tuple(ids))
            groups.setdefault(key, []).append(place)
        out: dict[int, list[list[int]]] = {}
        for group in groups.values():
            first = [self._episodes[place] for place in group if not self._episodes[place].turn]
            out.setdefault(max((e.sample for e in first), default=0) + 1, []).append(group)
        return out
