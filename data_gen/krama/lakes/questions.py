"""The kinds of questions asked over tables, and one drawn from a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from data_gen.krama.lakes.group_questions import (
    best_group,
    count_groups,
    group_values,
    pair,
    top_groups,
)
from data_gen.krama.lakes.number_questions import between_years, line, one_number
from data_gen.krama.lakes.pipeline import Question
from data_gen.krama.lakes.steps import Builder
from data_gen.krama.lakes.tables import Table

# kinds of questions; a new kind adds one function and one entry
KINDS: dict[str, Callable[[Builder], Question]] = {
    "one_number": one_number,
    "count_groups": count_groups,
    "best_group": best_group,
    "top_groups": top_groups,
    "group_values": group_values,
    "line": line,
    "between_years": between_years,
    "pair": pair,
}


def question_for(tables: Sequence[Table], kind: str, seed: int) -> Question:
    """One question of a kind. Raises `NoQuestion` where the drawn table does not fit."""
    rng = Random(seed)
    table = rng.choice(tables)
    others = [t for t in tables if t is not table]
    return KINDS[kind](Builder(rng, table, others))
