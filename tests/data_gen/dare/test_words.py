"""Columns in words: what a source says, and the phrase that a question uses."""

from __future__ import annotations

import random

import pytest
from dare_recipes import house_recipe

from data_gen.dare.sources import described, phrase, phrases, plain_about
from data_gen.dare.wording import OPENINGS, cf_question, if_question, mm_question, xf_question

PAGE = """nassCDS| R Documentation
---|---

## Airbags

### Description

Crashes. dead: not this line

### Usage

    data(nassCDS)

### Format

dead

    factor with levels `alive` `dead`

`weight`

    Observation weights, of uncertain
    accuracy.

  * **black:** =1 if black
  * **age:** in months

### Examples

    summary(weight)
"""


def test_descriptions_are_read_from_the_list_of_columns() -> None:
    found = described(PAGE, ["dead", "weight", "black", "age", "x"])
    assert found["weight"] == "Observation weights, of uncertain accuracy."
    assert found["black"] == "=1 if black" and found["dead"].startswith("factor with levels")
    assert "x" not in found and "summary" not in plain_about(PAGE)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("factor. Child's secondary school level.", "Child's secondary school level"),
        ("a numeric vector of glucose levels", "glucose levels"),
        ("Number of children (under 7 years).", "number of children (under 7 years)"),
        ("=1 if married when incarc.", "indicator that is 1 if married when incarc"),
        ("Factor indicating travel mode with levels car, air.", "travel mode"),
        ("post high school status: Enrolled in", "post high school status"),
        ("state cig. price, cents/pack", "state cig. price, cents/pack"),
        ("number of visits (Same as carData::Mroz['k618'])", "number of visits"),
        ("a factor with 8 levels.", ""),
        ("a numeric vector; note that -9999 is used for missing", ""),
        ("see below", ""),
        ("numeric", ""),
        ("x " * 80, ""),
    ],
)
def test_a_phrase_is_the_first_clause_without_types(text: str, said: str) -> None:
    assert phrase(text) == said


def test_a_phrase_belongs_to_one_column_alone() -> None:
    texts = {"a": "height in cm", "b": "Height in cm", "c": "weight of the person", "d": "age"}
    assert phrases([*"abcd", "age"], texts) == {"c": "weight of the person"}


WORDS = {"size": "floor area in square metres", "town": "town, as registered"}


def test_a_question_names_columns_in_words_where_there_are_some() -> None:
    said = if_question(house_recipe(column_words=WORDS), random.Random(1))
    assert "“floor area in square metres” must" in said and "`size`" not in said
    assert "`age`" in said and "`price`" in said and "metadata.txt" in said
    bare = if_question(house_recipe(), random.Random(1))
    assert "`size` must" in bare and "“" not in bare


def test_several_targets_are_named_everywhere() -> None:
    two = house_recipe(target=["price", "rent"])
    for text in (if_question(two, random.Random(1)), mm_question(two, random.Random(1))):
        assert "`price` and `rent`" in text and "`row_id`, `price` and `rent`" in text
    wrapped = house_recipe(target=["a", "b"], model_type="LinearSVC", problem_type="classification")
    assert "MultiOutputClassifier" in if_question(wrapped, random.Random(1))


def test_questions_open_in_a_dozen_ways() -> None:
    assert min(len(set(OPENINGS[name])) for name in ("exact", "free")) >= 12
    asked = {
        "IF": lambda rng: if_question(house_recipe(), rng),
        "MM": lambda rng: mm_question(house_recipe(), rng),
        "XF": lambda rng: xf_question("y", rng),
        "CF": lambda rng: cf_question("y", ["day"], None, rng),
    }
    for kind, ask in asked.items():
        openings = {ask(random.Random(i))[:25] for i in range(200)}
        assert len(openings) >= 12, kind
        assert ask(random.Random(3)) == ask(random.Random(3))


def test_wording_holds_no_odd_numbers() -> None:
    odd = ("1 decimals", "-9999", "at least -99 ", ".0.", "None", "nan", "inf", "  ", "`, and")
    for seed in range(60):
        for words in ({}, WORDS):
            text = if_question(house_recipe(column_words=words), random.Random(seed))
            assert not [mark for mark in odd if mark in text]


def test_an_item_without_words_does_not_take_the_next_one() -> None:
    page = "Format\n\n  * **y82:**\n\n  * **y93:**\n\n  * **age:** years of age\n"
    assert described(page, ["y82", "y93", "age"]) == {"age": "years of age"}
