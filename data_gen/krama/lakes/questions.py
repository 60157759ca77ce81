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
from data_gen.krama.lakes.links import Links, links_of
from data_gen.krama.lakes.number_questions import (
    between_years,
    difference,
    line,
    one_number,
    portion,
)
from data_gen.krama.lakes.pipeline import Question
from data_gen.krama.lakes.share_questions import above_own, change, nth_group, share, spread
from data_gen.krama.lakes.steps import Builder, NoQuestion
from data_gen.krama.lakes.tables import Table

# kinds of questions; a new kind adds one function and one entry
KINDS: dict[str, Callable[[Builder], Question]] = {
    "one_number": one_number,
    "difference": difference,
    "portion": portion,
    "count_groups": count_groups,
    "best_group": best_group,
    "top_groups": top_groups,
    "group_values": group_values,
    "line": line,
    "between_years": between_years,
    "pair": pair,
    "share": share,
    "spread": spread,
    "change": change,
    "above_own": above_own,
    "nth_group": nth_group,
}
_LINKED = 0.75  # of the draws are about a table that shares a key with another, where there is one


def question_for(
    tables: Sequence[Table], kind: str, seed: int, links: Links | None = None
) -> Question:
    """One question of a kind. Raises `NoQuestion` where the drawn table does not fit."""
    rng = Random(seed)
    links = links_of(tables) if links is None else links
    linked = [place for place, own in enumerate(links) if own]
    chosen = linked if linked and rng.random() < _LINKED else range(len(tables))
    place = rng.choice(chosen)
    try:
        return KINDS[kind](Builder(rng, tables[place], tables, links[place]))
    except NoQuestion as error:
        error.tables = (tables[place].key,)
        raise
