# scikit-learn ships no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""The answer of an IF task from a matrix that SQL made: filled, standardised and one-hot encoded in
SQL, with scikit-learn for the model alone.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from data_gen.proof.compare import Differs, difference
from data_gen.proof.original import literal
from data_gen.proof.shipped import Sheet

_HOMES = {
    "sklearn.linear_model": ("LogisticRegression", "LinearRegression", "Ridge", "Lasso"),
    "sklearn.naive_bayes": ("GaussianNB",),
    "sklearn.svm": ("LinearSVC",),
    "sklearn.tree": ("DecisionTreeClassifier", "DecisionTreeRegressor"),
    "sklearn.neural_network": ("MLPClassifier", "MLPRegressor"),
}
_WRAPPED = ("LogisticRegression", "GaussianNB", "LinearSVC")
_UNSEEDED = ("GaussianNB", "LinearRegression")
_CLOSE = 1e-9  # relative; of statistics
Recipe = Mapping[str, Any]
Facts = dict[str, Any]
# (track, gold, columns, answer) → what the family's scorer gives the answer
Scorer = Callable[[str, str, tuple[str, ...], str], float | None]


def facts(db: Any, clean: Sheet, recipe: Recipe) -> Facts:
    """What the reference must have learnt before its model, by SQL over the clean rows: for each
    numeric feature what fills it, its mean and its population deviation; for each other one what
    fills it and its categories in order."""
    numeric: dict[str, list[float]] = {}
    other: dict[str, list[Any]] = {}
    for name in recipe["selected_features"]:
        if recipe["column_type_inference"][name] == "numerical":
            cell = clean.number(name)
            fill = _fill(db, clean, cell, str(recipe["imputer_type"]))
            if fill is None:
                raise Differs(f"the second computation gives nothing to fill {name!r} with")
            full = f"coalesce({cell}, {fill!r}::double)"
            mean, spread = db.execute(
                f"select favg({full}), stddev_pop({full}) from {clean.table}"
            ).fetchone()
            numeric[name] = [float(fill), float(mean), float(spread)]
        else:
            cell = clean.words(name)
            fill = _fill(db, clean, cell, "most_frequent")
            full = f"coalesce({cell}, {literal(str(fill))})"
            listed = db.execute(f"select distinct {full} from {clean.table}").fetchall()
            other[name] = [fill, sorted(str(row[0]) for row in listed)]
    rows = db.execute(f"select count(*) from {clean.table}").fetchone()[0]
    return {"rows": int(rows), "numeric": numeric, "categorical": other}


def _fill(db: Any, clean: Sheet, cell: str, how: str) -> Any:
    """Mean, median or commonest value of what is known; of equally common ones the least."""
    if how == "most_frequent":
        row = db.execute(
            f"select {cell} as v from {clean.table} where {cell} is not null "
            "group by v order by count(*) desc, v limit 1"
        ).fetchone()
        return None if row is None else row[0]
    call = {"mean": "favg", "median": "median"}[how]
    return db.execute(f"select {call}({cell}) from {clean.table}").fetchone()[0]


def check_fitted(mine: Facts, said: bytes) -> None:
    """Raise `Differs` where the reference says that it learnt something else."""
    first = json.loads(said)
    if mine["rows"] != first["rows"]:
        raise difference(mine["rows"], "the number of training rows", first["rows"])
    titles = ("what fills", "the mean of", "the deviation of")
    for name, values in mine["numeric"].items():
        theirs = first["numeric"].get(name, [None] * 3)
        for title, one, other in zip(titles, values, theirs, strict=True):
            if other is None or not _near(one, float(other), values):
                raise difference(one, f"{title} {name!r}", other)
    for name, (fill, listed) in mine["categorical"].items():
        other = first["categorical"].get(name, [None, []])
        if fill != other[0]:
            raise difference(fill, f"what fills {name!r}", other[0])
        if listed != sorted(other[1]):
            raise difference(len(listed), f"the categories of {name!r}", len(other[1]))


def _near(one: float, other: float, scale: list[float]) -> bool:
    """Near at the scale of the column, whose mean may be 0."""
    return abs(one - other) <= _CLOSE * max(abs(one), *(abs(v) for v in scale))


def matrix(db: Any, sheet: Sheet, recipe: Recipe, known: Facts) -> Any:
    """The design matrix of a table, rows in their order: numeric block, then one-hot."""
    import numpy as np

    cells: list[str] = []
    for name, (fill, mean, spread) in known["numeric"].items():
        scale = spread if _varies(mean, spread, known["rows"]) else 1.0
        cells.append(
            f"(coalesce({sheet.number(name)}, {fill!r}::double) - {mean!r}::double)"
            f" / {scale!r}::double"
        )
    for name, (fill, listed) in known["categorical"].items():
        full = f"coalesce({sheet.words(name)}, {literal(str(fill))})"
        cells += [f"({full} = {literal(word)})::double" for word in listed]
    named = ", ".join(f"{cell} as x{i}" for i, cell in enumerate(cells))
    found = db.execute(f"select {named} from {sheet.table} order by pos").fetchnumpy()
    return np.column_stack([np.asarray(found[f"x{i}"], float) for i in range(len(cells))])


def _varies(mean: float, spread: float, rows: int) -> bool:
    """Whether a column is more than one value and rounding: else nothing divides it."""
    eps = 2.220446049250313e-16
    return spread * spread > rows * eps * spread * spread + (rows * mean * eps) ** 2


def _targets(db: Any, clean: Sheet, recipe: Recipe) -> Any:
    import numpy as np

    kinds = recipe["column_type_inference"]
    parts: list[Any] = []
    for name in recipe["target"]:
        numeric = kinds[name] == "numerical"
        cell = clean.number(name) if numeric else clean.words(name)
        column = db.execute(f"select {cell} as y from {clean.table} order by pos").fetchnumpy()["y"]
        if numeric and recipe["problem_type"] == "classification":
            column = np.asarray(column, float).astype(np.int64)
        parts.append(np.asarray(column, float if numeric and column.dtype.kind == "f" else None))
    return np.column_stack(parts)


def _model(recipe: Recipe) -> Any:
    name = str(recipe["model_type"])
    home = next(home for home, names in _HOMES.items() if name in names)
    kind: Any = getattr(importlib.import_module(home), name)
    model = kind() if name in _UNSEEDED else kind(random_state=recipe["random_state"])
    if len(recipe["target"]) > 1 and name in _WRAPPED:
        return importlib.import_module("sklearn.multioutput").MultiOutputClassifier(model)
    return model


def check_answer(
    db: Any, sheets: tuple[Sheet, Sheet], recipe: Recipe, known: Facts, answer: bytes, score: Scorer
) -> None:
    """Raise `Differs` unless a model fitted on the SQL matrix of the first sheet gives the answer
    for the second, by the scorer."""
    import numpy as np

    limits: Any = importlib.import_module("threadpoolctl").threadpool_limits
    clean, asked = sheets
    train, test = matrix(db, clean, recipe, known), matrix(db, asked, recipe, known)
    with warnings.catch_warnings(), limits(1), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        model = _model(recipe).fit(train, _targets(db, clean, recipe))
        said = np.asarray(model.predict(test)).reshape(len(test), -1)
    header = ",".join(["row_id", *(_field(t) for t in recipe["target"])])
    lines = [f"{i},{','.join(_field(_plain(v)) for v in row)}" for i, row in enumerate(said, 1)]
    family = "class" if recipe["problem_type"] == "classification" else "reg"
    truth = answer.decode("utf-8")
    found = "\n".join([header, *lines, ""])
    if _surely_equal(truth, found):
        return
    outcome = score(f"{family}-IF", truth, tuple(recipe["target"]), found)
    if outcome != 1.0:
        raise Differs(
            f"the second computation gives other predictions: they score {outcome}, not 1"
        )


def _surely_equal(one: str, other: str) -> bool:
    """Whether two answers are the same far within any tolerance. That spares the scorer, which
    decides all else: odd labels among them, which it may read as no value."""
    rows, others = (list(csv.reader(io.StringIO(text))) for text in (one, other))
    if len(rows) != len(others) or rows[:1] != others[:1]:
        return False
    pairs = zip(rows[1:], others[1:], strict=True)
    return all(a[0] == b[0] and len(a) == len(b) and all(map(_close, a, b)) for a, b in pairs)


def _close(one: str, other: str) -> bool:
    try:
        a, b = float(one), float(other)
    except ValueError:
        return one == other and len(one) > 5 and "#" not in one  # others may mean no value
    return math.isfinite(a) and abs(a - b) <= 1e-9 * max(1.0, abs(a))


def _plain(value: Any) -> str:
    return repr(float(value)) if isinstance(value, float) else str(value)


def _field(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"\n\r') else text
