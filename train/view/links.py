"""The address of one rollout in a page: the part of a link behind `#`."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

PAGE = "view.html"
TRAINING, ANSWERS, EVALUATION = "training", "rollouts", "evaluation"  # names of sets


def fragment(set_name: str, step: int | None, task: str, sample: int, again: int = 0) -> str:
    """`/set/step/task/sample`, and a count where several rollouts have the same four."""
    parts = [set_name, "-" if step is None else str(step), task, str(sample)]
    parts += [str(again)] if again else []
    return "/" + "/".join(_quoted(part) for part in parts)


def list_fragment(words: Mapping[str, str]) -> str:
    """The list of the rollouts that pass a filter: facet → value, such as `set`, `step`, `outcome`
    (right, partly, wrong, none), `why`, `stop`, `label`, `said`, `slice:NAME`. `left`, `right` and
    `differ` (outcome, up, down) ask for two sets side by side."""
    said = (f"{_quoted(name)}={_quoted(value)}" for name, value in words.items())
    return "?" + "&".join(said)


def _quoted(part: str) -> str:
    return quote(part, safe="", errors="replace")
