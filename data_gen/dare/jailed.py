# pandas and scikit-learn ship no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportUnknownLambdaType=false, reportGeneralTypeIssues=false
"""The reference solution of IF tasks (spec section 4), and the same with one step broken.

This file's text is what runs in the sandbox: it imports nothing of Assay. `job.json` says which
files and which steps; `answers.json` comes back. It can also be imported, for tests.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from typing import Any


def read(path: str) -> Any:
    """A table as the reference reads it; None and the empty field are missing."""
    import numpy as np
    import pandas as pd

    if path.endswith(".csv"):
        return pd.read_csv(path, keep_default_na=False, na_values=[""])
    if path.endswith(".parquet"):
        return pd.read_parquet(path).replace({None: np.nan})
    db = sqlite3.connect(path)
    names = [
        r[0] for r in db.execute("select name from sqlite_master where type='table' order by 1")
    ]
    parts: list[Any] = [pd.read_sql(f'select * from "{n}"', db) for n in names]
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.merge(part, on="row_id")
    return whole.replace({None: np.nan})


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
    from sklearn import linear_model, naive_bayes, neural_network, svm, tree
    from sklearn.multioutput import MultiOutputClassifier

    name, homes = recipe["model_type"], (linear_model, naive_bayes, neural_network, svm, tree)
    kind: Any = next(getattr(home, name) for home in homes if hasattr(home, name))
    seeded = name not in ("GaussianNB", "LinearRegression")
    model = kind(random_state=recipe["random_state"]) if seeded else kind()
    wrapped = name in ("LogisticRegression", "GaussianNB", "LinearSVC")
    return MultiOutputClassifier(model) if wrapped and len(recipe["target"]) > 1 else model


def solve(train: Any, test: Any, recipe: dict[str, Any]) -> Any:
    """The reference's predictions: row_id and the targets."""
    import pandas as pd
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    features, targets = recipe["selected_features"], recipe["target"]
    train = train.dropna(subset=targets)
    kinds = recipe["column_type_inference"]
    numeric = [f for f in features if kinds[f] == "numerical"]
    words = [f for f in features if kinds[f] != "numerical"]
    scale = [("scale", StandardScaler())] if recipe.get("scale", True) else []
    blocks: list[Any] = []
    if numeric:
        steps = [("fill", SimpleImputer(strategy=recipe["imputer_type"])), *scale]
        blocks.append(("num", Pipeline(steps), numeric))
    if words:
        steps = [
            ("fill", SimpleImputer(strategy="most_frequent")),
            ("hot", OneHotEncoder(handle_unknown="ignore", sparse_output=False)),
        ]
        blocks.append(("cat", Pipeline(steps), words))
    model = Pipeline([("pre", ColumnTransformer(blocks)), ("model", estimator(recipe))])
    model.fit(train[features], train[targets])
    said = model.predict(test[features])
    said = said.reshape(len(test), len(targets))
    out = pd.DataFrame(said, columns=targets)
    out.insert(0, "row_id", test["row_id"].to_numpy())
    return out


def versions() -> dict[str, str]:
    """What the answers depend on."""
    import numpy
    import pandas
    import scipy
    import sklearn

    return {"numpy": numpy.__version__, "pandas": pandas.__version__, "scipy": scipy.__version__,
            "scikit-learn": sklearn.__version__,
            "python": ".".join(map(str, sys.version_info[:3]))}  # fmt: skip


def main() -> None:
    """Answer every job: recipe changes over the same tables, with or without the filter."""
    import warnings

    warnings.simplefilter("ignore")
    with open("job.json", encoding="utf-8") as file:
        job = json.load(file)
    test = read(job["test"])
    tables = {name: read(name) for name in {j["train"] for j in job["runs"]}}
    answers: list[Any] = []
    for run in job["runs"]:
        train, recipe = tables[run["train"]], {**job["recipe"], **run.get("changes", {})}
        if run.get("ranges") is not None:
            train = in_range(train, run["ranges"], recipe["column_type_inference"])
        try:
            answers.append(solve(train, test, recipe).to_csv(index=False, lineterminator="\n"))
        except Exception as error:  # a broken step may not run at all: that too is an answer
            answers.append({"error": f"{type(error).__name__}: {error}"[:300]})
    with open("answers.json", "w", encoding="utf-8") as file:
        json.dump({"answers": answers, "versions": versions()}, file)


if __name__ == "__main__":
    main()
