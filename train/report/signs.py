"""What a run warned of: faults of its tasks' audit, and stages that learned less than their steps
say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, cast

from train.report.markup import section
from train.run.log import warnings_of as warnings_of_stage


def warnings_of(metrics: Sequence[Mapping[str, Any]], record: Mapping[str, Any]) -> str:
    """A list of warnings as HTML; "" without any."""
    lines = audit_lines(record.get("audit"))
    for stage in ("sft", "rl"):
        rows = [row for row in metrics if row.get("stage") == stage]
        lines += warnings_of_stage(rows, stage).values()
    if not lines:
        return ""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return section("Warnings", f"<ul>{items}</ul>")


def audit_lines(audit: Any) -> list[str]:
    """What the audit of the tasks before the first step found."""
    refusal = (
        cast("Mapping[str, Any]", audit).get("refusal") if isinstance(audit, Mapping) else None
    )
    return [str(refusal)] if refusal else []
