"""One episode: ask the model, let the environment react, append, until one of them is done or a
budget is used up."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from assay.seeds import derive_seed
from assay.task import Task
from rollouts.conversation import (
    ChatConversation,
    ChatReply,
    ContextFull,
    Heard,
    TokenConversation,
)
from rollouts.environment import Budget, Environment, EpisodeEnd, ModelTurn, Reply
from rollouts.failures import FORESEEN, bug_report
from rollouts.tool_calls import ToolSpec
from rollouts.trajectory import UNTOLD, Completion, EpisodeStop, Sampling, Trajectory


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
        self._closing = EpisodeEnd()
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
        if isinstance(completion, Completion) and completion.failure is not None:
            self._failure = completion.failure
            self._end("error")
            return
        last = self.turn >= self.budget.turns
        left = self.budget.seconds - self._tool_s
        said = ModelTurn(heard.text, heard.calls, heard.cut, self.turn - 1, last, left)
        reply = await self._environment.reply(said)
        self._react(reply, heard, last)

    def _react(self, reply: Reply, heard: Heard, last: bool) -> None:
        self._records += [{"turn": self.turn - 1, **record} for record in reply.records]
        self._errors.update(reply.errors)
        self._tool_s += reply.seconds
        if reply.context is not None and not (reply.done or last):
            self.talk.rewrite(reply.context, reply.messages)
        elif reply.messages and not (reply.done or last):
            self.talk.add(reply.messages)
        if reply.done:
            self._end("done")
        elif not reply.messages and reply.context is None:
            self._end("length" if heard.cut else "eos")
        elif last:
            self._end("length" if heard.cut else "turns")
        elif self._tool_s >= self.budget.seconds:
            self._end("time")
        elif self.room(1) < 1:
            self._end("length")

    def full(self) -> None:
        """End because the model cannot read a longer conversation."""
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
        held = self.talk if isinstance(self.talk, TokenConversation) else None
        tokens = None if held and held.rewritten else held
        untold = self.talk.untold if isinstance(self.talk, ChatConversation) else 0
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
            notes={**left.notes, **self._notes, **({UNTOLD: untold} if untold else {})},
            usage=dict(self.talk.usage) if tokens is None else {},
            tokenizer=tokens.made_by if tokens else "",
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
            except ContextFull:
                episode.full()
                break
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
        return await ask.chat(talk.sent, talk.tools, sampling, seed)
    assert callable(ask)
    return await ask(talk.prompt(), sampling, seed)
