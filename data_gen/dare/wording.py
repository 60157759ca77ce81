"""Questions in words: fixed content, varied wording, every step that matters stated."""

from __future__ import annotations

import random
from typing import Any


def _names(names: list[str]) -> str:
    return ", ".join(f"`{n}`" for n in names)


def _bounds(name: str, allowed: list[Any], kind: str, rng: random.Random) -> str:
    if kind == "categorical":
        return f"`{name}` must be one of {', '.join(repr(a) for a in allowed)}"
    low, high = (f"{v:.15g}" for v in allowed)
    return rng.choice(
        (
            f"`{name}` must lie between {low} and {high}",
            f"`{name}` must be at least {low} and at most {high}",
        )
    )


_JOIN = (
    "The training file is a SQLite database with several tables; join them on `row_id`. ",
    "First rebuild the training set by joining all tables of the SQLite file on `row_id`. ",
)
_NOASK = (
    "Complete the task below without asking questions. ",
    "Solve the following without any follow-up question; all you need is given. ",
)
_MISSING = (
    "Drop only rows whose known values are outside; a missing value does not exclude a row. ",
    "Rows with a missing value in such a column stay; only known values can violate. ",
)


def if_question(recipe: dict[str, Any], rng: random.Random) -> str:
    """The whole IF prompt (spec 3.2)."""
    ext, stated, kinds = recipe["save_file_type"], recipe["stated"], recipe["column_type_inference"]
    numbers, words = recipe["numerical_features"], recipe["categorical_features"]
    task = recipe["problem_type"]
    parts = [
        rng.choice(_NOASK),
        f"There are a training file `train_v1.{ext}`, a validation file `val_v1.{ext}` and "
        f"`metadata.txt`, which describes the columns. "
        f"Perform {task} of {_names(recipe['target'])}. "
        "Use library defaults for whatever is not stated. ",
    ]
    if ext == "csv":
        parts.append("Read csv files with the empty field as the only missing value. ")
    if ext == "sqlite":
        parts.append(rng.choice(_JOIN))
    listed = "; ".join(_bounds(n, r, kinds[n], rng) for n, r in recipe["expected_ranges"].items())
    parts.append(
        f"Filter the training rows by the expected ranges: {listed}. {rng.choice(_MISSING)}"
    )
    order = ", in this order" if "order" in stated else ""
    parts.append(f"Train on these features only{order}: {_names(recipe['selected_features'])}. ")
    if words:
        parts.append(f"Numeric: {_names(numbers) or 'none'}; categorical: {_names(words)}. ")
    if "impute" in stated:
        fill = recipe["imputer_type"].replace("most_frequent", "most frequent value")
        fills = [f"numeric features with the {fill}"] if numbers else []
        fills += ["categorical features with the most frequent category"] if words else []
        parts.append(f"Fill missing {' and '.join(fills)}. ")
    if "scale" in stated and numbers:
        parts.append("Then standardise the numeric features (StandardScaler). ")
    if words:
        parts.append(
            "One-hot encode the categorical ones, placed after the numeric block, "
            "ignoring unknown categories, dense output. "
        )
    seed = f" with random_state={recipe['random_state']}" if "seed" in stated else ""
    single = recipe["model_type"] in ("LogisticRegression", "GaussianNB", "LinearSVC")
    wrap = " (in a MultiOutputClassifier)" if len(recipe["target"]) > 1 and single else ""
    parts.append(f"Fit one scikit-learn {recipe['model_type']}{wrap}{seed}. {_output(recipe, ext)}")
    return "".join(parts).strip()


def _output(recipe: dict[str, Any], ext: str) -> str:
    return (
        f"Predict every row of `val_v1.{ext}` and save `prediction.csv` with the columns `row_id` "
        f"and {_names(recipe['target'])}."
    )


def mini_question(recipe: dict[str, Any], rng: random.Random) -> str:
    """The same content in few words, for a small model; only numeric columns occur."""
    stated, target = recipe["stated"], recipe["target"][0]
    ranges = ", ".join(
        f"{n} in [{r[0]:.15g}, {r[1]:.15g}]" for n, r in recipe["expected_ranges"].items()
    )
    fill = f" Impute {recipe['imputer_type']}." if "impute" in stated else ""
    scale = " Scale." if "scale" in stated else ""
    seed = f"(random_state={recipe['random_state']})" if "seed" in stated else "()"
    keep = rng.choice(("Keep rows with", "Filter training rows to", "Train only on rows with"))
    return (
        f"train_v1.csv, val_v1.csv. {keep} {ranges} (or missing). Features: "
        f"{', '.join(recipe['selected_features'])}. Target: {target}.{fill}{scale} "
        f"Model: {recipe['model_type']}{seed}. Save prediction.csv."
    )


_FREE = (
    "Complete the task below without asking questions. Aim for good predictions in little time. ",
    "Solve the following without any follow-up question; balance accuracy against running time. ",
)


def mm_question(recipe: dict[str, Any], rng: random.Random) -> str:
    """The modelling prompt: train as you like on one file, predict the other."""
    ext = recipe["save_file_type"]
    return (
        f"{rng.choice(_FREE)}The columns are described in `metadata.txt`. Train a "
        f"{recipe['problem_type']} model on `train_v2.{ext}`, on the CPU, and predict "
        f"{_names(recipe['target'])} for each `row_id` of `val_v2.{ext}`. Save "
        f"`prediction.csv` with the columns `row_id` and {_names(recipe['target'])}."
    )


def xf_question(target: str, rng: random.Random) -> str:
    return (
        f"{rng.choice(_FREE)}`metadata.txt` describes the columns. `train.csv` holds a time "
        f"series; `val_v1.csv` holds later time points with everything but the target `{target}`. "
        f"Train on the CPU, predict `{target}` for each `row_id` of `val_v1.csv`, and save "
        f"`prediction.csv` with the columns `row_id` and `{target}`."
    )


def cf_question(
    target: str, keys: list[str], resample: tuple[str, str] | None, rng: random.Random
) -> str:
    first = (
        f"First resample the training data to the interval '{resample[0]}', aggregating the target "
        f"with '{resample[1]}'. "
        if resample
        else ""
    )
    return (
        f"{rng.choice(_FREE)}`metadata.txt` describes the columns. `train.csv` holds a raw time "
        f"series. {first}Forecast `{target}` at the later time points listed in `val_v2.csv`; they "
        f"may be unsorted and non-contiguous. Save `prediction.csv` with {_names(keys)}, "
        f"written as in `val_v2.csv`, and `{target}`. More time points than asked are allowed."
    )


def metadata_text(title: str, about: str, columns: dict[str, str]) -> str:
    """Description, then every column by name."""
    body = about.strip()[:4000] or title
    lines = "\n".join(f"{name}: {text}" for name, text in columns.items())
    return f"{title}\n\n{body}\n\n=== Columns & descriptions ===\n\n{lines}\n"
