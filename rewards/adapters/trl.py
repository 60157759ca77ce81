"""Our scorers as a reward function of TRL's GRPO trainer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from assay.family import score_answer
from assay.task import Answer
from rewards.adapters.rows import files_of, task_of


def trl_reward(
    completions: Sequence[Any],
    task: Sequence[Any],
    weights: Mapping[str, Any] | None = None,
    files: Sequence[Mapping[str, bytes | str] | None] | None = None,
    **unused: Any,
) -> list[float | None]:
    """A reward function for TRL's `GRPOTrainer`: the dataset needs a column `task` (JSON text).

    Completions are texts, or message lists whose last assistant message is scored; `files` what
    each left in files, for tasks that are answered there (a `rollout_func` returns such columns).
    None marks a rollout without an outcome, which TRL leaves out.
    """
    del unused
    if len(completions) != len(task):
        raise ValueError(f"{len(completions)} completions for {len(task)} tasks; wanted one each")
    left = files if files is not None else [None] * len(task)
    return [
        score_answer(task_of(row), Answer(last_message(said), files=files_of(made)), weights).reward
        for said, row, made in zip(completions, task, left, strict=True)
    ]


def last_message(completion: Any) -> str:
    """What the model said last: the text itself, or the last assistant message's content."""
    if isinstance(completion, str):
        return completion
    for message in reversed(cast("Sequence[Mapping[str, Any]]", completion)):
        if message.get("role") == "assistant":
            return str(message.get("content") or "")
    return ""
