"""Code that a faithful solver of an IF task would write, from the task's recipe.

The scripted agents emit it through the tool; it starts from the noisy training file, as a model
has to, and is written independently of the reference.
"""

from __future__ import annotations

from typing import Any

_HOME = {
    "LogisticRegression": "linear_model",
    "LinearRegression": "linear_model",
    "Ridge": "linear_model",
    "Lasso": "linear_model",
    "DecisionTreeClassifier": "tree",
    "DecisionTreeRegressor": "tree",
    "GaussianNB": "naive_bayes",
    "LinearSVC": "svm",
    "MLPClassifier": "neural_network",
    "MLPRegressor": "neural_network",
}
_READ = {
    "csv": "def read(f):\n    return pd.read_csv(f, keep_default_na=False, na_values=[''])\n",
    "parquet": "def read(f):\n    return pd.read_parquet(f).replace({None: np.nan})\n",
    "sqlite": (
        "import sqlite3\ndef read(f):\n    db = sqlite3.connect(f)\n"
        "    names = [r[0] for r in db.execute(\"select name from sqlite_master where type='table' "
        'order by name")]\n    out = None\n    for n in names:\n'
        "        t = pd.read_sql('select * from \"%s\"' % n, db)\n"
        "        out = t if out is None else out.merge(t, on='row_id')\n"
        "    return out.replace({None: np.nan})\n"
    ),
}


def _model(recipe: dict[str, Any], stated_only: bool = False) -> str:
    name = recipe["model_type"]
    seeded = name not in ("GaussianNB", "LinearRegression")
    if stated_only and "seed" not in recipe.get("stated", ()):
        seeded = False
    return f"{name}(random_state={recipe['random_state']})" if seeded else f"{name}()"


def faithful_code(recipe: dict[str, Any]) -> str:
    """A script that follows every instruction and writes prediction.csv. Where the recipe says
    which steps the question states, it does those alone: library defaults for the rest."""
    ext, targets, name = recipe["save_file_type"], recipe["target"], recipe["model_type"]
    kinds, chosen = recipe["column_type_inference"], recipe["selected_features"]
    numbers = [f for f in chosen if kinds[f] == "numerical"]
    words = [f for f in chosen if kinds[f] != "numerical"]
    stated = recipe.get("stated", ("impute", "scale", "seed"))
    fill, most = (
        f"SimpleImputer(strategy={w!r})" for w in (recipe["imputer_type"], "most_frequent")
    )
    steps = [fill] * ("impute" in stated) + ["StandardScaler()"] * ("scale" in stated)
    model = _model(recipe, stated_only="stated" in recipe)
    if len(targets) > 1 and name in ("LogisticRegression", "GaussianNB", "LinearSVC"):
        model = f"MultiOutputClassifier({model})"
    return f"""import numpy as np, pandas as pd
from numpy import nan  # a published range may be [nan, nan]
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.{_HOME[name]} import {name}
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
{_READ[ext]}
train, val = read('train_v1.{ext}'), read('val_v1.{ext}')
ranges = {recipe["expected_ranges"]!r}
for name, allowed in ranges.items():
    col = train[name]
    good = col.between(*allowed) if pd.api.types.is_numeric_dtype(col) else col.isin(allowed)
    train = train[good | col.isna()]
numeric, words = {numbers!r}, {words!r}
targets = {targets!r}
train = train.dropna(subset=targets)
blocks = []
if numeric:
    blocks.append(('n', make_pipeline({", ".join(steps) or "'passthrough'"}), numeric))
if words:
    hot = OneHotEncoder(handle_unknown='ignore', sparse_output=False)
    blocks.append(('c', make_pipeline({f"{most}, " * ("impute" in stated)}hot), words))
model = Pipeline([('x', ColumnTransformer(blocks)), ('m', {model})])
model.fit(train[{chosen!r}], train[targets])
said = np.asarray(model.predict(val[{chosen!r}])).reshape(len(val), len(targets))
out = pd.DataFrame(said, columns=targets)
out.insert(0, 'row_id', val['row_id'].to_numpy())
out.to_csv('prediction.csv', index=False)
"""


def short_code(recipe: dict[str, Any]) -> str:
    """The same for a task of numeric columns in csv, as short as a small model can learn it."""
    name, target = recipe["model_type"], recipe["target"][0]
    stated = recipe["stated"]
    lines = [
        "import pandas as pd",
        f"from sklearn.{_HOME[name]} import {name}",
        "from sklearn.pipeline import make_pipeline",
    ]
    steps: list[str] = []
    if "impute" in stated:
        lines.append("from sklearn.impute import SimpleImputer")
        steps.append(f"SimpleImputer(strategy='{recipe['imputer_type']}')")
    if "scale" in stated:
        lines.append("from sklearn.preprocessing import StandardScaler")
        steps.append("StandardScaler()")
    steps.append(_model(recipe, stated_only=True))
    lines += ["t = pd.read_csv('train_v1.csv')", "v = pd.read_csv('val_v1.csv')"]
    for column, (low, high) in recipe["expected_ranges"].items():
        lines.append(
            f"t = t[t['{column}'].between({low:.15g}, {high:.15g}) | t['{column}'].isna()]"
        )
    lines += [
        f"X = {recipe['selected_features']!r}",
        f"m = make_pipeline({', '.join(steps)}).fit(t[X], t['{target}'])",
        f"v['{target}'] = m.predict(v[X])",
        f"v[['row_id', '{target}']].to_csv('prediction.csv', index=False)",
    ]
    return "\n".join(lines)
