# pandas and scikit-learn ship no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
# pyright: reportUnknownLambdaType=false, reportGeneralTypeIssues=false
"""One table → a class or reg database: split, ranges, noise, recipe, files (spec sections 2-4).

Where the published construction is weak (spec 3.1, section 9) this differs: a noise row breaks a
random non-empty set of ranges, and every range is broken alone by some rows, so each one matters;
noise goes beyond a range by a share of its width, not by at most 10; equal feature rows never stand
on both sides of the split; metadata names every column.
"""

from __future__ import annotations

import random
import string
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from statistics import fmean, pstdev
from typing import Any

from data_gen.dare.layout import Frame, csv_bytes, json_bytes, table_bytes
from data_gen.dare.targets import Looked
from data_gen.tally import Refused
from rewards.dare.metrics import macro_f1, raw_r2

MODELS = {
    "class": (
        "LogisticRegression",
        "DecisionTreeClassifier",
        "GaussianNB",
        "LinearSVC",
        "MLPClassifier",
    ),
    "reg": ("LinearRegression", "DecisionTreeRegressor", "Ridge", "Lasso", "MLPRegressor"),
}
NOISE = 0.2
RATIOS = (0.7, 0.8, 0.9)  # shares of the rows to train on
LEAST_TRAIN, LEAST_TEST = 80, 20  # rows
SHUFFLES = 20  # orders of the rows until each side has two labels
TOO_FEW = "too few rows or features"


@dataclass(frozen=True)
class Candidate:
    """A database before its answer is known. `recipe` holds what the reference needs."""

    family: str
    recipe: dict[str, Any]
    train: Frame  # clean: targets and all features
    test: Frame  # row_id and all features
    truth: Frame  # row_id and targets
    noisy: Frame  # train_v1: targets and kept features

    def clean_v1(self) -> Frame:
        names = [*self.recipe["target"], *self.recipe["not_filtered_related_features"]]
        return self.train[names]

    def test_v1(self) -> Frame:
        return self.test[["row_id", *self.recipe["not_filtered_related_features"]]]


def propose(
    looked: Looked,
    family: str,
    targets: list[str],
    rng: random.Random,
    mini: bool,
) -> Candidate:
    """Split and noise for one choice of targets. Raises `Refused` when too little is left."""
    features = looked.features(targets)
    if mini:
        features = [f for f in features if looked.kinds[f] == "numerical" and len(f) <= 14]
    train, test, ratio = _split(looked, family, targets, features, rng, mini)
    usable = [f for f in features if train[f].nunique() > 1]
    if len(usable) < 2:
        raise Refused("draft", TOO_FEW)
    kept = _kept(train, targets, usable, rng.randint(2, 3) if mini else rng.randint(3, 8), rng)
    chosen = rng.sample(kept, max(2, len(kept) - (0 if mini else rng.randint(0, 2))))
    ranges = {
        f: r for f in kept if f in usable and (r := _range(train[f], looked.kinds[f])) is not None
    }
    if mini:
        ranges = dict(list(ranges.items())[: rng.randint(1, 2)])
    recipe: dict[str, Any] = {
        "target": targets,
        "related_features": features,
        "not_filtered_related_features": kept,
        "selected_features": chosen,
        "numerical_features": [f for f in chosen if looked.kinds[f] == "numerical"],
        "categorical_features": [f for f in chosen if looked.kinds[f] != "numerical"],
        "column_type_inference": {c: looked.kinds[c] for c in [*targets, *features]},
        "expected_ranges": ranges,
        "train_test_ratio": ratio,
        "problem_type": "classification" if family == "class" else "regression",
        **_drawn(family, rng, mini),
    }
    test.insert(0, "row_id", range(1, len(test) + 1))
    made = Candidate(
        family, recipe, train, test[["row_id", *features]], test[["row_id", *targets]], train
    )
    return with_noise(made, ranges, rng)


def _split(
    looked: Looked,
    family: str,
    targets: list[str],
    features: list[str],
    rng: random.Random,
    mini: bool,
) -> tuple[Frame, Frame, float]:
    """(training rows, test rows, share of the first) of different features. Raises `Refused`."""
    if len(features) < 2:
        raise Refused("draft", TOO_FEW)
    frame = looked.frame.dropna(subset=targets)
    frame = frame[[*targets, *features]].drop_duplicates(subset=features)
    order = list(range(len(frame)))
    rng.shuffle(order)
    if mini:
        order = order[:300]
    # whether a table fits must not hang on the seed: every ratio is tried, in a drawn order
    for ratio in rng.sample(RATIOS, len(RATIOS)):
        cut = int(len(order) * ratio)
        for _ in range(SHUFFLES):
            train, test = frame.iloc[sorted(order[:cut])], frame.iloc[order[cut:]]
            if len(train) < LEAST_TRAIN or len(test) < LEAST_TEST:
                break
            labels = (part[t].nunique() for part in (train, test) for t in targets)
            if family == "reg" or min(labels) >= 2:
                return train.reset_index(drop=True), test.reset_index(drop=True).copy(), ratio
            rng.shuffle(order)
    raise Refused("draft", TOO_FEW)


def _drawn(family: str, rng: random.Random, mini: bool) -> dict[str, Any]:
    """The parts of a recipe that no column decides."""
    return {
        "save_file_type": "csv" if mini else rng.choice(("csv", "sqlite", "parquet")),
        "imputer_type": rng.choice(("mean", "median", "most_frequent")),
        "random_state": rng.randint(0, 99),
        "model_type": rng.choice(MODELS[family][: 4 - mini]),
    }


def _kept(
    train: Frame, targets: list[str], usable: list[str], size: int, rng: random.Random
) -> list[str]:
    """So many features, half of them from those most related to the target: a recipe of features
    that say nothing has answers of one label, and nobody would ask for it."""
    strength = {f: max(_related(train[f], train[t]) for t in targets) for f in usable}
    first = sorted(usable, key=lambda f: -strength[f])[: max(3, len(usable) // 3)]
    kept = rng.sample(first, min(len(first), (size + 1) // 2))
    rest = [f for f in usable if f not in kept]
    kept += rng.sample(rest, min(len(rest), size - len(kept)))
    rng.shuffle(kept)
    return kept


def _related(feature: Frame, target: Frame) -> float:
    """Share of the target's variance (of each label's, for text) between ten bins of a feature."""
    import numpy as np
    import pandas as pd

    sample = slice(0, 600)
    bins = feature.iloc[sample]
    if feature.dtype.kind in "iuf" and bins.nunique() > 10:
        bins = pd.qcut(bins.rank(method="first"), 10, labels=False)
    codes = pd.factorize(bins, use_na_sentinel=False)[0]
    y = target.iloc[sample]
    numbers = target.dtype.kind in "iuf"
    goal = y.to_numpy(float)[:, None] if numbers else pd.get_dummies(y).to_numpy(float)
    sizes = np.bincount(codes)
    means = np.stack([np.bincount(codes, g) / sizes for g in goal.T], 1)
    spread = ((goal - goal.mean(axis=0)) ** 2).sum()
    return (
        float((sizes[:, None] * (means - goal.mean(axis=0)) ** 2).sum() / spread) if spread else 0.0
    )


def _range(column: Frame, kind: str) -> list[Any] | None:
    """Whole numbers around the values, or the list of values; None where neither says much."""
    values = column.dropna()
    if not len(values):
        return None
    if kind == "categorical":
        allowed = sorted(str(v) for v in values.unique())
        return allowed if len(allowed) <= 8 else None
    low, high = float(values.min()), float(values.max())
    bounds = (int(low // 1), int(-(-high // 1)))
    return list(bounds) if column.dtype.kind == "i" else [float(b) for b in bounds]


def with_noise(made: Candidate, ranges: dict[str, Any], rng: random.Random) -> Candidate:
    """The same with `ranges` as its expected ranges, and fresh noise that breaks them."""
    import pandas as pd

    clean = replace(made, recipe={**made.recipe, "expected_ranges": ranges})
    base = clean.clean_v1()
    cells = {name: base[name].to_numpy(object) for name in base.columns}
    rows: list[dict[str, Any]] = []
    names = list(ranges)
    for number in range(int(NOISE * len(base)) if names else 0):
        place, other = rng.randrange(len(base)), rng.randrange(len(base))
        values: dict[str, Any] = {name: column[place] for name, column in cells.items()}
        values |= {t: cells[t][other] for t in made.recipe["target"]}
        broken = {names[number % len(names)]}
        if rng.random() < 0.5:
            broken |= {n for n in names if rng.random() < 0.3}
        rows.append(values | {n: _outside(ranges[n], base[n], rng) for n in sorted(broken)})
    noise = pd.DataFrame(rows, columns=base.columns)
    places = sorted(rng.sample(range(len(base) + len(rows)), len(rows)))
    order = list(range(len(base)))
    for at, place in enumerate(places):
        order.insert(place, len(base) + at)
    whole = (
        pd.concat([base, noise.astype(base.dtypes.to_dict())], ignore_index=True) if rows else base
    )
    return replace(clean, noisy=whole.iloc[order].reset_index(drop=True))


def _outside(allowed: list[Any], column: Frame, rng: random.Random) -> Any:
    """A value beyond a range: a whole number, or a short string that is no category."""
    if column.dtype.kind not in "if":
        while True:
            size = rng.randint(3, 9)
            word = "".join(rng.choices(string.ascii_letters + string.digits, k=size))
            if word not in allowed and not word.isdigit():
                return word
    far = rng.randint(1, 10) + int(rng.uniform(0.0, 0.5) * (allowed[1] - allowed[0]))
    value = allowed[0] - far if rng.random() < 0.5 else allowed[1] + far
    return int(value) if column.dtype.kind == "i" else float(value)


def files_of(made: Candidate, metadata: str, rng: random.Random) -> dict[str, bytes]:
    """All files of the database but the IF answer and the construction parameters."""
    kind = made.recipe["save_file_type"]
    parts = rng.choice((2, 3)) if len(made.noisy.columns) > 2 else 2
    train_v1 = table_bytes(made.noisy, kind, "train_set", parts if kind == "sqlite" else 1)
    return {
        f"source/train_v1.{kind}": train_v1,
        f"source/train_v1_no_err.{kind}": table_bytes(made.clean_v1(), kind, "train_set"),
        f"source/val_v1.{kind}": table_bytes(made.test_v1(), kind, "val_set"),
        f"source/train_v2.{kind}": table_bytes(made.train, kind, "train_set"),
        f"source/val_v2.{kind}": table_bytes(made.test, kind, "val_set"),
        "source/metadata.txt": metadata.encode(),
        "verify/ground_truth.csv": csv_bytes(made.truth),
    }


def construction(made: Candidate, name: str) -> dict[str, Any]:
    """`all_metadata.json`'s question part, file names included."""
    kind = made.recipe["save_file_type"]
    return {
        **made.recipe,
        "target_candidates": made.recipe["target"],
        "needed_files_v1": [f"train_v1.{kind}", f"val_v1.{kind}", "metadata.txt"],
        "needed_files_v2": [f"train_v2.{kind}", f"val_v2.{kind}", "metadata.txt"],
        "train_v2_save_file": f"./{name}/source/train_v2.{kind}",
        "val_v2_save_file": f"./{name}/source/val_v2.{kind}",
        "val_no_err_save_file": f"./{name}/source/val_v1.{kind}",
        "train_no_err_save_file": f"./{name}/source/train_v1_no_err.{kind}",
        "train_err_split_save_file": f"./{name}/source/train_v1.{kind}",
        "output_file": f"./{name}/prediction.csv",
        "ground_truth_file": f"./{name}/verify/ground_truth.csv",
        "simulated_pred_file": f"./{name}/verify/simulated_pred_local.csv",
    }


def metadata_json(made: Candidate, name: str, about: dict[str, Any]) -> bytes:
    return json_bytes({"question": construction(made, name), "data_info": about, "meta_data": {}})


# --- simple models: a task that none of them can do, or none can miss, is no task ---

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
