# pandas and scikit-learn ship no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportUnknownLambdaType=false, reportGeneralTypeIssues=false
"""The reference solution of IF tasks (spec section 4), whose answer is their gold."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from assay.task import TaskError
from assay.workers import limit_threads
from data_gen.dare.layout import Entry, Frame, csv_bytes, read_table

HOMES = {
    "GaussianNB": "naive_bayes",
    "LinearSVC": "svm",
    "DecisionTreeClassifier": "tree",
    "DecisionTreeRegressor": "tree",
    "MLPClassifier": "neural_network",
    "MLPRegressor": "neural_network",
}


def read(path: Path) -> Frame:
    """A table as the reference reads it: whatever is missing is NaN."""
    frame = read_table(path)
    return frame if path.suffix == ".csv" else frame.replace({None: float("nan")})


def in_range(frame: Any, ranges: dict[str, Any], kinds: dict[str, str]) -> Any:
    """Rows that keep every range; what is missing stays."""
    keep = frame.index == frame.index
    for name, allowed in ranges.items():
        column = frame[name]
        if kinds[name] == "numerical":
            keep &= (column.ge(allowed[0]) & column.le(allowed[1])) | column.isna()
        else:
            keep &= column.isin(allowed) | column.isna()
    return frame[keep]


def estimator(recipe: dict[str, Any]) -> Any:
    """The model with library defaults and, where it takes one, the seed."""
    name = recipe["model_type"]
    kind: Any = getattr(import_module(f"sklearn.{HOMES.get(name, 'linear_model')}"), name)
    seeded = name not in ("GaussianNB", "LinearRegression")
    model = kind(random_state=recipe["random_state"]) if seeded else kind()
    if len(recipe["target"]) == 1 or name not in ("LogisticRegression", "GaussianNB", "LinearSVC"):
        return model
    return import_module("sklearn.multioutput").MultiOutputClassifier(model)


def preparation(recipe: dict[str, Any]) -> Any:
    """What comes before the model, unfitted. A recipe whose `imputer_type` is None fills nothing,
    one whose `scale` is False does not standardise: readers who skip a step."""
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    features = recipe["selected_features"]
    kinds = recipe["column_type_inference"]
    numeric = [f for f in features if kinds[f] == "numerical"]
    words = [f for f in features if kinds[f] != "numerical"]
    scale = [("scale", StandardScaler())] if recipe.get("scale", True) else []
    way = recipe["imputer_type"]
    blocks: list[Any] = []
    if numeric:
        fill = [("fill", SimpleImputer(strategy=way))] if way else []
        blocks.append(("num", Pipeline([*fill, *scale] or [("as_is", "passthrough")]), numeric))
    if words:
        fill = [("fill", SimpleImputer(strategy="most_frequent"))] if way else []
        hot = ("hot", OneHotEncoder(handle_unknown="ignore", sparse_output=False))
        blocks.append(("cat", Pipeline([*fill, hot]), words))
    return ColumnTransformer(blocks)


def fit(train: Any, recipe: dict[str, Any]) -> Any:
    """The fitted pipeline."""
    from sklearn.pipeline import Pipeline

    features, targets = recipe["selected_features"], recipe["target"]
    train = train.dropna(subset=targets)
    model = Pipeline([("pre", preparation(recipe)), ("model", estimator(recipe))])
    with warnings.catch_warnings(action="ignore"):
        return model.fit(train[features], train[targets])


def predict(model: Any, test: Any, recipe: dict[str, Any]) -> Any:
    """The predictions of a fitted pipeline: row_id and the targets."""
    import pandas as pd

    targets = recipe["target"]
    with warnings.catch_warnings(action="ignore"):
        said = model.predict(test[recipe["selected_features"]])
    out = pd.DataFrame(said.reshape(len(test), len(targets)), columns=targets)
    out.insert(0, "row_id", test["row_id"].to_numpy())
    return out


def solve(train: Frame, test: Frame, recipe: dict[str, Any]) -> str:
    """The reference's answer as csv text: row_id and the targets."""
    return csv_bytes(predict(fit(train, recipe), test, recipe)).decode()


def versions() -> dict[str, str]:
    """What the answers depend on."""
    import numpy
    import pandas
    import scipy
    import sklearn

    return {
        "numpy": numpy.__version__,
        "pandas": pandas.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
        "python": ".".join(map(str, sys.version_info[:3])),
    }


def simulate(entry: Entry) -> tuple[str, dict[str, str]]:
    """The IF answer of an official database, from its clean training file (the harness's
    `force_simulate`), and the versions it was made with. Raises `TaskError` where it cannot be
    made."""
    limit_threads()
    kind = str(entry.recipe["save_file_type"])
    names = (f"train_v1_no_err.{kind}", f"val_v1.{kind}")
    try:
        train, test = (read(entry.folder / "source" / name) for name in names)
        return solve(train, test, recipe_of(entry.recipe)), versions()
    except Exception as error:  # the files of a copy may be anything
        said = f"{type(error).__name__}: {error}"[:300]
        raise TaskError(f"{entry.name}: the reference failed: {said}") from None


_RECIPE = (
    "selected_features",
    "column_type_inference",
    "target",
    "imputer_type",
    "model_type",
    "random_state",
    "problem_type",
    "save_file_type",
    "expected_ranges",
    "stated",
    "not_filtered_related_features",
    "numerical_features",
    "categorical_features",
)


def recipe_of(question: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that decide the answer."""
    return {name: question[name] for name in _RECIPE if name in question}
