"""Features that were made with the target, though they do not give it."""

from __future__ import annotations

import random
from typing import Any

import pytest

np = pytest.importorskip("numpy")
pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn")

from data_gen.dare.made_with import made_with  # noqa: E402
from data_gen.dare.sense import misplaced  # noqa: E402

ROWS = 300


def noise(seed: int, low: float = 0, high: float = 99) -> Any:
    rng = random.Random(seed)
    return np.array([rng.uniform(low, high) for _ in range(ROWS)])


def test_a_label_that_two_scores_and_a_spread_tell_is_no_feature() -> None:
    home, away, spread = noise(1, 40, 120), noise(2, 40, 120), noise(3, -8, 8)
    frame = pd.DataFrame({"home": home, "away": away, "spread": spread, "size": noise(4)})
    frame["covered"] = (home - away > spread).astype(int)
    frame["fans"] = (noise(5) > 50).astype(int)
    features = ["away", "spread", "size", "covered", "fans"]
    assert set(made_with(frame, "home", features, {})) == {"covered"}
    # Without the scores nobody can read it off them: then it is a feature as any other.
    assert made_with(frame, "size", ["spread", "covered", "fans"], {}) == {}


def test_a_group_by_thresholds_of_the_target_is_no_feature() -> None:
    fasting, tested = noise(1, 70, 200), noise(2, 100, 500)
    group = np.where(fasting > 140, "overt", np.where(tested > 300, "chemical", "normal"))
    frame = pd.DataFrame({"fasting": fasting, "tested": tested, "group": group, "age": noise(3)})
    assert set(made_with(frame, "tested", ["fasting", "group", "age"], {})) == {"group"}
    assert made_with(frame, "age", ["fasting", "tested", "group"], {}) == {}


def test_a_label_by_a_bound_of_the_target_is_no_feature_however_rare() -> None:
    votes = noise(1, 44, 90)
    frame = pd.DataFrame({"votes": votes, "won": (votes > 50).astype(int), "size": noise(2)})
    frame["lost"] = (votes < np.sort(votes)[6]).astype(int)
    frame["once"] = (votes < np.sort(votes)[4]).astype(int)  # too few to tell it from chance
    features = ["won", "lost", "once", "size"]
    assert set(made_with(frame, "votes", features, {})) == {"won", "lost"}
    frame.loc[frame["won"] == 0, "won"] = np.arange((frame["won"] == 0).sum()) % 2
    assert "won" not in made_with(frame, "votes", features, {})


def test_a_label_that_the_other_features_tell_is_a_feature() -> None:
    size = noise(1)
    frame = pd.DataFrame({"size": size, "big": (size > 50).astype(int), "age": noise(2)})
    frame["price"] = 3 * size + noise(3)
    assert made_with(frame, "price", ["size", "big", "age"], {}) == {}


def test_a_total_that_the_target_is_a_part_of_is_no_feature() -> None:
    frame = pd.DataFrame({"food": noise(1), "rent": noise(2), "fuel": noise(3), "age": noise(4)})
    frame["spent"] = frame[["food", "rent", "fuel"]].sum(axis=1) + noise(5, -3, 3)
    features = ["rent", "fuel", "age", "spent"]
    assert set(made_with(frame, "food", features, {"spent": "total spending"})) == {"spent"}
    assert made_with(frame, "food", features, {"spent": "what was paid"}) == {}
    assert made_with(frame, "age", ["food", *features[:2], "spent"], {"spent": "total"}) == {}
    texts = {"rent": "overall rent"}  # the whole less the other parts is no sum of them
    assert made_with(frame, "food", features, texts) == {}


def test_both_ends_of_a_time_are_no_features_of_it() -> None:
    names = ["start_time", "end_time", "charge_hours", "price"]
    frame = pd.DataFrame({name: noise(i) for i, name in enumerate(names)})
    features = ["start_time", "end_time", "price"]
    assert set(made_with(frame, "charge_hours", features, {})) == {"start_time", "end_time"}
    assert made_with(frame, "price", ["start_time", "end_time", "charge_hours"], {}) == {}
    assert made_with(frame, "charge_hours", ["start_time", "price"], {}) == {}


def test_an_income_of_the_household_is_no_feature_of_a_wage() -> None:
    frame = pd.DataFrame({"wage": noise(1), "faminc": noise(2), "net": noise(3), "age": noise(4)})
    texts = {"wage": "hourly wage", "net": "total family income", "age": "age in years"}
    features = ["faminc", "net", "age"]
    assert set(made_with(frame, "wage", features, texts)) == {"faminc", "net"}
    assert made_with(frame, "age", ["faminc", "net", "wage"], texts) == {}


def test_a_total_of_a_name_is_no_feature_of_its_parts() -> None:
    names = ["beer_servings", "wine_servings", "total_litres", "age"]
    frame = pd.DataFrame({name: noise(i) for i, name in enumerate(names)})
    assert set(made_with(frame, "beer_servings", names[1:], {})) == {"total_litres"}
    assert made_with(frame, "age", names[:3], {}) == {}


def test_few_rows_say_nothing_and_missing_values_are_left_out() -> None:
    frame = pd.DataFrame({"home": noise(1), "away": noise(2)})
    frame["won"] = (frame.home > frame.away).astype(float)
    assert made_with(frame.head(59), "home", ["away", "won"], {}) == {}
    frame.loc[:20, "won"] = np.nan
    assert set(made_with(frame, "home", ["away", "won"], {})) == {"won"}
    assert made_with(frame, "home", ["won"], {}) == {}


@pytest.mark.parametrize(
    "text", ["The composite index of national capability", "On-base percentage."]
)
def test_a_statistic_of_other_columns_is_no_target(text: str) -> None:
    frame = pd.DataFrame({"cinc": noise(1), "size": noise(2), "age": noise(3)})
    assert set(misplaced(frame, {"cinc": text})) == {"cinc"}


def test_what_defines_a_quantity_is_no_feature_of_it() -> None:
    columns = ["mass_earth", "radius_earth", "density_g_cm3", "orbital_period", "Height", "weight"]
    frame = pd.DataFrame({name: noise(i) for i, name in enumerate([*columns, "bmi"])})

    def gone(target: str, *features: str) -> set[str]:
        return set(made_with(frame, target, features, {}))

    assert gone("density_g_cm3", "mass_earth", "radius_earth", "orbital_period") == {
        "mass_earth",
        "radius_earth",
    }
    assert gone("radius_earth", "mass_earth", "density_g_cm3", "orbital_period") == {
        "density_g_cm3"
    }
    assert gone("density_g_cm3", "mass_earth", "orbital_period") == set()  # the radius is not known
    assert gone("weight", "Height", "bmi", "orbital_period") == {"bmi"}
    assert gone("weight", "Height", "orbital_period") == set()
