# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownVariableType=false
"""Rows of instances and of order groups, made of the rows of their wordings: what is compared as
RS@K and OCS@K is compared as any other outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from assay.task import RIGHT
from train.evaluation.comparing import Row

Made = dict[str, Any]


def common(before: Sequence[Row], after: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """The rows of the tasks that both have: each instance then has the same wordings in both."""
    shared = {str(row["task_id"]) for row in before} & {str(row["task_id"]) for row in after}
    one, other = ([r for r in rows if str(r["task_id"]) in shared] for rows in (before, after))
    return one, other


def instances_of(rows: Sequence[Row]) -> list[Made]:
    """A row an instance and sample: right when one of its wordings is, without an outcome when one
    of them has none."""
    return _wholes(rows, lambda row: str(row.get("instance") or row["task_id"]), any)


def groups_of(rows: Sequence[Row]) -> list[Made]:
    """A row an order group and sample: right when all of its instances are."""
    grouped = [row for row in instances_of(rows) if row.get("group")]
    return _wholes(grouped, lambda row: str(row["group"]), all)


def wordings(rows: Sequence[Row]) -> int:
    """K: in how many ways an instance is asked, at most."""
    counts: dict[tuple[str, Any], int] = {}
    for row in rows:
        key = (_name(row, str(row.get("instance") or row["task_id"])), row.get("sample"))
        counts[key] = counts.get(key, 0) + 1
    return max(counts.values(), default=1)


def _name(row: Row, name: str) -> str:
    return f"{row.get('family')}/{name}"


def _wholes(
    rows: Sequence[Row], name_of: Callable[[Row], str], right: Callable[[list[bool]], bool]
) -> list[Made]:
    found: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        key = (_name(row, name_of(row)), int(row.get("sample") or 0))
        found.setdefault(key, []).append(row)
    return [_whole(name, mine, right) for (name, _), mine in found.items()]


def _whole(name: str, mine: Sequence[Row], right: Callable[[list[bool]], bool]) -> Made:
    """One row of several: what they have in common, and one outcome."""
    first = mine[0]
    outcomes = [row["outcome"] for row in mine]
    slices: dict[str, str] = dict(first.get("slices") or {})
    for row in mine[1:]:
        other: dict[str, str] = row.get("slices") or {}
        slices = {key: value for key, value in slices.items() if other.get(key) == value}
    labels = {row.get("label") for row in mine}
    return {
        "task_id": name,
        "family": first.get("family"),
        "group": first.get("group"),
        "source": first.get("source"),
        "sample": first.get("sample"),
        "slices": slices,
        "label": first.get("label") if len(labels) == 1 else None,
        "outcome": None
        if None in outcomes
        else float(right([float(outcome) >= RIGHT for outcome in outcomes])),
    }
