"""The seam between an episode and what a model acts on: a tool, a code runner, a data lake."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from assay.task import Task
from rollouts.tool_calls import ToolCall, ToolSpec


@dataclass(frozen=True)
class EpisodeStart:
    """The first messages of a conversation, and the tools its model is shown."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[ToolSpec] = ()


@dataclass(frozen=True)
class ModelTurn:
    """One model message. `calls` are read already, unreadable ones included; `cut`: a token
    limit ended it; `last`: no message can follow; `turn` counts from 0; `seconds`: how long tools
    of this episode may still run."""

    text: str
    calls: Sequence[ToolCall]
    cut: bool
    turn: int
    last: bool
    seconds: float = math.inf


@dataclass(frozen=True)
class Reply:
    """The environment's answer: messages to append, and whether the episode is over.

    `records` one a call (any JSON), `errors` what the model did wrong by kind, `seconds` how long
    tools ran. `context`: the whole conversation that the model reads next, of an agent that writes
    it anew for every message; then `messages` are for the record alone.
    """

    messages: Sequence[Mapping[str, Any]] = ()
    done: bool = False
    records: Sequence[dict[str, Any]] = ()
    errors: Mapping[str, int] = field(default_factory=dict[str, int])
    seconds: float = 0.0
    context: Sequence[Mapping[str, Any]] | None = None

    def then(self, other: Reply) -> Reply:
        """This one and the next in one; `context` is left out."""
        return Reply(
            [*self.messages, *other.messages],
            self.done or other.done,
            [*self.records, *other.records],
            Counter(self.errors) + Counter(other.errors),
            self.seconds + other.seconds,
        )


@dataclass(frozen=True)
class EpisodeEnd:
    """What is left at the end: files to score, and notes for the record."""

    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    notes: Mapping[str, Any] = field(default_factory=dict[str, Any])


class EnvironmentFailure(RuntimeError):
    """The infrastructure broke. The episode ends without an outcome; it is tried once more."""


class Environment(Protocol):
    """One episode's surroundings. `OSError`, `SandboxError` and `EnvironmentFailure` from any
    method mean that the infrastructure broke; what a model did wrong is a `Reply`. Any other
    exception is a bug, and ends this episode without an outcome."""

    async def open(self) -> EpisodeStart:
        """Prepare, and say how the conversation starts. The same task gives the same opening."""
        ...

    async def reply(self, said: ModelTurn) -> Reply:
        """React to one message. A reply without messages that is not `done` ends the episode."""
        ...

    async def close(self) -> EpisodeEnd:
        """Let go of everything; called once, also after a failure or a cancellation."""
        ...


# (task, sample, seed of this episode) → its environment
Maker = Callable[[Task, int, int], Environment]


def shared_name(path: Path) -> str:
    """What the sandbox calls a folder that episodes share, such as a lake."""
    return "lake-" + hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Budget:
    """Bounds of one episode. `seconds` counts the time that tools run, so that waiting for other
    episodes costs nothing; `tokens` bounds the whole sequence (0: no bound)."""

    turns: int = 5
    seconds: float = 1000.0
    tokens: int = 0

    def __post_init__(self) -> None:
        if self.turns < 1:
            raise ValueError(f"turns={self.turns}: an episode needs one model message; set 1")
        if self.seconds <= 0:
            raise ValueError(f"seconds={self.seconds}: set a number above 0")
        if self.tokens < 0:
            raise ValueError(f"tokens={self.tokens}: set 0 (no bound) or more")
