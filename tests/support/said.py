"""A chat engine that says given messages in turn, whatever it is asked, and keeps what it read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import WarmFactory

from assay.task import Task
from rollouts.conversation import ChatReply
from rollouts.environment import Budget
from rollouts.environments import ToolSettings
from rollouts.episode import Episode
from rollouts.event_loop import asyncio_run
from rollouts.tool_calls import FORMATS
from rollouts.trajectory import Sampling, Trajectory


class Says:
    """Its last message is said again when there are no more."""

    def __init__(self, replies: Sequence[str]) -> None:
        self.replies, self.asked = list(replies), list[list[dict[str, Any]]]()

    async def chat(
        self, messages: Sequence[Mapping[str, Any]], tools: Any, sampling: Sampling, seed: int
    ) -> ChatReply:
        text = self.replies[min(len(self.asked), len(self.replies) - 1)]
        self.asked.append([dict(m) for m in messages])
        calls = FORMATS["hermes"].read(text)
        return ChatReply(text, calls, "eos", {"prompt_tokens": 100, "completion_tokens": 10})


def act(
    task: Task, replies: Sequence[str], turns: int = 60, steps: int = 20
) -> tuple[Trajectory, Says]:
    """An episode of a task with such an engine, and the engine."""

    async def go() -> Trajectory:
        shop = WarmFactory(Path("/"), ToolSettings(steps=steps))
        shop.announce([task])
        one = Episode(task, 0, 0, shop.maker, Budget(turns=turns))
        return await one.play(said, Sampling(512))

    said = Says(replies)
    return asyncio_run(go()), said
