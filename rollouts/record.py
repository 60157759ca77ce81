"""One line of a rollouts file."""

from __future__ import annotations

from typing import Any

from rewards.task import Score, Task
from rollouts.trajectory import Trajectory


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
