"""Two runs on the same tasks: paired differences of outcome, clustered by source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from train.evaluation.stats import NOTHING, Interval, clustered_mean, mcnemar_exact
from train.evaluation.tables import Draw, ends, grouped, known, scored, source

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Comparison:
    """`after` minus `before` over the tasks both answered. `balanced` weighs classes alike (NaN
    where tasks have none); gained and lost count tasks whose outcome rose and fell; `p` is
    McNemar's, exact and two-sided."""

    before: str
    after: str
    n: int
    sources: int
    outcome: Interval
    balanced: Interval
    gained: int
    lost: int
    p: float

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"before": self.before, "after": self.after, "tasks": self.n}
        found["sources"] = self.sources
        for name, value in (("outcome", self.outcome), ("balanced", self.balanced)):
            found[name] = {"difference": known(value.value), "interval": ends(value)}
        return found | {"gained": self.gained, "lost": self.lost, "mcnemar_p": self.p}

    def line(self) -> str:
        """One line of text."""
        return f"{self.before} → {self.after}: outcome {self.said()}"

    def said(self) -> str:
        """The numbers of the line."""
        even = known(self.balanced.value)
        return (
            signed(self.outcome)
            + (f", balanced {signed(self.balanced)}" if even is not None else "")
            + f" on {self.n} tasks of {self.sources} sources, {self.gained} gained, "
            f"{self.lost} lost, McNemar p {self.p:.2g}"
        )


def signed(found: Interval) -> str:
    if known(found.value) is None:
        return "–"
    bounds = ends(found)
    return f"{found.value:+.3f}" + (f" [{bounds[0]:+.3f}, {bounds[1]:+.3f}]" if bounds else "")


@dataclass(frozen=True)
class Pair:
    """One task in both runs: mean outcomes over its samples."""

    row: Row
    before: float
    after: float


def pairs_of(before: Sequence[Row], after: Sequence[Row]) -> list[Pair]:
    """The tasks both runs have an outcome for, whatever their order."""
    old = grouped(scored(before), lambda row: str(row["task_id"]))
    new = grouped(scored(after), lambda row: str(row["task_id"]))
    return [
        Pair(rows[0], _mean(old[name]), _mean(rows)) for name, rows in new.items() if name in old
    ]


def _mean(rows: Sequence[Row]) -> float:
    return sum(float(row["outcome"]) for row in rows) / len(rows)


def compare_rows(
    before: str, after: str, old: Sequence[Row], new: Sequence[Row], draw: Draw | None = None
) -> Comparison:
    """Paired over the tasks that both answered."""
    return compare_pairs(before, after, pairs_of(old, new), draw)


def compare_pairs(
    before: str, after: str, pairs: Sequence[Pair], draw: Draw | None = None
) -> Comparison:
    draw = draw or Draw()
    gains = [pair.after - pair.before for pair in pairs]
    sources = [source(pair.row) for pair in pairs]
    classes = [str(pair.row.get("label") or "") for pair in pairs]
    even = (
        clustered_mean(gains, sources, classes, draw.resamples, draw.seed)
        if any(classes)
        else NOTHING
    )
    gained, lost = sum(g > 0 for g in gains), sum(g < 0 for g in gains)
    return Comparison(
        before=before,
        after=after,
        n=len(pairs),
        sources=len(set(sources)),
        outcome=clustered_mean(gains, sources, None, draw.resamples, draw.seed),
        balanced=even,
        gained=gained,
        lost=lost,
        p=mcnemar_exact(gained, lost),
    )
