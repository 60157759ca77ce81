"""Tasks of Harbor directories, scored by their own verifier when an episode ends."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, cast

from assay.family import Answer, Family
from assay.task import Score, Task

REWARD = "reward.json"  # what an episode leaves: the numbers of the verifier by name


def read_rewards(data: bytes) -> dict[str, float]:
    """The verifier's numbers: an object, or one number, which is the reward. Raises ValueError."""
    try:
        found: Any = json.loads(data)
    except RecursionError:
        raise ValueError("nested too deep") from None
    row = cast("dict[str, Any]", found) if isinstance(found, dict) else {"reward": found}
    numbers: dict[str, float] = {}
    for name, value in row.items():
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"{name} is {value!r}, no finite number")
        numbers[name] = float(value)
    if not numbers:
        raise ValueError("no numbers")
    return numbers


def of_rewards(numbers: Mapping[str, float]) -> Score:
    """`reward` is the number of that name, else the mean of all between 0 and 1; `outcome` is the
    number of that name, else the reward, between 0 and 1."""
    mean = sum(numbers.values()) / len(numbers)
    reward = numbers.get("reward", _share(mean))
    outcome = _share(numbers.get("outcome", reward))
    why = "ok" if outcome == 1.0 else "partly" if outcome else "wrong"
    parts = {n: v for n, v in numbers.items() if n not in ("reward", "outcome")}
    return Score(outcome, reward, parts, why)


def _share(value: float) -> float:
    return min(1.0, max(0.0, value))


def score_verified(task: Task, answer: Answer) -> Score:
    """What the verifier said; 0 for an answer that no episode led to. An episode whose verifier
    failed is not scored here: its environment says that it has no outcome."""
    del task
    data = answer.files.get(REWARD)
    if data is None:
        return Score(0.0, 0.0, {}, "no_episode")
    try:
        return of_rewards(read_rewards(data))
    except ValueError as error:
        return Score(0.0, 0.0, {}, f"unreadable: {error}")


def _gold(task: Task) -> Answer:
    """What the solution earned when it was run at the import."""
    return Answer(files={REWARD: json.dumps(task.gold["oracle"]).encode()})


HARBOR = Family(name="harbor", score=score_verified, gold=_gold)
