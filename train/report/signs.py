"""What a run warned of: faults of its tasks' audit, signs of a farmed reward by step, and stages
that learned less than their steps say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Any, cast

from train.report.markup import quiet, section
from train.run.verdict import warnings_of as warnings_of_stage

FIELD = "signs"  # of a row of metrics.jsonl (train/run/watch.py)


def warnings_of(metrics: Sequence[Mapping[str, Any]], record: Mapping[str, Any]) -> str:
    """A list of warnings as HTML; "" without any."""
    lines = [*audit_lines(record.get("audit")), *sign_lines(metrics), *ending_lines(metrics)]
    if not lines:
        return ""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    said = "A sign is no proof: it says which rollouts to read (docs/audit.md)."
    return section("Warnings", f"<ul>{items}</ul>", quiet(said))


def audit_lines(audit: Any) -> list[str]:
    """What the audit of the tasks before the first step found."""
    refusal = _object(audit).get("refusal")
    return [str(refusal)] if refusal else []


def sign_lines(metrics: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line for every stretch of steps that had a sign: which steps, and what the last said."""
    rows = [row for row in metrics if row.get("stage") == "rl"]
    signs = [(int(row["step"]), _object(row.get(FIELD))) for row in rows]
    lines: list[tuple[int, str]] = []
    for kind in sorted({kind for _, found in signs for kind in found}):
        for has, part in groupby(signs, key=lambda pair, kind=kind: kind in pair[1]):
            stretch = [*part]
            (first, _), (last, said) = stretch[0], stretch[-1]
            where = f"step {first}" if first == last else f"steps {first} to {last}"
            lines += [(first, f"{where}: {said[kind]}")] if has else []
    return [line for _, line in sorted(lines)]


def ending_lines(metrics: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is to be known of stages that learned less than their steps say, where no sign of the
    last step says it."""
    lines: list[str] = []
    for stage in ("sft", "rl"):
        rows = [row for row in metrics if row.get("stage") == stage]
        told = _object(rows[-1].get(FIELD) if rows else None)
        found = warnings_of_stage(rows, stage)
        lines += [said for kind, said in found.items() if kind not in told]
    return lines


def _object(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
