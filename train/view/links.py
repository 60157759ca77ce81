"""The address of one rollout in a page: the part of a link behind `#`."""

from __future__ import annotations

from urllib.parse import quote

PAGE = "view.html"
TRAINING, ANSWERS, EVALUATION = "training", "rollouts", "evaluation"  # names of sets


def fragment(set_name: str, step: int | None, task: str, sample: int, again: int = 0) -> str:
    """`/set/step/task/sample`, and a count where several rollouts have the same four."""
    parts = [set_name, "-" if step is None else str(step), task, str(sample)]
    parts += [str(again)] if again else []
    return "/" + "/".join(quote(part, safe="", errors="replace") for part in parts)
