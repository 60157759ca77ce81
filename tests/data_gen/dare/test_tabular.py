# ruff: noqa: E402
"""Class and reg tasks of a table: which columns are asked for, what a draft keeps, and which drafts
are worth asking."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn")
import numpy as np
from dare_worlds import prices
from places import tables

from data_gen.dare.models import in_range, tabular_baseline
from data_gen.dare.sources import Listed
from data_gen.dare.tabular import propose
from data_gen.dare.targets import Looked, Wish, clean, judge, narrowed, plans, refusals

ROWS = 300
BOTH = ("class", "reg")


def draw(seed: int, low: int, high: int) -> Any:
    rng = random.Random(seed)
    return pd.Series([rng.randint(low, high) for _ in range(ROWS)])


def people() -> Any:
    """A table with a column of each kind."""
    rng = random.Random(3)
    size = [rng.gauss(50, 9) for _ in range(ROWS)]
    return pd.DataFrame(
        {
            "person": [f"p{i}" for i in range(ROWS)],
            "nr": range(ROWS),
            "sex": [rng.choice("fm") for _ in range(ROWS)],
            "day": [rng.choice(["Mon", "Tue", "Sun"]) for _ in range(ROWS)],
            "same": ["x"] * ROWS,
            "mood": [rng.randint(1, 5) for _ in range(ROWS)],
            "treatment": [rng.choice(["drug", "placebo"]) for _ in range(ROWS)],
            "v1": [rng.gauss(0, 1) for _ in range(ROWS)],
            "remark": [f"a text of several words {i} " * 4 for i in range(ROWS)],
            "time": [rng.randint(7, 22) * 100 + rng.randint(0, 59) for _ in range(ROWS)],
            "size": size,
            "verdict": ["big" if s + rng.gauss(0, 5) > 50 else "small" for s in size],
            "grade": [rng.choice("ab") for _ in range(ROWS - 6)] + ["c"] * 3 + ["d"] * 3,
            "few": [1.5 + i % 29 for i in range(ROWS)],  # too few values for a quantity
            "flat": [0.0] * 190 + [rng.gauss(0, 1) for _ in range(110)],
            "rare": ["no"] * 260 + ["yes"] * 40,
            "open": [None if i % 2 else f"{i}x"[-1] for i in range(ROWS)],
        }
    )


CODES = {
    **{"person": "name", "nr": "id", "sex": "who", "day": "calendar", "same": "constant"},
    **{"mood": "unfit", "treatment": "design", "v1": "unsaid", "remark": "text", "time": "clock"},
    **dict.fromkeys(("grade", "flat", "rare"), "unfit"),
    "few": "grid",
}


def test_every_column_is_a_target_or_says_why_not() -> None:
    looked = clean(people(), 0)
    assert looked is not None and "open" not in looked.kinds
    codes = {n: why and why.code for n, why in refusals(looked).items() if n != "open"}
    assert codes == CODES | {"size": None, "verdict": None}
    assert clean(people().head(119), 0) is None and clean(people()[["size", "nr"]], 0) is None


def test_what_the_list_of_packages_says_is_asked_and_nothing_else() -> None:
    looked = clean(people(), 0, listed=True)
    assert looked is not None
    asked = [Listed("mood", "reg", frozenset({"size", "nr"})), Listed("gone", "reg")]
    made, refused = plans(looked, Wish(), BOTH, 0, asked)
    assert not refused and [(p.family, p.targets) for p in made] == [("reg", ("mood",))]
    bare = narrowed(looked, made[0], Wish(), listed=True)
    assert not {"size", "nr"} & set(bare.kinds) and "mood" in bare.kinds


# left out beside a target; beside one that the user wants, which is never refused
GIVEN = tables("dare_build")["columns_that_give_a_target_are_left_out_or_refuse_it"]


def towns() -> Any:
    rng = random.Random(2)
    popul = draw(1, 5000, 900_000)
    frame = pd.DataFrame({"popul": popul, "income": [rng.gauss(30, 6) for _ in range(ROWS)]})
    frame["logpopul"] = popul.map(math.log)
    frame["schools"] = (popul / 5000 + frame["income"]).round() + draw(4, 0, 30)
    frame["parks"] = draw(5, 0, 60)
    frame["places"] = frame["schools"] + frame["parks"]
    for name in ("parent", "child"):
        frame[name] = [rng.choice("ab") for _ in range(ROWS)]
    frame["pair"] = frame["parent"] + frame["child"]
    frame["rich"] = frame["income"].map(lambda v: "rich" if v > 30 else "poor")
    return frame


@pytest.mark.parametrize(("target", "features", "refused", "left_out", "wished"), GIVEN)
def test_columns_that_give_a_target_are_left_out_or_refuse_it(
    target: str, features: str, refused: bool, left_out: str, wished: str
) -> None:
    frame = towns()
    found = judge(frame, target, features.split())
    assert bool(found.why) == refused and sorted(found.left_out) == sorted(left_out.split())
    other = judge(frame, target, features.split(), wished=True)
    assert other.why == "" and set(other.left_out) >= set(wished.split()) - {"parent", "child"}


def test_a_target_that_all_rows_of_a_group_share_is_refused_where_the_group_is_named() -> None:
    rng = random.Random(8)
    schools = [(5 + n % 8, 20 + n // 8, rng.gauss(0, 1)) for n in range(40)]
    rows = [(*schools[n % 40], rng.gauss(0, 1), n % 2) for n in range(400)]
    frame = pd.DataFrame(rows, columns=["classes", "staff", "mood", "own", "girl"])
    features = ["classes", "staff", "girl"]
    assert judge(frame, "mood", features).why and not judge(frame, "own", features).why
    assert not judge(frame, "mood", ["classes", "girl"]).why  # no group is named
    assert not judge(frame, "mood", features, wished=True).why


@pytest.mark.parametrize("seed", range(2))
def test_a_draft_keeps_what_the_format_promises(seed: int) -> None:
    looked = clean(prices(), 0)
    assert looked is not None
    made = propose(looked, "reg", ["price"], random.Random(seed), mini=False)
    ranges, kinds = made.recipe["expected_ranges"], made.recipe["column_type_inference"]
    base = made.clean_v1()
    assert len(made.noisy) == len(base) + int(0.2 * len(base))
    assert len(in_range(base, ranges, kinds)) == len(base)  # no clean row breaks a range
    back = in_range(made.noisy, ranges, kinds).reset_index(drop=True)
    pd.testing.assert_frame_equal(back, base)  # and the filter gives the clean rows back
    for name in ranges:  # each range is broken alone somewhere
        others = {n: r for n, r in ranges.items() if n != name}
        assert len(in_range(made.noisy, others, kinds)) > len(base)
    features = made.recipe["related_features"]
    both = pd.concat([made.train[features], made.test[features]])
    assert not both.duplicated().any() and made.test["row_id"].tolist()[:2] == [1, 2]
    assert set(made.recipe["selected_features"]) <= set(made.test_v1().columns)


@pytest.mark.parametrize("family", BOTH)
@pytest.mark.parametrize("told", [True, False])
def test_a_target_that_nothing_tells_is_refused_and_one_that_is_told_is_kept(
    family: str, told: bool
) -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed + 3)
        frame = pd.DataFrame({name: rng.normal(size=150) for name in "abc"})
        y = frame["a"] if told else pd.Series(rng.normal(size=150))
        y += rng.normal(0, 0.3, 150)
        frame["y"] = y if family == "reg" else np.where(y > 0, "yes", "no")
        kinds = {c: "numerical" if c != "y" or family == "reg" else "categorical" for c in frame}
        made = propose(Looked(frame, kinds), family, ["y"], random.Random(seed), mini=False)
        assert bool(tabular_baseline(made)) != told
