"""Answers that one feature decides are found."""

from __future__ import annotations

import random
from typing import Any

import pytest

pd = pytest.importorskip("pandas")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from data_gen.dare.tabular import Candidate  # noqa: E402
from data_gen.dare.validate import _decides  # noqa: E402
from data_gen.leaks import _commonest, given_away  # noqa: E402


def csv_of(values: list[Any]) -> str:
    return "row_id,y\n" + "".join(f"{i},{v}\n" for i, v in enumerate(values, 1))


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from("pqr")), min_size=1, max_size=40))
def test_the_commonest_label_is_what_pandas_says(pairs: list[tuple[int, str]]) -> None:
    x, y = (pd.Series(list(column)) for column in zip(*pairs, strict=True))
    expected = y.groupby(x.to_numpy()).agg(lambda g: g.mode().iloc[0])
    assert _commonest(x, y).to_dict() == expected.to_dict()


def drawn(answer: Any) -> tuple[Candidate, str]:
    """A draft of 200 training and 60 test rows, and an answer made of the test rows."""
    rng = random.Random(0)
    rows = [{"race": rng.choice("abc"), "age": rng.randint(15, 40)} for _ in range(260)]
    frame = pd.DataFrame(rows)
    frame["y"] = ["yes" if r == "a" or rng.random() < 0.2 else "no" for r in frame["race"]]
    train, test = frame[:200], frame[200:].reset_index(drop=True)
    test.insert(0, "row_id", range(1, 61))
    recipe = {
        "target": ["y"],
        "selected_features": ["age", "race"],
        "not_filtered_related_features": ["race", "age"],
    }
    said = csv_of([answer(row) for row in test.to_dict("records")])
    made = Candidate("class", recipe, train, test[["row_id", "race", "age"]], test, train)
    return made, said


def test_answers_that_one_feature_decides_are_found() -> None:
    assert _decides(*drawn(lambda row: "yes" if row["race"] == "a" else "no")) == "race"
    both = drawn(lambda row: "yes" if row["race"] == "a" and row["age"] < 30 else "no")
    assert _decides(*both) == ""
    made, _ = both
    test = made.test.assign(y=made.test["race"].map({"a": "yes", "b": "no", "c": "no"}))
    assert given_away(made.train, test, "y", ["race", "age"], 1.0) == {"race": 1.0}
