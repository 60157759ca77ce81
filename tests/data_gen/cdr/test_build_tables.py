"""The rows of the paper's tables on construction, from counts alone."""

from __future__ import annotations

from collections import Counter
from statistics import mean, median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_gen.cdr.build_tables import NAMES, facts_of, page, parted, short, statistics
from data_gen.cdr.library import LibraryRecipe
from data_gen.cdr.mining import MinedRecipe


def row(number: int, track: str, sequence: tuple[str, ...], recipe: str | None) -> dict[str, Any]:
    chars = 100 * number
    return {
        "source_track": track,
        "domain": "web" if number % 2 else "pii",
        "input_length_chars": chars,
        "input_length_bucket": "short" if chars <= 4000 else "medium",
        "recipe_length": len(sequence),
        "recipe_id": recipe,
        "operator_sequence": list(sequence),
        "prompt_candidate_pool_count": 11,
        "prompt_variants": [{"user_requirement": "w " * (number + n)} for n in range(3)],
    }


def entry(name: str, family: str, domain: str, composed: bool = False) -> LibraryRecipe:
    recipe = MinedRecipe(name, family, ("a", "b"), ("a", "b"), 5, composed)
    return LibraryRecipe(recipe, domain, 5, (), ())


LIBRARY = [
    entry("r1", "f1", "web"),
    entry("r2", "f1", "web"),
    entry("r3", "f2", "pii"),
    entry("r4", "f3", "web"),  # no task asks for it
    entry("r5", "composed", "pii", composed=True),
]
ROWS = [
    row(1, "atomic_m", ("clean_email_mapper",), None),
    row(2, "order_m", ("a_mapper", "b_mapper"), "r3"),
    row(4, "order_m", ("b_mapper", "a_mapper"), "r3"),
    row(5, "agnostic_m", ("a_mapper", "b_mapper"), "r1"),
    row(77, "agnostic_m", ("a_mapper", "b_mapper"), "r2"),
    row(8, "order_f", ("a_mapper", "x_filter"), "r5"),
]


def counted(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter({"rows": len(rows)}) + Counter(fact for one in rows for fact in facts_of(one))


def test_the_numbers_of_the_tables() -> None:
    others, facts = parted(counted(ROWS))
    assert others == {"rows": 6}
    found = statistics(facts, LIBRARY)
    words = [one["number"] + n for one in map(numbered, ROWS) for n in range(3)]
    wanted = {
        "tasks": 6,
        "order_m": 2,
        "order_f": 1,
        "mean_characters": pytest.approx(mean(r["input_length_chars"] for r in ROWS), abs=0.01),
        "median_characters": median(r["input_length_chars"] for r in ROWS),
        "most_characters": 7700,
        "short": 5,
        "medium": 1,
        "long": 0,
        "operators": 4,
        "anchors": 2,
        "recipes": 4,
        "sequences": 4,
        "mean_recipe_length": pytest.approx(11 / 6, abs=0.01),
        "median_pool": 11,
        "mean_words": pytest.approx(mean(words), abs=0.01),
        "median_words": median(words),
    }
    assert {key: found[key] for key in wanted} == wanted
    assert found["domains"]["pii"] == {
        **{"tasks": 3, "short": 3, "medium": 0, "long": 0, "anchors": 1, "recipes": 2}
    }
    assert found["operator_tasks"]["web/a_mapper"] == 2
    shown = page(found)
    assert all(name in shown and paper in shown for name, paper in NAMES.values())
    assert "| clean_email_mapper | 0 | 1 | yes |" in shown and "| a_mapper | 3 | 2 | no |" in shown
    assert short(found).startswith("2 family anchors, 4 recipes, 4 executable variants")


def numbered(one: dict[str, Any]) -> dict[str, Any]:
    return one | {"number": one["input_length_chars"] // 100}


@given(st.lists(st.integers(1, 60), min_size=1, max_size=30))
def test_medians_are_those_of_the_values(numbers: list[int]) -> None:
    rows = [row(number, "atomic_m", ("clean_email_mapper",), None) for number in numbers]
    found = statistics(parted(counted(rows))[1], [])
    assert found["median_characters"] == median(100 * number for number in numbers)


def test_a_build_without_rows_has_its_tables_too() -> None:
    found = statistics({}, LIBRARY)
    assert found["tasks"] == found["recipes"] == 0 and found["domains"] == {}
    assert page(found)
