"""What the reference learns before its model."""

from __future__ import annotations

import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn")

from data_gen.dare.reference_solution import fit, learnt, predict  # noqa: E402


def test_what_the_reference_learnt_is_what_scikit_learn_says() -> None:
    train = pd.DataFrame(
        {"a": [1.0, 2.0, None, 6.0], "w": ["x", None, "y", "x"], "y": [1.0, 2.0, 3.0, 5.0]}
    )
    recipe = {
        "selected_features": ["w", "a"],
        "column_type_inference": {"a": "numerical", "w": "categorical", "y": "numerical"},
        "target": ["y"],
        "imputer_type": "median",
        "model_type": "Ridge",
        "random_state": 0,
        "problem_type": "regression",
    }
    model = fit(train, recipe)
    known = learnt(model, recipe, len(train))
    fill, mean, spread = known["numeric"]["a"]
    assert (fill, mean) == (2.0, 2.75) and spread == pytest.approx(1.9202, abs=1e-4)  # population
    assert known["categorical"]["w"] == ["x", ["x", "y"]] and known["rows"] == 4
    test = train.drop(columns="y").assign(row_id=range(1, 5))
    assert predict(model, test, recipe)["row_id"].tolist() == [1, 2, 3, 4]
