"""What speaks for a column as a target: a model of its source, its words, the title."""

from __future__ import annotations

import pytest

from data_gen.dare.outcomes import (
    MODELLED,
    OTHER,
    OUTCOME,
    PERHAPS,
    best,
    explained_by,
    modelled,
    outcomes_beside,
    rank,
)

PAGE = """Houses

### Examples

    fm <- lm(log(price) ~ size + age, data = houses)
    glm(sold ~ price, family = binomial)
    plot(size ~ age)
"""


def test_what_a_source_models_is_read_from_its_examples() -> None:
    assert modelled(PAGE, ["price", "sold", "size", "age"]) == {"price", "sold"}
    assert modelled("lm(y/z ~ x)", ["y", "z", "x"]) == set()


@pytest.mark.parametrize(
    ("name", "text", "title", "wanted"),
    [
        ("count", "the number of seizures (response variable)", "", MODELLED),
        ("cost", "total cost", "Cost Function for Producers", MODELLED),
        ("class", "", "", MODELLED),
        ("wage", "hourly wage", "", OUTCOME),
        ("Sale_Price", "", "", OUTCOME),
        ("pk", "capital price index", "", PERHAPS),
        ("husEd", "husband's level of education", "", OTHER),
        ("kids", "number of children", "", OTHER),
        ("colour", "a factor with levels D, E", "", OTHER),
    ],
)
def test_words_say_how_much_speaks_for_a_column(
    name: str, text: str, title: str, wanted: int
) -> None:
    assert rank(name, text, frozenset(), title) == wanted


def test_what_nothing_speaks_for_is_asked_only_where_nothing_is_known() -> None:
    texts = {"wage": "hourly wage"}
    assert best(["wage", "tall"], ["wage", "tall"], texts, "") == {"wage": OUTCOME}
    assert best(["groesse"], ["groesse", "ort"], {}, "") == {"groesse": OTHER}
    assert best(["groesse"], ["groesse", "ort"], {}, "A page about it.") == {}


def test_another_outcome_stands_beside_a_target_only_where_its_source_put_it() -> None:
    columns = ["front_deaths", "rear_deaths", "petrol", "deaths", "law"]
    texts = {"front_deaths": "front-seat fatalities", "rear_deaths": "rear-seat fatalities"}
    alone = outcomes_beside("front_deaths", columns, texts, "")
    assert alone == {"rear_deaths", "deaths"}
    page = "lm(front_deaths ~ log(petrol) + deaths, data = seatbelts)"
    assert outcomes_beside("front_deaths", columns, texts, page) == {"rear_deaths"}
    assert outcomes_beside("rear_deaths", columns, texts, page) == {"front_deaths", "deaths"}
    assert not outcomes_beside("front_deaths", columns, texts, "glm(front_deaths ~ ., poisson)")


def test_the_right_of_a_model_ends_with_its_argument() -> None:
    columns = ["y", "a", "b", "c"]
    assert explained_by("y", "lm(y ~ I(a^2) + log(b), weights = c)", columns) == {"a", "b"}
    assert explained_by("y", "summary(lm(y ~ a)); c", columns) == {"a"}
    assert explained_by("y", "lm(formula = log(y) ~ a + b:c, data = d)", columns) == {"a", "b", "c"}
