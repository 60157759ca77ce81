"""One line of a rollouts file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from assay.task import Score, Task
from rollouts.trajectory import Trajectory


def _known(logprobs: Sequence[float]) -> list[float | None]:
    """None for what a server did not tell."""
    return [None if math.isnan(x) else round(x, 6) for x in logprobs]


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
        "family": task.family,
        "track": task.track,
        "ids": trajectory.ids,
        "loss_mask": trajectory.loss_mask,
        "tokenizer": trajectory.tokenizer,  # whose ids these are: others' mean nothing to a model
        "logprobs": _known(trajectory.logprobs),
        "sampling_logprobs": _known(trajectory.sampling_logprobs),
        "messages": trajectory.messages,  # what `assay select` makes a training row of
    }
    if trajectory.told:
        row["thought"] = trajectory.told  # what an endpoint told apart; other thoughts are in text
    if task.meta.get("published") or task.gold.get("doubt"):
        row["published"] = True  # `assay select` refuses it
    if licence := task.meta.get("licence"):
        row["licence"] = str(licence)  # `assay select --licence` goes by it
    if licences := task.meta.get("licences"):
        row["licences"] = licences
    if trajectory.usage:
        row["usage"] = dict(trajectory.usage)
    if trajectory.files:
        row["files"] = {name: len(data) for name, data in sorted(trajectory.files.items())}
    if trajectory.failure is not None or task.tools:
        row["failure"] = trajectory.failure
    if not task.tools:
        return row
    return row | {
        "turns": trajectory.turns,
        "tool_calls": trajectory.tool_calls,
        "errors": dict(trajectory.errors),
        "tools": trajectory.tools,
        "notes": dict(trajectory.notes),
        "sandbox": trajectory.notes.get("sandbox"),  # the level that held, None: it never ran
        "files": {name: len(data) for name, data in sorted(trajectory.files.items())},
        "wall_s": round(trajectory.wall_s, 6),
        "tool_s": round(trajectory.tool_s, 6),
    }
