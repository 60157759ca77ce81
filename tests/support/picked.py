"""What a strategy of `assay select` keeps of rollouts in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from data_gen.selection.strategies import Row, Rules, pick


class Selected(NamedTuple):
    """Kept rows in order of (task, rank), and how many each rule dropped."""

    rows: list[Row]
    dropped: Counter[str]


def select(rows: Sequence[Row], strategy: str, rules: Rules | None = None) -> Selected:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(str(row["task_id"]), []).append(row)
    dropped = Counter[str]()
    made = [pick(groups[name], strategy, rules or Rules(), dropped) for name in sorted(groups)]
    return Selected([row for kept in made for row in kept], dropped)
