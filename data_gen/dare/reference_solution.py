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

HOMES = {
    "GaussianNB": "naive_bayes",
    "LinearSVC": "svm",
    "DecisionTreeClassifier": "tree",
    "DecisionTreeRegressor": "tree",
    "MLPClassifier": "neural_network",
    "MLPRegressor": "neural_network",
}


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
    from importlib import import_module

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
    return model.fit(train[features], train[targets])


def predict(model: Any, test: Any, recipe: dict[str, Any]) -> Any:
    """The predictions of a fitted pipeline: row_id and the targets."""
    return _answer(model.predict(test[recipe["selected_features"]]), test, recipe)


def _answer(said: Any, test: Any, recipe: dict[str, Any]) -> Any:
    import pandas as pd

    targets = recipe["target"]
    said = said.reshape(len(test), len(targets))
    out = pd.DataFrame(said, columns=targets)
    out.insert(0, "row_id", test["row_id"].to_numpy())
    return out


def solve(train: Any, test: Any, recipe: dict[str, Any]) -> Any:
    """The reference's predictions: row_id and the targets."""
    return predict(fit(train, recipe), test, recipe)


def prepared(train: Any, test: Any, recipe: dict[str, Any]) -> tuple[Any, Any, Any]:
    """(what the model is fitted on, its targets, what it is asked), of a fitted preparation. Runs
    that change only the model or its seed share it. The blocks of `preparation` get plain arrays:
    checking frames and their names takes most of the time of a small table."""
    import numpy as np

    train = train.dropna(subset=recipe["target"])
    fitted: list[Any] = []
    asked: list[Any] = []
    for name, block, columns in preparation(recipe).transformers:
        kind = float if name == "num" else object
        fitted.append(block.fit_transform(train[columns].to_numpy(kind)))
        asked.append(block.transform(test[columns].to_numpy(kind)))
    return np.hstack(fitted), train[recipe["target"]], np.hstack(asked)


def learnt(model: Any, recipe: dict[str, Any], rows: int) -> dict[str, Any]:
    """What a fitted pipeline knows before its model: for each numeric feature what fills it, its
    mean and its population deviation; for each other one what fills it and its categories."""
    features, kinds = recipe["selected_features"], recipe["column_type_inference"]
    blocks = model["pre"].named_transformers_
    known: dict[str, Any] = {"rows": rows, "numeric": {}, "categorical": {}}
    numeric = [f for f in features if kinds[f] == "numerical"]
    for place, name in enumerate(numeric):
        steps = blocks["num"].named_steps
        scale = steps["scale"]
        found = (steps["fill"].statistics_[place], scale.mean_[place], scale.var_[place] ** 0.5)
        known["numeric"][name] = [float(value) for value in found]
    for place, name in enumerate(f for f in features if kinds[f] != "numerical"):
        steps = blocks["cat"].named_steps
        listed = [str(value) for value in steps["hot"].categories_[place]]
        known["categorical"][name] = [str(steps["fill"].statistics_[place]), listed]
    return known


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


def alike(one: Any, other: Any) -> bool:
    """Whether two answers would score as the same; a little wider than the scorer's tolerance."""
    import numpy as np

    if not isinstance(one, str) or not isinstance(other, str):
        return False
    rows = [[line.split(",")[1:] for line in text.splitlines()[1:]] for text in (one, other)]
    try:
        return bool(np.allclose(np.array(rows[0], float), np.array(rows[1], float)))
    except ValueError:
        return rows[0] == rows[1]


def hopeless(answers: list[Any], differ: int) -> bool:
    """Whether the first answers (reference twice, faithful, then `differ` broken steps) already
    refuse the task: the rest need not be computed."""
    if len(answers) == 3:
        return not (alike(answers[0], answers[1]) and alike(answers[0], answers[2]))
    return 3 < len(answers) <= 3 + differ and alike(answers[0], answers[-1])


def readers(answers: list[Any], steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The recipe changes of readers who do none of the steps that made no difference one by one:
    each step says where its answers stand, from and to, and the ways to go without it."""
    left = [
        step["changes"]
        for step in steps
        if all(alike(answers[0], answers[i]) for i in range(*step["runs"]))
    ]
    merged: list[dict[str, Any]] = []
    for k in range(max((len(ways) for ways in left), default=0)):
        whole: dict[str, Any] = {}
        for ways in left:
            whole |= ways[k % len(ways)]
        merged.append(whole)
    return merged


def main() -> None:
    """Answer every job: recipe changes over the same tables, with or without the filter. With
    `differ`, stop at an answer that refuses the task; with `open`, the answers of `readers`, who
    filter as the third run does, follow."""
    import warnings

    import pandas as pd

    warnings.simplefilter("ignore")
    pd.set_option("mode.string_storage", "python")  # as fast again, of small tables
    with open("job.json", encoding="utf-8") as file:
        job = json.load(file)
    test = read(job["test"])
    tables = {name: read(name) for name in {j["train"] for j in job["runs"]}}
    answers: list[Any] = []
    known: dict[str, Any] = {}
    ready: dict[str, tuple[Any, Any, Any]] = {}

    def answer(run: dict[str, Any]) -> Any:
        train, recipe = tables[run["train"]], {**job["recipe"], **run.get("changes", {})}
        if run.get("ranges") is not None:
            train = in_range(train, run["ranges"], recipe["column_type_inference"])
        try:
            if len(answers) < 2:  # the reference twice, each from the start
                model = fit(train, recipe)
                if not answers:
                    rows = len(train.dropna(subset=recipe["target"]))
                    known.update(learnt(model, recipe, rows))
                table = predict(model, test, recipe)
            else:
                steps = ("selected_features", "imputer_type", "scale")
                own = [run["train"], run.get("ranges"), *(recipe.get(name) for name in steps)]
                key = json.dumps(own)
                x, y, asked = ready.get(key) or prepared(train, test, recipe)
                ready[key] = x, y, asked
                table = _answer(estimator(recipe).fit(x, y).predict(asked), test, recipe)
            return table.to_csv(index=False, lineterminator="\n")
        except Exception as error:  # a broken step may not run at all: that too is an answer
            return {"error": f"{type(error).__name__}: {error}"[:300]}

    for run in job["runs"]:
        answers.append(answer(run))
        if "differ" in job and hopeless(answers, job["differ"]):
            break
    else:
        for changes in readers(answers, job.get("open", [])):
            answers.append(answer({**job["runs"][2], "changes": changes}))
    with open("answers.json", "w", encoding="utf-8") as file:
        json.dump({"answers": answers, "versions": versions(), "fitted": known}, file)


if __name__ == "__main__":
    main()
