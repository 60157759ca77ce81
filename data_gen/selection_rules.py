"""Which rollouts to keep: FV, AV, BV and DV of DARE-bench's appendix L (spec section 11).

Settled here, because the paper leaves it open: variance is that of the population; rollouts
without an outcome (infrastructure) are not there; a kept rollout is always valid, under BV and DV
too, unless `allow_invalid`; ties go to the faster one, then to the smaller sample number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, pvariance
from typing import Any, Literal

from assay.task import TaskError

FastestBy = Literal["wall_clock", "cost"]
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Rules:
    """Thresholds by track; tracks that are not named take `otherwise` and are judged like IF.

    `valid`: the least outcome that is kept; `spread`: the least variance of a task's outcomes
    under BV and DV, for tracks whose scores between 0 and 1 matter.
    """

    valid: Mapping[str, float] = field(
        default_factory=lambda: {
            "class-IF": 1.0,
            "reg-IF": 1.0,
            "class-MM": 0.8,
            "reg-MM": 0.7,
            "time-XF": 0.6,
            "time-CF": 0.3,
        }
    )
    spread: Mapping[str, float] = field(
        default_factory=lambda: {
            "class-MM": 0.15,
            "reg-MM": 0.15,
            "time-XF": 0.15,
            "time-CF": 0.1,
        }
    )
    otherwise: float = 1.0
    fastest_by: FastestBy = "wall_clock"
    allow_invalid: bool = False

    def is_valid(self, row: Row) -> bool:
        return float(row["outcome"]) >= self.valid.get(str(row["track"]), self.otherwise)

    def graded(self, track: str) -> bool:
        """Whether scores between 0 and 1 matter; else only right or wrong does."""
        return track in self.spread

    def diverse(self, rows: Sequence[Row]) -> bool:
        """IF: one right and one wrong (0); graded tracks: enough variance; tracks that are not
        named: one that is valid and one that is not."""
        track, scores = str(rows[0]["track"]), [float(r["outcome"]) for r in rows]
        if self.graded(track):
            return pvariance(scores) >= self.spread[track]
        least = self.valid.get(track, self.otherwise)
        wrong = min(scores) == 0.0 if track in self.valid else min(scores) < least
        return max(scores) >= least and wrong

    def speed(self, row: Row) -> tuple[float, int]:
        """What "fastest" goes by: seconds, or tokens written and calls made (a call as 100)."""
        if self.fastest_by == "wall_clock":
            return float(row.get("wall_s") or 0.0), int(row["sample"])
        calls = int(row.get("calls") or 0)
        return float(row["tokens"] + 100 * calls), int(row["sample"])


UNREADABLE = "has a tool call that cannot be read"
SILENT = "says nothing"


@dataclass(frozen=True)
class Caps:
    """What a strategy leaves open. 0: no cap. `deduplicate` compares rollouts by their field
    `said`, the hash of what was said."""

    per_task: int = 0
    per_track: int = 0
    deduplicate: bool = False

    def __post_init__(self) -> None:
        for name in ("per_task", "per_track"):
            if getattr(self, name) < 0:
                raise TaskError(f"{name}={getattr(self, name)}: wanted 0 (no cap) or more")


# strategy → (whether the task must be diverse, how many of its best good rows are kept, 0: all)
PICK = {"fv": (False, 1), "av": (False, 0), "bv": (True, 1), "dv": (True, 2)}


def pick(
    rows: Sequence[Row],
    strategy: str,
    rules: Rules,
    dropped: Counter[str],
    caps: Caps | None = None,
) -> list[Row]:
    """What a strategy keeps of one task's rollouts, in order of rank; `dropped` counts the others
    by reason. Raises `TaskError` for a strategy that does not exist."""
    caps = caps or Caps()
    if strategy not in PICK:
        raise TaskError(f"strategy {strategy!r}: wanted one of {', '.join(PICK)}")
    needs_diversity, most = PICK[strategy]
    group = sorted(
        (r for r in rows if r.get("outcome") is not None), key=lambda r: int(r["sample"])
    )
    _count(dropped, "no outcome (infrastructure)", len(rows) - len(group))
    if group and needs_diversity and not rules.diverse(group):
        _count(dropped, "task not diverse", len(group))
        return []
    good = [r for r in group if rules.allow_invalid or rules.is_valid(r)]
    if group:
        dropped["not valid"] += len(group) - len(good)
    for why in {str(r["unlearnable"]) for r in good if r.get("unlearnable")}:
        # one that is right and says nothing stays, for the caller to refuse
        others = [
            r for r in good if r.get("unlearnable") != why or (why == SILENT and rules.is_valid(r))
        ]
        _count(dropped, why, len(good) - len(others))
        good = others
    if caps.deduplicate:
        good, valid = list({r["said"]: r for r in reversed(good)}.values())[::-1], len(good)
        _count(dropped, "says what another one says", valid - len(good))
    if not good:
        return []
    best = _best(good, rules)
    chosen = best[:most] if most else good
    if strategy == "dv" and rules.graded(str(group[0]["track"])):
        mean = fmean(float(r["outcome"]) for r in group)
        chosen = [r for r in chosen if float(r["outcome"]) > mean]
    dropped["not among the best"] += len(good) - len(chosen)
    if caps.per_task and len(chosen) > caps.per_task:
        _count(dropped, "over the cap of its task", len(chosen) - caps.per_task)
        kept = {int(r["sample"]) for r in best[: caps.per_task]}
        chosen = [r for r in chosen if int(r["sample"]) in kept]
    return chosen


def _count(dropped: Counter[str], why: str, rows: int) -> None:
    if rows:
        dropped[why] += rows


def _best(good: Sequence[Row], rules: Rules) -> list[Row]:
    """By speed where only right or wrong counts, by score elsewhere."""
    if rules.graded(str(good[0]["track"])):
        return sorted(good, key=lambda r: (-float(r["outcome"]), rules.speed(r)))
    return sorted(good, key=lambda r: (not rules.is_valid(r), rules.speed(r)))
