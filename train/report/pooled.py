# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""Several runs as numbers: which are seeds of one setting, and what they come to together. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from train.evaluation.comparing import Comparison, Pair, compare_pairs, pairs_of
from train.evaluation.results import TRAINED, draw_of, is_baseline, named_rows
from train.evaluation.tables import Cell, Draw, cell

Row = Mapping[str, Any]
# settings that do not make a run another setting: draws, places, and how it was logged
NO_SETTING = ("seed", "out", "log", "checkpoint", "bootstrap", "bootstrap_seed")


@dataclass(frozen=True)
class One:
    """One run as its folder holds it. `data` is {} where nothing was evaluated."""

    label: str
    folder: Path
    data: Mapping[str, Any]
    metrics: Sequence[Mapping[str, Any]]
    record: Mapping[str, Any]

    @property
    def rows(self) -> dict[str, list[Any]]:
        return named_rows(self.data) if self.data else {}

    @property
    def seed(self) -> Any:
        return self.record.get("seed", (self.data.get("meta") or {}).get("seed"))

    @property
    def settings(self) -> dict[str, Any]:
        """Dotted setting → value, without draws and places."""
        meta = self.data.get("meta") or {}
        held = self.record.get("config") or {
            "eval": meta.get("settings"),
            "model": meta.get("model"),
        }
        return dict(_flat(held))

    @property
    def models(self) -> list[str]:
        """What answered, baselines left out; those that training made last."""
        return [name for name in self.rows if not is_baseline(name)] or list(self.rows)


def _flat(value: Any, head: str = "") -> Iterator[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        yield head, value
        return
    for name, part in value.items():
        if name not in NO_SETTING:
            yield from _flat(part, f"{head}.{name}" if head else str(name))


def groups(runs: Sequence[One]) -> list[list[One]]:
    """Runs of the same settings together, in the order in which the first of each came."""
    found: dict[str, list[One]] = {}
    for run in runs:
        held = run.settings
        known = any(value is not None for value in held.values())
        key = json.dumps(held, sort_keys=True, default=str) if known else run.label
        found.setdefault(key, []).append(run)
    return list(found.values())


def differing(runs: Sequence[One]) -> dict[str, list[str]]:
    """Setting → its value in each run, where two runs that have it differ in it."""
    held = [run.settings for run in runs]
    names = dict.fromkeys(name for mine in held for name in mine)
    differs = (n for n in names if len({str(mine[n]) for mine in held if n in mine}) > 1)
    return {n: [str(mine.get(n, "–")) for mine in held] for n in differs}


def are_seeds(group: Sequence[One]) -> bool:
    """Whether the runs of a group may be pooled: one run twice is no second seed."""
    return len(group) > 1 and len({str(run.seed) for run in group}) == len(group)


def pooled(group: Sequence[One], name: str) -> tuple[Cell, list[float]]:
    """A model's answers in all runs of a group as one cell, its interval clustered by source over
    the runs; and the mean outcome of each run."""
    rows = [{"family": "", **row} for run in group for row in run.rows.get(name, [])]
    single = [cell(run.rows[name], Draw(1))["mean_outcome"] for run in group if run.rows.get(name)]
    return cell(rows, draw_of(group[0].data)), [value for value in single if value is not None]


def stages(group: Sequence[One]) -> list[tuple[Comparison, list[float]]]:
    """What each stage changed, pooled over the runs of a group, and the difference in each run.
    Tasks are paired within their run: those of another seed are other tasks."""
    there = [name for name in TRAINED if all(name in run.rows for run in group)]
    found: list[tuple[Comparison, list[float]]] = []
    for before, after in pairwise(there):
        made = [pairs_of(run.rows[before], run.rows[after]) for run in group]
        found.append(_together(before, after, made, draw_of(group[0].data)))
    return found


def _together(
    before: str, after: str, made: Sequence[Sequence[Pair]], draw: Draw
) -> tuple[Comparison, list[float]]:
    every = [pair for pairs in made for pair in pairs]
    each = [fmean(pair.after - pair.before for pair in pairs) for pairs in made if pairs]
    return compare_pairs(before, after, every, draw), each


def between(first: Sequence[One], other: Sequence[One]) -> tuple[Comparison, list[float]] | None:
    """The last model of two groups on the tasks that both asked: runs of one seed against each
    other where both have it. None without a shared task."""
    made: list[list[Pair]] = []
    for a in first:
        for b in other:
            if len(first) > 1 and len(other) > 1 and a.seed != b.seed:
                continue
            if a.models and b.models:
                made.append(same_tasks(a.rows[a.models[-1]], b.rows[b.models[-1]]))
    made = [pairs for pairs in made if pairs]
    if not made:
        return None
    return _together(first[0].label, other[0].label, made, draw_of(first[0].data))


def same_tasks(before: Sequence[Row], after: Sequence[Row]) -> list[Pair]:
    """Pairs of rows that answer the same task. Another seed's task may have the same id: its
    source, slices or prompt then differ."""
    known = {str(row["task_id"]): _mark(row) for row in before}
    return pairs_of(before, [r for r in after if known.get(str(r["task_id"])) == _mark(r)])


def _mark(row: Row) -> str:
    held = [row.get(name) for name in ("family", "source", "label", "slices", "prompt")]
    return json.dumps(held, sort_keys=True, default=str)
