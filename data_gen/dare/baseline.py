# pandas and scikit-learn ship no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportUnknownLambdaType=false, reportGeneralTypeIssues=false
"""Simple honest models: a modelling task that none of them can do, or that none can miss, is no
task. scikit-learn is imported when first needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from statistics import fmean, pstdev
from typing import Any

from data_gen.dare.layout import Frame
from data_gen.dare.tabular import Candidate
from rewards.dare.metrics import macro_f1, raw_r2

FLOOR_F1 = 0.08  # above the constant answer and above chance
FLOOR_R2 = 0.1
ORDERS, SURELY = 30, 3.0  # orders of the answers that show what chance reaches, and how surely
TREES = (10, 40)  # of a forest; the larger one is grown where the smaller does not do


def design(train: Frame, test: Frame, names: list[str]) -> tuple[Any, Any]:
    """Numbers as they are, words one-hot over the training set's 15 commonest; NaN stays."""
    import numpy as np

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


def tabular_baseline(made: Candidate) -> str:
    """ "" if a default model beats the floor on every target, else why the task is refused."""
    import pandas as pd

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
    import pandas as pd
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
    import numpy as np
    import pandas as pd
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
    import pandas as pd

    plain = truth.reset_index(drop=True)
    found = (raw_r2(plain, pd.Series(answer)) for answer in answers)
    return any(value is not None and value >= FLOOR_R2 for value in found)
