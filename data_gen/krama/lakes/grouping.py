"""The steps that make groups: those with several rows, and one summary of each."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from data_gen.krama.lakes.ops import Group, Least, Summary
from data_gen.krama.lakes.steps import Builder
from data_gen.krama.lakes.words import WORDS

_LEAST = (2, 3, 5, 8)  # rows that a group must have


def grouped(b: Builder, names: Sequence[str], number: str, how: Summary) -> None:
    """One summary for every group; of groups that may be small, those with several rows."""
    keys = " and ".join(b.the(n) for n in names)
    whole = tuple(n in b.table.years for n in names)
    pairs = f"values of {keys}" if len(names) == 1 else f"pairs of {keys}"
    if b.small or len(names) > 1 or b.rng.random() < 0.3:
        usual = b.table.rows / prod(len(b.sizes.get(n, (1,))) for n in names)
        rows = b.rng.choice([r for r in _LEAST if r <= usual / 2] or [2])
        b.least = f"Consider only {pairs} with {rows} or more such rows."
        b.add(
            Least(tuple(names), whole, rows),
            f"Keep rows of {pairs} with {rows} or more rows",
            f"How many rows belong to {pairs} with {rows} or more such rows?",
            "numeric_exact",
        )
    b.add(
        Group(tuple(names), whole, number, how),
        f"Compute the {WORDS[how]} of {b.the(number)} per {keys}",
        f"For how many {pairs} is there a {WORDS[how]} of {b.the(number)}?",
        "numeric_exact",
    )
