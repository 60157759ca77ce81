"""KramaBench's own part of `assay audit`: what the best constant of each answer type earns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay.task import Task
from data_gen.queries.pays import best_constants, paying
from rewards.audit.laws import Broken


def audit_answers(
    tasks: Sequence[Task], roots: Sequence[Path]
) -> tuple[list[dict[str, Any]], dict[str, Any], list[Broken]]:
    """(nothing a row, the best constants by type, generated types on which one pays). Published
    tasks are what they are: their constants are shown and break no law."""
    made = [task for task in tasks if task.meta.get("benchmark") == "lake"]
    broken = [
        Broken("constant", "generated lake tasks", why) for why in paying(best_constants(made))
    ]
    return [{} for _ in tasks], {"best constants": best_constants(tasks)}, broken
