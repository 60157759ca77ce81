"""A chat engine that replays written answers: a run of an agent without a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from rewards.task import TaskError, read_jsonl
from rollouts.conversation import ChatReply
from rollouts.tools import call_format
from rollouts.trajectory import Sampling


class CannedEngine:
    """Rows `{"match": text, "replies": [text, …]}`: the first row whose `match` occurs in the
    conversation answers, its n-th reply in the n-th turn and its last one from then on."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], calls: str = "hermes") -> None:
        self._rows, self._calls = rows, call_format(calls)

    @staticmethod
    def from_file(path: Path) -> CannedEngine:
        """Raises `TaskError` naming the line whose fields are wrong."""
        rows: list[dict[str, Any]] = []
        for number, row in read_jsonl(path):
            replies: Any = row.get("replies")
            if (
                not isinstance(row.get("match"), str)
                or not isinstance(replies, list)
                or not replies
            ):
                raise TaskError(f"{path} line {number}: wanted match (text) and replies (texts)")
            rows.append({"match": row["match"], "replies": cast("list[Any]", replies)})
        return CannedEngine(rows)

    async def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        sampling: Sampling,
        seed: int,
    ) -> ChatReply:
        """Words are counted as tokens, so that costs add up to something."""
        spoken = "\n".join(str(m["content"]) for m in messages)
        turn = sum(m["role"] == "assistant" for m in messages)
        row = next((r for r in self._rows if r["match"] in spoken), {"replies": [""]})
        text = str(row["replies"][min(turn, len(row["replies"]) - 1)])
        usage = {"prompt_tokens": len(spoken.split()), "completion_tokens": len(text.split())}
        return ChatReply(text, self._calls.read(text), "eos", usage)
