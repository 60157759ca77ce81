"""Questions in words, columns in words, short questions, and what an endpoint may not change."""

from __future__ import annotations

import random
from typing import Any

import pytest

pytest.importorskip("pandas")

from places import tables

from data_gen.dare.wording import (
    described,
    facts_of,
    if_question,
    opening_of,
    phrase,
    phrases,
    plain_about,
)
from data_gen.rewording import lacks

WORDS = {"size": "floor area in square metres", "town": "town, as registered"}


def recipe(**more: Any) -> dict[str, Any]:
    """The recipe of a regression of prices on sizes, towns and ages; `more` replaces fields."""
    return {
        "save_file_type": "csv",
        "stated": ["filter", "model", "features", "seed", "order", "scale", "impute"],
        "column_type_inference": {"size": "numerical", "town": "categorical", "age": "numerical"},
        "numerical_features": ["size", "age"],
        "categorical_features": ["town"],
        "problem_type": "regression",
        "target": ["price"],
        "selected_features": ["size", "town", "age"],
        "expected_ranges": {"size": [2.5, 41], "town": ["Bonn", "Ulm"]},
        "imputer_type": "mean",
        "model_type": "Ridge",
        "random_state": 7,
    } | more


def test_a_question_says_every_step_that_is_stated_and_no_other() -> None:
    steps = {
        "seed": "random_state=7",
        "order": "in this order",
        "scale": "StandardScaler",
        "impute": "Fill missing",
    }
    said = if_question(recipe(), random.Random(1))
    assert all(word in said for word in (*steps.values(), "Ridge", "`size` must", "2.5", "41"))
    for step, word in steps.items():
        stated = [s for s in recipe()["stated"] if s != step]
        assert word not in if_question(recipe(stated=stated), random.Random(1))
    two = recipe(target=["price", "rent"], model_type="LinearSVC")
    said = if_question(two, random.Random(1))
    assert "`row_id`, `price` and `rent`" in said and "MultiOutputClassifier" in said
    said = if_question(recipe(column_words=WORDS), random.Random(1))
    assert WORDS["size"] in said and "`size`" not in said and "`age`" in said


TABLES = tables("dare_build")
PAGE: str = TABLES["page"]  # of a data set of R
PHRASES = TABLES["a_phrase_is_the_first_clause_where_it_says_what_a_column_is"]


def test_descriptions_are_read_from_the_list_of_columns() -> None:
    found = described(PAGE, ["dead", "weight", "black", "y82", "age", "x"])
    assert found["weight"] == "Observation weights, of uncertain accuracy."
    assert found["black"] == "=1 if black" and found["dead"].startswith("factor with levels")
    assert found.keys() == {"dead", "weight", "black", "age"}
    assert "summary" not in plain_about(PAGE)


@pytest.mark.parametrize(("text", "said"), PHRASES)
def test_a_phrase_is_the_first_clause_where_it_says_what_a_column_is(text: str, said: str) -> None:
    assert phrase(text) == said


def test_a_phrase_belongs_to_one_column_alone() -> None:
    texts = {"a": "height in cm", "b": "Height in cm", "c": "weight of the person", "d": "age"}
    assert phrases([*"abcd", "age"], texts) == {"c": "weight of the person"}


# --- an endpoint's words ---


def test_what_decides_the_answer_stays_to_the_letter() -> None:
    text = if_question(recipe(save_file_type="sqlite", column_words=WORDS), random.Random(0))
    text = text.removeprefix(opening_of(text))
    other = text.replace("There are a training file", "You are given the training file")
    assert other != text and not lacks(text, other, facts_of(text))
    for old, new in {
        "`age`": "`years`",
        WORDS["size"]: "floor space",
        "41": "42",
        "Ridge": "Lasso",
        "random_state=7": "a fixed seed",
        ", in this order": "",
        "with the mean": "with the median",
    }.items():
        assert old in other and lacks(text, other.replace(old, new), facts_of(text)), old
