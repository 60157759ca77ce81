"""Vectors made by hand from the definitions, one table for both profiles."""

from __future__ import annotations

from typing import Any

import pytest
from places import tables

from rewards.gold import Step, bind, execute

TABLES = tables("gold")

# (operator, profile, parameters, input, output)
MAPPERS = TABLES["vectors_mappers"]

# (operator, profile, parameters, input, statistic, status)
FILTERS = TABLES["vectors_filters"]


@pytest.mark.parametrize(("operator", "profile", "params", "text", "wanted"), MAPPERS)
def test_mapper_vector(
    operator: str, profile: str, params: dict[str, Any], text: str, wanted: str
) -> None:
    assert execute(text, [Step(operator, params)], profile).text == wanted  # type: ignore[arg-type]


@pytest.mark.parametrize(("operator", "profile", "params", "text", "statistic", "status"), FILTERS)
def test_filter_vector(
    operator: str, profile: str, params: dict[str, Any], text: str, statistic: float, status: str
) -> None:
    keep, stats = bind(Step(operator, params), profile).judge(text)  # type: ignore[arg-type]
    assert (list(stats.values()), "KEEP" if keep else "DROP") == ([statistic], status)


def test_long_texts_pass_two_mappers_untouched() -> None:
    text = "www.x.org. " * 8000
    for operator in (
        "remove_repeat_sentences_mapper",
        "remove_words_with_incorrect_substrings_mapper",
    ):
        assert execute(text, [Step(operator)]).text == text
        assert execute(text[:80_000], [Step(operator)]).text != text[:80_000]
