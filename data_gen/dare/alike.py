"""Databases that ask nearly the same: found by table, targets and features, and counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

NEAR = 0.8  # share of features in common


def nearly_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two rows of a question list ask the same kind of question for the same targets of one
    table (or of copies), from nearly the same features."""
    if one["task"] != other["task"] or set(one["target"]) != set(other["target"]):
        return False
    if one["table_group"] != other["table_group"]:
        return False
    a, b = set(one["features"]), set(other["features"])
    return not (a | b) or len(a & b) >= NEAR * len(a | b)


def without_repeats(rows: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], int]:
    """(the rows, in order, without those that nearly repeat an earlier one; how many went)."""
    kept: dict[str, list[dict[str, Any]]] = {}
    out: list[dict[str, Any]] = []
    for row in rows:
        near = kept.setdefault(str(row["table_group"]), [])
        if not any(nearly_same(row, other) for other in near):
            near.append(row)
            out.append(row)
    return out, len(rows) - len(out)
