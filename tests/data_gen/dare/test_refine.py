"""Rewordings of questions: kept only when every name, number, order and step is still there."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from dare_recipes import house_recipe

from data_gen.dare.refine import lacks, misread
from data_gen.dare.wording import cf_question, if_question
from data_gen.tally import Refusal

RECIPE = house_recipe(stated=["filter", "model", "features", "seed", "order", "scale"])
QUESTION = if_question(RECIPE, random.Random(0))
READ = {
    "model": "Ridge",
    "random_state": 7,
    "features": ["size", "town", "age"],
    "ranges": {"size": [2.0, 41.0], "town": ["Bonn", "Ulm"]},
    "keep_missing": True,
    "imputer": None,
    "scale": True,
}


def coded(why: Refusal | None) -> str:
    """A refusal in words, "" for none."""
    return why.coded() if why else ""


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("`age`", "`ages`", "names"),
        ("41", "42", "numbers"),
        (" 2 ", " two ", "numbers"),
        ("random_state=7", "a fixed seed", "numbers"),
        ("'Ulm'", "'Cologne'", "categories"),
        ("Ridge", "Lasso", "model"),
        ("StandardScaler", "scaler", ""),
        (", in this order", "", "step"),
        ("one-hot encode", "encode", "step"),
        ("missing", "odd", "step"),
        ("`size`, `town`, `age`", "`town`, `size`, `age`", "order"),
        ("dense", "nice", "step"),
    ],
)
def test_what_a_rewrite_lost_is_found(old: str, new: str, why: str) -> None:
    lowered = QUESTION.replace("One-hot", "one-hot")
    changed = lowered.replace(old, new).replace("Numeric: `size`", "Numeric: `size`")
    assert changed != lowered
    found = lacks(lowered, changed, ["size", "town", "age"])
    assert coded(found).startswith(why) if why else True


@pytest.mark.parametrize(
    "change",
    [
        {"model": "Lasso"},
        {"random_state": None},
        {"features": ["town", "size", "age"]},
        {"ranges": {"size": [2, 40], "town": ["Bonn", "Ulm"]}},
        {"keep_missing": False},
        {"scale": False},
    ],
)
def test_a_rewrite_that_reads_otherwise_is_found(change: dict[str, Any]) -> None:
    said = f"Sure:\n```json\n{json.dumps(READ | change)}\n```"
    assert misread(RECIPE, said) == next(iter(change))


def test_a_rewrite_that_reads_as_the_recipe_is_proved() -> None:
    assert misread(RECIPE, json.dumps(READ)) == ""
    for said in ('["no object"]', "nothing", "{" * 3000, '{"features": NaN}'):
        assert misread(RECIPE, said)


def test_a_resampling_is_kept() -> None:
    cf = cf_question("load", ["day"], ("1W", "mean"), random.Random(0))
    assert coded(lacks(cf, cf.replace("1W", "1D"), [])) == "categories"


WORDS = {"size": "floor area in square metres", "age": "age, in years"}


def test_words_for_columns_are_as_fixed_as_names() -> None:
    recipe = RECIPE | {"column_words": WORDS}
    question = if_question(recipe, random.Random(0))
    assert "floor area in square metres" in question
    said = {
        "features": ["floor area in square metres", "town", "age, in years"],
        "ranges": {"floor area in square metres": [2, 41], "town": ["Bonn", "Ulm"]},
    }
    assert misread(recipe, json.dumps(READ | said)) == ""
    assert misread(recipe, json.dumps(READ)) == "features, ranges"
    lost = question.replace("floor area in", "area in")
    assert coded(lacks(question, lost, [], WORDS)).startswith("names")
    assert lacks(question, question.replace("“", "").replace("”", ""), [], WORDS) is None
