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
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from assay.task import Task, TaskError, derive_seed
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
from rollouts.trajectory import (
    UNTOLD,
    Completion,
    EpisodeStop,
    Sampling,
    Trajectory,
    retried,
)

BROKEN = (OSError, SandboxError, EnvironmentFailure)  # what counts as infrastructure
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
    """One conversation about a task. `maker` makes the environment of a task with tools.
    `tokenizer` is the model's where token ids are drawn; `turn` counts the model's messages.

    Where the infrastructure broke it is played `again`, once, from its start: a task with tools
    where nothing else is said (without tools all there is to break are requests, which their
    client tries again).
    """

    def __init__(
        self,
        task: Task,
        sample: int,
        run_seed: int,
        maker: Maker | None = None,
        budget: Budget | None = None,
        tokenizer: ChatTokenizer | None = None,
        again: bool = False,
    ) -> None:
        if task.tools and maker is None:
            raise TaskError(
                f"task {task.id} needs {', '.join(task.tools)}; give rollout an environment"
            )
        self.task, self.sample, self.run_seed = task, sample, run_seed
        self._maker = maker if maker is not None and task.tools else SingleTurn
        self._budget, self._tokenizer = budget or Budget(), tokenizer
        self._again = again or bool(task.tools)
        self._begin()

    def _begin(self) -> None:
        words = self._tokenizer
        self._talk = ChatConversation() if words is None else TokenConversation(words)
        self.turn, self._text, self._tool_s = 0, "", 0.0
        self._failure: str | None = None
        self._notes: dict[str, Any] = {}
        self._records: list[dict[str, Any]] = []
        self._errors: Counter[str] = Counter()

    async def play(
        self, engine: Ask | ChatEngine, sampling: Sampling, over: Callable[[], None] | None = None
    ) -> Trajectory:
        """The conversation from its opening to its end. `over` is called when no further message
        is asked for, before the environment closes.

        Raises nothing but bad input (`TaskError`) and a cancellation: what breaks, a bug included,
        ends this episode with a `failure`.
        """
        found = await self._attempt(engine, sampling, over)
        if found.failure is None or not self._again:
            return found
        self._begin()
        return retried(found, await self._attempt(engine, sampling, over))

    async def _attempt(
        self, engine: Ask | ChatEngine, sampling: Sampling, over: Callable[[], None] | None
    ) -> Trajectory:
        started = time.perf_counter()
        seed = derive_seed(self.run_seed, self.task.id, self.sample)
        environment: Environment | None = None
        start, end = EpisodeStart([]), EpisodeEnd()
        stop: EpisodeStop | None = None
        try:
            environment = self._maker(self.task, self.sample, seed)
            start = await environment.open()
            self._talk.start(start)
            while stop is None:
                stop = await self._next(environment, engine, sampling)
        except TaskError:
            raise
        except Exception as error:
            self._broke(error)
        finally:  # also when this is cancelled
            wall_s = time.perf_counter() - started
            if over is not None:
                over()
            try:
                if environment is not None:
                    end = await environment.close()
            except TaskError:
                raise
            except Exception as error:
                self._broke(error)
        untold = {UNTOLD: self._talk.untold} if self._talk.untold else {}
        return Trajectory(
            task_id=self.task.id,
            sample=self.sample,
            stop="error" if self._failure is not None or stop is None else stop,
            text=self._text,
            seed=seed,
            turns=self.turn,
            tool_calls=self._records,
            wall_s=wall_s,
            tool_s=self._tool_s,
            messages=self._talk.messages,
            tools=[tool.schema() for tool in start.tools],
            files=end.files,
            failure=self._failure,
            errors=dict(self._errors),
            notes={**end.notes, **self._notes, **untold},
            **self._talk.fields(),
        )

    async def _next(
        self, environment: Environment, engine: Ask | ChatEngine, sampling: Sampling
    ) -> EpisodeStop | None:
        """One message of the model, and what the environment makes of it; why the episode ends, if
        it does."""
        budget, talk = self._budget, self._talk
        if talk.room(1, budget) < 1:
            return "length"
        room = talk.room(sampling.max_new_tokens, budget)
        seed = derive_seed(self.run_seed, self.task.id, self.sample, self.turn)
        prompt = talk.prompt()
        try:
            message = await talk.ask(engine, prompt, replace(sampling, max_new_tokens=room), seed)
        except TaskError:
            raise
        except ContextFull:
            return "length"
        except Exception as error:
            self._broke(error, "engine: ")
            return "error"
        self.turn += 1
        self._text, calls, cut = talk.hear(message, room)
        if isinstance(message, Completion) and message.failure is not None:
            self._failure = message.failure
            return "error"
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
            return "done"
        answered = bool(reply.messages) or reply.context is not None
        if last or not answered:
            return "length" if cut else "turns" if answered else "eos"
        return "time" if self._tool_s >= budget.seconds else None

    def _broke(self, error: Exception, where: str = "") -> None:
        """End without an outcome; the first thing that broke is the one that is told."""
        said = f"{type(error).__name__}: {error}"[:500]
        if isinstance(error, BROKEN):
            notes: dict[str, Any] = getattr(error, "notes", None) or {}  # of an `EndpointError`
        else:  # nobody foresaw it
            said = f"bug: {said}"
            notes = {"bug": "".join(traceback.format_exception(error))[-_REPORT:]}
        if self._failure is None:
            self._failure = where + said
        self._notes = {**notes, **self._notes}


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
    where the same task stands there again, from a run seed of its own.

    Tasks that name tools run in the environments that `maker` gives (needed only then).
    """
    seen: Counter[str] = Counter()
    items: list[tuple[Task, int, int]] = []
    for task in tasks:
        again = seen[task.id]
        seed = derive_seed(run_seed, "again", again) if again else run_seed
        items += [(task, j, seed) for j in range(n)]
        seen[task.id] += 1
    found: dict[int, Trajectory] = {}
    for acting in (False, True):
        chosen = [i for i, (task, _, _) in enumerate(items) if bool(task.tools) == acting]
        bounds = budget if acting else Budget(turns=1)
        episodes = [Episode(*items[i], maker, bounds, tokenizer) for i in chosen]
        how = sampling if acting else replace(sampling, last=True)
        for i, run in zip(chosen, await _Rounds(engine, episodes).play(how), strict=True):
            # without tools all samples draw from their group's seed
            seed = run.seed if acting else derive_seed(items[i][2], run.task_id, 0)
            found[i] = replace(run, seed=seed)
    return [[found[k * n + j] for j in range(n)] for k in range(len(tasks))]


@dataclass
class _Request:
    """A message that an episode waits for.

    First messages of a task are drawn as one group (`key`) that shares its prefill, from sample 0
    to the highest one that is wanted: sample j draws the same, however many run beside it and when
    it is tried again. `draw` is the number in the group. Afterwards each message stands alone.
    """

    ids: Sequence[int]
    sampling: Sampling
    seed: int
    key: Hashable
    draw: int
    heard: asyncio.Future[Completion] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class _Rounds:
    """One engine for episodes that are played side by side: it is asked when every one of them
    waits for a message or has ended. So the batches, and with them the bits, depend on nothing but
    the tasks and the seeds."""

    def __init__(self, engine: Engine, episodes: Sequence[Episode]) -> None:
        self._engine, self._episodes = engine, episodes
        self._playing = set(range(len(episodes)))  # those that a round waits for
        self._asked: dict[int, _Request] = {}  # by the episode's place
        self._complete = asyncio.Event()

    async def play(self, sampling: Sampling) -> list[Trajectory]:
        """The trajectories, in order. Raises what the engine raises, once all are closed."""
        started = time.perf_counter()
        try:
            async with asyncio.TaskGroup() as group:
                answering = group.create_task(self._answer())
                playing = [
                    group.create_task(
                        one.play(partial(self._ask, place), sampling, partial(self._over, place))
                    )
                    for place, one in enumerate(self._episodes)
                ]
                await asyncio.gather(*playing)
                answering.cancel()
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        share = (time.perf_counter() - started) / max(len(playing), 1)
        return [replace(one.result(), wall_s=share) for one in playing]

    def _over(self, place: int) -> None:
        self._playing.discard(place)
        self._look()

    async def _ask(
        self, place: int, ids: Sequence[int], sampling: Sampling, seed: int
    ) -> Completion:
        one = self._episodes[place]
        if one.turn:
            request = _Request(ids, sampling, seed, place, 0)
        else:
            key = (id(one.task), one.run_seed, tuple(ids))
            seed = derive_seed(one.run_seed, one.task.id, 0)
            request = _Request(ids, sampling, seed, key, one.sample)
        self._asked[place] = request
        self._playing.add(place)  # one that is played again had ended
        self._look()
        return await request.heard

    def _look(self) -> None:
        if self._asked.keys() == self._playing:
            self._complete.set()

    async def _answer(self) -> None:
        """Answer round after round."""
        while True:
            await self._complete.wait()
            self._complete.clear()
            groups: dict[Hashable, list[_Request]] = {}
            for _, one in sorted(self._asked.items()):
                groups.setdefault(one.key, []).append(one)
            self._asked.clear()
            by_width: dict[int, list[list[_Request]]] = {}
            for group in groups.values():
                by_width.setdefault(max(one.draw for one in group) + 1, []).append(group)
            for width, some in by_width.items():
                # room for the longest of the round; who may have less is cut
                most = max(
                    one.sampling.max_new_tokens for group in groups.values() for one in group
                )
                how = replace(some[0][0].sampling, max_new_tokens=most)
                prompts, seeds = [g[0].ids for g in some], [g[0].seed for g in some]
                drawn = await self._engine.generate(prompts, how, width, seeds)
                for group, completions in zip(some, drawn, strict=True):
                    for one in group:
                        one.heard.set_result(completions[one.draw])
