"""What the log and the trackers beside it have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.task import TaskError


class LogError(TaskError):
    """Logging that was asked for and cannot be had; the message says what to do."""


def named_values(stage: str, metrics: Mapping[str, Any]) -> dict[str, float]:
    """A step's numbers under the names that trackers get, without what was not measured."""
    prefix = "" if stage == "rl" else f"{stage}/"
    return {
        f"{prefix}{name}": float(value)
        for name, value in metrics.items()
        if value is not None and not isinstance(value, Mapping | str)
    }
