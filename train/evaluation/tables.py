# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
# pyright: reportUnknownVariableType=false
"""Numbers of an evaluation, from its rows alone: overall, by family and by slice; two runs on the
same tasks compared; and tables of texts, shown as plain text, as Markdown and in the report.

`outcome` is the benchmark's metric, `reward` what RL sees; they are never mixed. A row without an
outcome counts nowhere but in `no_outcome`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.task import RIGHT
from train.evaluation.stats import (
    NOTHING,
    RESAMPLES,
    Interval,
    clustered_mean,
    mcnemar_exact,
    mean_interval,
    pass_at_k,
)

NONE = "–"
Lines = Sequence[Sequence[str]]  # headings first


@dataclass(frozen=True)
class Table:
    """A table of a benchmark: its first line has the headings, its first column what the lines are
    about. `curves`: the same numbers as named lines of (x, y) to be drawn over `across`."""

    title: str
    lines: Lines
    note: str = ""
    curves: Sequence[tuple[str, Sequence[tuple[float, float]]]] = ()
    across: str = ""


def aligned(lines: Lines) -> list[str]:
    """Columns of equal width, the first to the left, under a ruled head."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    out = [
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip()
        for line in lines
    ]
    return [out[0], "-" * max(map(len, out)), *out[1:]]


def markdown(lines: Lines) -> list[str]:
    head, *rest = [f"| {' | '.join(line)} |" for line in lines]
    return [head, "|---" * len(lines[0]) + "|", *rest]


def number(value: float | None, form: str = "{:.3f}") -> str:
    return NONE if value is None else form.format(value)


def percent(value: float | None, form: str = "{:.0%}") -> str:
    return number(value, form)


def points(value: float | None) -> str:
    """A fraction in per cent, without the sign."""
    return NONE if value is None else f"{100 * value:.2f}"


def with_interval(value: float | None, ends: Sequence[float] | None) -> str:
    if value is None:
        return NONE
    return f"{value:.3f}" + (f" [{ends[0]:.3f}, {ends[1]:.3f}]" if ends else "")


Row = Mapping[str, Any]
Cell = dict[str, Any]


@dataclass(frozen=True)
class Draw:
    """The bootstrap of every interval of a table."""

    resamples: int = RESAMPLES
    seed: int = 0


def tables(rows: Sequence[Row], draw: Draw | None = None) -> dict[str, Any]:
    """{"overall": cell, "by_family": {family: cell}, "by_slice": {family: {slice: {value: cell}}}}.

    A cell has `n` answers with an outcome, `tasks`, `sources`, `mean_outcome`, its 95 % `interval`
    clustered by source (None where there is a single source), `mean_reward` and `no_outcome`; where
    instances are asked in several ways `rs@k`, and where groups are whole `ocs@k` (`_wholes`).
    Those overall and by family have more (`detail`).
    """
    draw = draw or Draw()
    families = grouped(rows, lambda row: str(row["family"]))
    by_family = {name: detail(mine, draw) for name, mine in families.items()}
    one = next(iter(by_family.values())) if len(by_family) == 1 else None
    return {
        "overall": one or detail(rows, draw),
        "by_family": by_family,
        "by_slice": {name: slices(mine, draw) for name, mine in families.items()},
    }


def slices(rows: Sequence[Row], draw: Draw) -> dict[str, dict[str, Cell]]:
    """Slice → value → cell, values in the order of their names. A slice that cuts instances or
    groups apart has no numbers of them."""
    names = dict.fromkeys(name for row in rows for name in row.get("slices") or {})
    of_instance = Counter(map(_instance, rows))
    of_group = Counter(str(row["group"]) for row in rows if row.get("group"))
    found: dict[str, dict[str, Cell]] = {}
    for name in names:
        having = [row for row in rows if name in (row.get("slices") or {})]
        parts = grouped(having, lambda row, name=name: str(row["slices"][name]))
        found[name] = {}
        for value in sorted(parts, key=in_order):
            mine = parts[value]
            wholes = _wholes(mine)
            if not _all_there(map(_instance, mine), of_instance):
                wholes.pop("rs@k", None)
            if not _all_there((str(r["group"]) for r in mine if r.get("group")), of_group):
                wholes.pop("ocs@k", None)
            found[name][value] = cell(mine, draw) | {
                key: wholes[key] for key in ("rs@k", "ocs@k") if key in wholes
            }
    return found


def in_order(value: str) -> tuple[list[int], bool, str]:
    """What values of a slice are sorted by: their numbers, "> 8000" behind "≤ 8000"."""
    return [int(digits) for digits in re.findall(r"\d+", value)], value.startswith(">"), value


def _instance(row: Row) -> str:
    return f"{row.get('family')}\x1f{row.get('instance') or row['task_id']}"


def _group(row: Row) -> str:
    return f"{row.get('family')}\x1f{row['group']}"


def _all_there(names: Iterable[str], whole: Mapping[str, int]) -> bool:
    """Whether a part of the rows has all that the names have of all rows."""
    return all(count == whole[name] for name, count in Counter(names).items())


def grouped(rows: Iterable[Row], key: Callable[[Row], str]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def scored(rows: Iterable[Row]) -> list[Row]:
    """The rows that count."""
    return [row for row in rows if row["outcome"] is not None]


def source(row: Row) -> str:
    """What intervals are clustered by. A row that names no source stands for itself."""
    return f"{row.get('family', '')}\x1f{row.get('source') or row['task_id']}"


def cell(rows: Sequence[Row], draw: Draw) -> Cell:
    """What some answers come to."""
    valid = scored(rows)
    sources = [source(row) for row in valid]
    found = mean_interval([float(r["outcome"]) for r in valid], sources, draw.resamples, draw.seed)
    return {
        "n": len(valid),
        "tasks": len({row["task_id"] for row in valid}),
        "sources": len(set(sources)),
        "mean_outcome": known(found.value),
        "interval": ends(found),
        "mean_reward": mean(row["reward"] for row in valid),
        "no_outcome": len(rows) - len(valid),
    }


def detail(rows: Sequence[Row], draw: Draw) -> Cell:
    """A cell with what is known beside the outcome: the balanced outcome where tasks fall into
    classes, means of the reward's parts, why answers scored as they did, pass@k where tasks were
    sampled more than once, success of instances and groups, length and cost."""
    valid = scored(rows)
    cut = [float(row.get("stop") == "length") for row in valid]
    costs = [float(row["cost"]) for row in rows if row.get("cost") is not None]
    return {
        **cell(rows, draw),
        **_balanced(valid, draw),
        **_at_k(valid, rows),
        **_wholes(rows),
        "parts": _parts(valid),
        "why": dict(Counter(str(row["why"]) for row in valid).most_common(12)),
        "no_answer": mean(float(row["why"] == "no_answer") for row in valid),
        "cut": mean(cut),
        "tokens_in": mean(row.get("tokens_in") for row in valid),
        "tokens_out": mean(row.get("tokens_out") for row in valid),
        "tool_calls": mean(row.get("tool_calls") for row in valid),
        "seconds": mean(row.get("seconds") for row in valid),
        "cost": sum(costs) if costs else None,
    }


def _balanced(valid: Sequence[Row], draw: Draw) -> Cell:
    known_rows = [row for row in valid if row.get("label")]
    if not known_rows:
        return {}
    labels = [str(row["label"]) for row in known_rows]
    outcomes = [float(row["outcome"]) for row in known_rows]
    sources = [source(row) for row in known_rows]
    found = clustered_mean(outcomes, sources, labels, draw.resamples, draw.seed)
    table: dict[str, Counter[str]] = {label: Counter() for label in sorted(set(labels))}
    for row, label in zip(known_rows, labels, strict=True):
        table[label][str(row.get("said") or "none")] += 1
    return {
        "balanced": known(found.value),
        "balanced_interval": ends(found),
        "confusion": {label: dict(sorted(counts.items())) for label, counts in table.items()},
    }


def _parts(valid: Sequence[Row]) -> dict[str, float | None]:
    names = sorted({name for row in valid for name in row.get("parts") or {}})
    return {
        name: mean(row["parts"][name] for row in valid if name in (row.get("parts") or {}))
        for name in names
    }


def _at_k(valid: Sequence[Row], rows: Sequence[Row]) -> Cell:
    """avg@k, and unbiased pass@1 … pass@k over tasks with all their k samples, and how many tasks
    lack one (`k_short`); or the means of `pass@k` that rows bring."""
    brought = sorted({key for row in valid for key in row if key.startswith("pass@")})
    if brought:
        whole = [key for key in brought if all(row.get(key) is not None for row in valid)]
        return {"pass@k": {k.removeprefix("pass@"): mean(row[k] for row in valid) for k in whole}}
    tasks = grouped(valid, lambda row: str(row["task_id"]))
    k = max((len(mine) for mine in tasks.values()), default=0)
    if k < 2:
        return {}
    full = [mine for mine in tasks.values() if len(mine) == k]
    asked = len({str(row["task_id"]) for row in rows})
    right = [sum(float(row["outcome"]) >= RIGHT for row in mine) for mine in full]
    return {
        f"avg@{k}": mean(float(row["outcome"]) for mine in full for row in mine),
        "pass@k": {str(i): mean(pass_at_k(k, c, i) for c in right) for i in range(1, k + 1)},
        "k_short": asked - len(full),
    }


def _wholes(rows: Sequence[Row]) -> Cell:
    """RS@K: the share of instances that are right in one of the K ways they were asked, and its
    curve: unbiased RS@1 … RS@K over the instances with all K. OCS@K: the share of order groups
    whose instances all are. One that lacks an outcome counts nowhere."""
    found: Cell = {}
    k = wordings(rows)
    if k > 1:
        found["rs@k"] = {"k": k, **_share(instances_of(rows))}
        asked = _parts_of(rows, _instance).values()
        whole = [mine for mine in asked if len(mine) == k == len(scored(mine))]
        found["rs_curve"] = rs_curve([sum(map(_is_right, mine)) for mine in whole], k)
    if groups := groups_of(rows):
        found["ocs@k"] = {"k": k, **_share(groups)}
    return found


def _share(rows: Sequence[Row]) -> Cell:
    valid = scored(rows)
    return {"n": len(valid), "value": mean(row["outcome"] for row in valid)}


def rs_curve(right: Sequence[int], k: int) -> dict[str, float | None]:
    """RS@1 … RS@K from how many of K wordings of each instance are right: the chance that one of k
    drawn wordings is, as of samples (`pass_at_k`)."""
    return {str(i): mean(pass_at_k(k, count, i) for count in right) for i in range(1, k + 1)}


def instances_of(rows: Sequence[Row]) -> list[Cell]:
    """A row an instance and sample: right when one of its wordings is, without an outcome when one
    of them has none."""
    return [_whole(name, mine, any) for (name, _), mine in _parts_of(rows, _instance).items()]


def groups_of(rows: Sequence[Row]) -> list[Cell]:
    """A row an order group and sample: right when all of its instances are."""
    found = _parts_of([row for row in instances_of(rows) if row.get("group")], _group)
    return [_whole(name, mine, all) for (name, _), mine in found.items()]


def wordings(rows: Sequence[Row]) -> int:
    """K: in how many ways an instance is asked, at most."""
    return max(map(len, _parts_of(rows, _instance).values()), default=1)


def _parts_of(
    rows: Sequence[Row], name_of: Callable[[Row], str]
) -> dict[tuple[str, int], list[Row]]:
    """Rows by name and sample."""
    found: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        found.setdefault((name_of(row), int(row.get("sample") or 0)), []).append(row)
    return found


def _whole(name: str, mine: Sequence[Row], right: Callable[[Iterable[bool]], bool]) -> Cell:
    """One row of several: what they have in common, and one outcome."""
    first = mine[0]
    slices = [dict[str, str](row.get("slices") or {}) for row in mine]
    known_outcome = len(scored(mine)) == len(mine)
    return {
        "task_id": name,
        **{key: first.get(key) for key in ("family", "group", "source", "sample")},
        "slices": {
            key: value
            for key, value in slices[0].items()
            if all(one.get(key) == value for one in slices)
        },
        "label": first.get("label") if len({row.get("label") for row in mine}) == 1 else None,
        "outcome": float(right(map(_is_right, mine))) if known_outcome else None,
    }


def _is_right(row: Row) -> bool:
    return float(row["outcome"]) >= RIGHT


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of what is there; None of nothing."""
    there = [float(value) for value in values if value is not None]
    return sum(there) / len(there) if there else None


def known(value: float) -> float | None:
    """JSON has no NaN."""
    return None if math.isnan(value) else value


def ends(found: Interval) -> list[float] | None:
    """The bounds of an interval, None where there are none."""
    return None if math.isnan(found.low) or math.isnan(found.value) else [found.low, found.high]


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
