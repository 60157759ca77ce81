"""Engines without a model: they say what a script says, through the same code as a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from assay.rows import read_rows
from assay.task import Task, TaskError, derive_seed
from rollouts.conversation import ChatReply
from rollouts.prompts import ChatTokenizer
from rollouts.tool_calls import CallFormat, call_format
from rollouts.trajectory import Completion, Sampling, Stop


@dataclass(frozen=True)
class Turn:
    """What a script sees: the whole conversation as text, and a seed to draw from. `number`: of the
    answers before, where messages are told apart."""

    conversation: str
    prompt: Sequence[int]
    seed: int
    number: int = 0


Script = Callable[[Turn], str]
# (task, tool answers so far, how calls are spelled) → what a scripted agent says
Solver = Callable[[Task, int, CallFormat], str]


class ScriptedEngine:
    """An `Engine` that encodes what `script` answers; every token has probability 1."""

    def __init__(self, script: Script, tokenizer: ChatTokenizer) -> None:
        self._script, self._tokenizer = script, tokenizer

    def update_weights(self) -> None:
        """There are none."""

    def release(self) -> None:
        """Nothing is kept."""

    def about(self) -> dict[str, str]:
        return {"engine": "scripted"}

    async def generate(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, n: int, seeds: Sequence[int]
    ) -> list[list[Completion]]:
        return [
            [self._one(prompt, sampling, derive_seed(seed, j)) for j in range(n)]
            for prompt, seed in zip(prompts, seeds, strict=True)
        ]

    def _one(self, prompt: Sequence[int], sampling: Sampling, seed: int) -> Completion:
        text = self._script(Turn(self._tokenizer.raw(prompt), prompt, seed))
        ids = self._tokenizer.answer(text)
        stop: Stop = "eos" if len(ids) <= sampling.max_new_tokens else "length"
        ids = ids[: sampling.max_new_tokens]
        zeros = [0.0] * len(ids)
        return Completion(ids, zeros, list(zeros), stop)


class ScriptedChat:
    """A `ChatEngine` over a script: the same episodes without a tokenizer, and so without ids."""

    def __init__(self, script: Script, calls: str = "hermes") -> None:
        self._script, self._calls = script, call_format(calls)

    async def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        sampling: Sampling,
        seed: int,
    ) -> ChatReply:
        """Words are counted as tokens, so that costs add up to something."""
        spoken = "\n".join(str(m["content"]) for m in messages)
        text = self._script(Turn(spoken, (), seed, sum(m["role"] == "assistant" for m in messages)))
        used = {"prompt_tokens": len(spoken.split()), "completion_tokens": len(text.split())}
        return ChatReply(text, self._calls.read(text), "eos", used)


class CannedEngine(ScriptedChat):
    """Rows `{"match": text, "replies": [text, …]}`: the first row whose `match` occurs in the
    conversation answers, its n-th reply in the n-th turn and its last one from then on."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], calls: str = "hermes") -> None:
        def say(turn: Turn) -> str:
            fitting = (r["replies"] for r in rows if r["match"] in turn.conversation)
            replies = next(fitting, [""])
            return str(replies[min(turn.number, len(replies) - 1)])

        super().__init__(say, calls)

    @staticmethod
    def from_file(path: Path) -> CannedEngine:
        """Raises `TaskError` naming the line whose fields are wrong."""
        rows: list[dict[str, Any]] = []
        for where, row in read_rows(path):
            replies: Any = row.get("replies")
            if not (isinstance(row.get("match"), str) and isinstance(replies, list) and replies):
                raise TaskError(f"{where}: wanted match (text) and replies (texts)")
            rows.append({"match": row["match"], "replies": cast("list[Any]", replies)})
        return CannedEngine(rows)
