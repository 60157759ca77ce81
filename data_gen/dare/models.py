# pandas and scikit-learn ship no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportUnknownLambdaType=false, reportGeneralTypeIssues=false
"""Models of scikit-learn: the reference solution of IF tasks (spec section 4), whose answer is
their gold, and simple ones that show that a task can be done."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import numpy as np

from assay.errors import pandas as pd
from assay.record import installed
from assay.task import TaskError
from assay.workers import limit_threads
from data_gen.dare.layout import Entry, Frame, csv_bytes, read_table
from rewards.dare.score import macro_f1, raw_r2

# estimators, and the modules that they are in
HOMES = {
    "GaussianNB": "naive_bayes",
    **dict.fromkeys(("KNeighborsClassifier", "KNeighborsRegressor"), "neighbors"),
    **dict.fromkeys(("DecisionTreeClassifier", "DecisionTreeRegressor"), "tree"),
    **dict.fromkeys(("RandomForestClassifier", "RandomForestRegressor"), "ensemble"),
    "LinearSVC": "svm",
    **dict.fromkeys(("MLPClassifier", "MLPRegressor"), "neural_network"),
    **dict.fromkeys(("LogisticRegression", "LinearRegression", "Ridge", "Lasso"), "linear_model"),
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
    kind: Any = getattr(import_module(f"sklearn.{HOMES[name]}"), name)
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
    found = installed(("numpy", "pandas", "scipy", "scikit-learn"))
    python = found.pop("python")
    return {**found, "python": python}


def simulate(entry: Entry) -> tuple[str, dict[str, str]]:
    """The IF answer of an official database, from its clean training file (the harness's
    `force_simulate`), and the versions it was made with. Raises `TaskError` where it cannot be
    made."""
    limit_threads()
    kind = str(entry.recipe["save_file_type"])
    names = (f"train_v1_no_err.{kind}", f"val_v1.{kind}")
    try:
        train, test = (read(entry.folder / "source" / name) for name in names)
        return solve(train, test, entry.solution), versions()
    except Exception as error:  # the files of a copy may be anything
        said = f"{type(error).__name__}: {error}"[:300]
        raise TaskError(f"{entry.name}: the reference failed: {said}") from None


# --- simple models: a task that none of them can do, or none can miss, is no task ---

FLOOR_F1 = 0.08  # above the constant answer and above chance
FLOOR_R2 = 0.1
ORDERS, SURELY = 30, 3.0  # orders of the answers that show what chance reaches, and how surely
TREES = (10, 40)  # of a forest; the larger one is grown where the smaller does not do


def design(train: Frame, test: Frame, names: list[str]) -> tuple[Any, Any]:
    """Numbers as they are, words one-hot over the training set's 15 commonest; NaN stays."""
    blocks: list[tuple[Any, Any]] = []
    for name in names:
        a, b = train[name], test[name]
        if a.dtype.kind in "iufb":
            blocks.append((a.to_numpy(float)[:, None], b.to_numpy(float)[:, None]))
            continue
        top = a.value_counts().index[:15]
        parts = [np.stack([(c == t).to_numpy(float) for t in top], 1) for c in (a, b)]
        blocks.append((parts[0], parts[1]))
    return (np.concatenate([x for x, _ in blocks], 1), np.concatenate([y for _, y in blocks], 1))


def tabular_baseline(made: Any) -> str:
    """ "" if a default model beats the floor on every target, else why the task is refused."""
    names = made.recipe["related_features"]
    x, z = design(made.train, made.test, names)
    middle = pd.DataFrame(x).median().fillna(0.0).to_numpy()
    x, z = (pd.DataFrame(t).fillna(pd.Series(middle)).to_numpy() for t in (x, z))
    for target in made.recipe["target"]:
        if not _beats(made.family, x, z, made.train[target], made.truth[target]):
            return "a default model does not beat a constant answer or chance"
    return ""


def _beats(family: str, x: Any, z: Any, y: Any, truth: Any) -> bool:
    """Whether a small forest, fitted on `x` and `y`, predicts `truth` from `z` better than a
    constant does and, surely, better than its own answers in another order do: a macro-F1 of 0.5
    says nothing of two classes, and one of 0.6 little where few rows are asked."""
    from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor

    for trees in TREES:
        if family == "class":
            forest: Any = ExtraTreesClassifier(trees, random_state=0, min_samples_leaf=2)
            said = pd.Series(forest.fit(x, y).predict(z))
            lazy = pd.Series([y.value_counts().index[0]] * len(truth))
            orders = (said.sample(frac=1, random_state=i) for i in range(ORDERS))
            chance = [macro_f1(truth, order.reset_index(drop=True)) for order in orders]
            least = max(macro_f1(truth, lazy), fmean(chance)) + FLOOR_F1
            beats = macro_f1(truth, said) >= max(least, fmean(chance) + SURELY * pstdev(chance))
        else:
            forest = ExtraTreesRegressor(trees, random_state=0, min_samples_leaf=2)
            said = pd.Series(forest.fit(x, y).predict(z))
            beats = (raw_r2(truth, said) or 0.0) >= FLOOR_R2
            beats = beats and truth.corr(said) * (len(truth) - 1) ** 0.5 >= SURELY
        if beats:
            return True
    return False


def forecasts(train: Frame, test: Frame, time: str, keys: list[str], target: str) -> Iterator[Any]:
    """Answers that need the past of the target only: by entity, mean, last value, straight line,
    and last, for they take longest, trees on entity and calendar."""
    from sklearn.ensemble import ExtraTreesRegressor

    def days(frame: Frame) -> Any:
        return (frame[time] - train[time].min()).dt.total_seconds().to_numpy() / 86400

    ordered = train.assign(_d=days(train)).sort_values("_d")
    past, ask = ordered, test.assign(_d=days(test))
    whole = past[target].mean()
    group = past.groupby(keys)[target] if keys else None
    if group is not None:
        index: Any = pd.MultiIndex.from_frame(ask[keys]) if len(keys) > 1 else ask[keys[0]]
        yield group.mean().reindex(index).fillna(whole).to_numpy()
        yield group.last().reindex(index).fillna(whole).to_numpy()
    else:
        yield np.full(len(ask), past[target].iloc[-1])
        slope, base = np.polyfit(past["_d"], past[target], 1)
        yield base + slope * ask["_d"].to_numpy()
    x, z = design(
        past.assign(**_calendar(past[time])),
        ask.assign(**_calendar(ask[time])),
        [*keys, "_d", *_calendar(ask[time])],
    )
    for trees in TREES:
        model = ExtraTreesRegressor(trees, random_state=0, min_samples_leaf=2)
        yield model.fit(x, past[target]).predict(z)


def _calendar(times: Any) -> dict[str, Any]:
    return {"_month": times.dt.month, "_weekday": times.dt.weekday, "_hour": times.dt.hour}


def any_beats(truth: Any, answers: Iterable[Any]) -> bool:
    """Whether the unclipped R2 of any answer reaches the floor; no more are made than needed."""
    plain = truth.reset_index(drop=True)
    found = (raw_r2(plain, pd.Series(answer)) for answer in answers)
    return any(value is not None and value >= FLOOR_R2 for value in found)
