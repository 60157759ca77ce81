"""What a fuzzed reading is, and what it makes of an output."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from assay.task import Score


@dataclass(frozen=True)
class Read:
    """What one reading made of one output. `same` is compared with a second reading; `score` is
    checked where there is one; `gold` is what gold earns there."""

    same: object
    score: Score | None = None
    gold: Score | None = None


@dataclass(frozen=True)
class Reading:
    """A scorer or parser: gold to mutate for the case `pick`, and what it makes of an output."""

    name: str
    weight: int
    gold: Callable[[int], str]
    read: Callable[[int, str], Read]


def scored(score: Score, gold: Score) -> Read:
    return Read(json.dumps(score.to_json(), sort_keys=True), score, gold)
