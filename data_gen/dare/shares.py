"""Which tables are trained on, which validated on while training, and which tested on."""

from __future__ import annotations

from collections.abc import Iterable

VALIDATION = 0.1  # share of the tables, by default, from `ENOUGH` tables on
ENOUGH = 10


def ranked(groups: Iterable[str]) -> list[str]:
    """The groups of tables, each once, in an order that their hashes give."""
    return sorted(set(groups), key=lambda group: (group[-8:], group))


def splits_of(groups: Iterable[str], heldout: float, validation: float) -> dict[str, str]:
    """Group → `heldout`, `validation` or `train`.

    A group is a table with its copies, so nothing made from it stands in two splits. A share above
    0 takes at least one group as long as one is left to train on; held-out groups come first.
    """
    order = ranked(groups)
    held = _size(heldout, len(order), 1)
    checked = _size(validation, len(order), 1 + held)
    names = ["heldout"] * held + ["validation"] * checked
    return dict(zip(order, [*names, *["train"] * (len(order) - len(names))], strict=True))


def _size(share: float, groups: int, spoken_for: int) -> int:
    """How many groups a share takes, when so many are spoken for."""
    if share <= 0:
        return 0
    return max(0, min(groups - spoken_for, max(1, round(share * groups))))


def default_validation(groups: int) -> float:
    """The share that is validated on when the user names none."""
    return VALIDATION if groups >= ENOUGH else 0.0
