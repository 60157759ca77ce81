"""The baseline for which a filter means DROP."""

from __future__ import annotations

from typing import Any

import pytest
from places import tables

from assay.family import cheat_answer, score_answer
from assay.task import Task
from rewards.cdr.family import REFINEMENT

TABLES = tables("cdr")

MAPPER, FILTER = {"operator": "clean_email_mapper"}, {"operator": "text_length_filter"}


@pytest.mark.parametrize(
    ("status", "recipe", "outcome"), TABLES["a_filter_means_drop_is_right_where_the_shortcut_is"]
)
def test_a_filter_means_drop_is_right_where_the_shortcut_is(
    status: str, recipe: list[Any], outcome: float
) -> None:
    gold = {"input_text": "a x@y.z b", "status": status, "text": "a  b", "recipe": recipe}
    task = Task("t", "refinement", "order_f", "test", [], gold)
    answer = cheat_answer(REFINEMENT, "filter means drop", task)
    assert score_answer(task, answer).outcome == outcome
