"""Slices of refinement, and the baseline for which a filter means DROP."""

from __future__ import annotations

from typing import Any

import pytest
from places import tables

from assay.family import cheat_answer, score_answer, slices_of
from assay.task import Task
from rewards.cdr.family import REFINEMENT

TABLES = tables("cdr")

MAPPER, FILTER = {"operator": "clean_email_mapper"}, {"operator": "text_length_filter"}


def task(status: str, recipe: list[Any], **meta: Any) -> Task:
    gold = {"input_text": "a x@y.z b", "status": status, "text": "a  b", "recipe": recipe}
    return Task("t", "refinement", "order_f", "test", [], gold, meta=meta)


@pytest.mark.parametrize(
    ("status", "recipe", "outcome"), TABLES["a_filter_means_drop_is_right_where_the_shortcut_is"]
)
def test_a_filter_means_drop_is_right_where_the_shortcut_is(
    status: str, recipe: list[Any], outcome: float
) -> None:
    one = task(status, recipe)
    answer = cheat_answer(REFINEMENT, "filter means drop", one)
    assert score_answer(one, answer).outcome == outcome


def test_results_are_cut_by_filter_place_domain_style_and_length() -> None:
    one = task(
        "KEEP", [FILTER, MAPPER], order_slot="pre", domain="web", style="qa", difficulty="hard"
    )
    assert slices_of(REFINEMENT, one) == {
        "track": "order_f",
        "gold status": "KEEP",
        "input characters": "≤ 500",
        "recipe steps": "2",
        "filter": "with a filter",
        "filter place": "before the mappers",
        "domain": "web",
        "style": "qa",
        "difficulty": "hard",
    }
