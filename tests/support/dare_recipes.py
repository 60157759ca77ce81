"""A recipe of an IF task in words, for the tests of questions and of their rewordings."""

from __future__ import annotations

from typing import Any


def house_recipe(**more: Any) -> dict[str, Any]:
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
        "expected_ranges": {"size": [2, 41], "town": ["Bonn", "Ulm"]},
        "imputer_type": "mean",
        "model_type": "Ridge",
        "random_state": 7,
    } | more
