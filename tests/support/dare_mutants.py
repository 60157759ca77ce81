"""Small worlds of table tasks, and mutants of the first computation that the proof must refuse.

A mutant breaks the first reader or one operator on purpose. `worlds` builds databases the way the
builder does, without its sandbox: the reference runs in this process.
"""

from __future__ import annotations

import io
import json
import math
import random
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from data_gen.dare import analyse, bins, reference_solution, series
from data_gen.dare import tabular as first
from data_gen.dare.analyse import clean
from data_gen.dare.database import Built, Settings
from data_gen.dare.layout import csv_bytes, json_bytes, table_bytes
from data_gen.dare.second.original import Original
from data_gen.dare.sources import Source
from data_gen.dare.tabular import files_of, metadata_json, propose
from rewards.tables.read import load, readings

Patch = pytest.MonkeyPatch
NUMBERS = ["flaeche", "quote", "zimmer", "alter", "pegel"]
Frame = Any


def number(value: float, digits: int = 2) -> str:
    """As it is written in German: 1.234,56."""
    return f"{value:,.{digits}f}".replace(",", " ").replace(".", ",").replace(" ", ".")


def houses(folder: Path) -> Source:
    """A csv file with semicolons, decimal commas, points between thousands, gaps, a code for no
    value, and decimals that could be thousands."""
    rng = random.Random(11)
    rows = ["lage;flaeche;preis;quote;zimmer;alter;pegel"]
    for i in range(420):
        size, age = rng.gauss(90, 25), rng.randint(1, 60)
        price = size * 21 - age * 8 + rng.gauss(0, 60) + 400
        cells = [
            rng.choice(["Ulm", "Bonn", "Köln"]),
            "" if i % 11 == 0 else number(size, 1),
            number(price),
            number(1 + rng.random() * 8, 3),
            str(rng.randint(1, 9)),
            "" if i % 7 == 0 else str(age),
            "-999" if i % 20 == 0 else number(rng.expovariate(0.05), 1),
        ]
        rows.append(";".join(cells))
    return source(folder, "haeuser.csv", "\n".join(rows) + "\n")


def source(folder: Path, name: str, text: str) -> Source:
    """A file as the builder's first reader gives it."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    (reading,) = readings(path, folder)
    return Source(
        "in", path.stem, path.stem, "MIT", lambda: load(reading, folder), original=Original(path)
    )


def tabular(origin: Source, kind: str = "csv", **changes: Any) -> dict[str, bytes]:
    """The files of a reg database that predicts `preis`, its answer by the reference."""
    looked = clean(origin.load(), 3)
    assert looked is not None
    made = propose(looked, "reg", ["preis"], random.Random(5), mini=False)
    assert made is not None
    recipe: dict[str, Any] = {
        **made.recipe,
        "not_filtered_related_features": [*NUMBERS, "lage"],
        "selected_features": [*NUMBERS, "lage"],
        "numerical_features": NUMBERS,
        "categorical_features": ["lage"],
        "save_file_type": kind,
        "imputer_type": "median",
        "model_type": "Ridge",
        **changes,
    }
    kept = made.train[recipe["not_filtered_related_features"]]
    ranges = {n: first._range(kept[n], looked.kinds[n]) for n in kept}
    recipe["expected_ranges"] = {n: r for n, r in ranges.items() if r is not None}
    made = first.with_noise(
        replace(made, recipe=recipe), recipe["expected_ranges"], random.Random(6)
    )
    files = files_of(made, "", random.Random(7))
    files["verify/all_metadata.json"] = metadata_json(made, "d", {})
    return files | answered(files, made.recipe, kind)


def answered(files: dict[str, bytes], recipe: dict[str, Any], kind: str) -> dict[str, bytes]:
    """The answer and what was learnt, by the reference from the rows with noise."""
    with tempfile.TemporaryDirectory() as folder:
        paths = {}
        for name in (f"source/train_v1.{kind}", f"source/val_v1.{kind}"):
            paths[name] = Path(folder) / Path(name).name
            paths[name].write_bytes(files[name])
        noisy, asked = (reference_solution.read(str(path)) for path in paths.values())
    kinds = recipe["column_type_inference"]
    train = reference_solution.in_range(noisy, recipe["expected_ranges"], kinds)
    model = reference_solution.fit(train, recipe)
    said = reference_solution.predict(model, asked, recipe)
    return {
        "verify/simulated_pred_local.csv": csv_bytes(said),
        "verify/fitted.json": json_bytes(reference_solution.learnt(model, recipe, len(train))),
    }


# --- mutants of a tabular database: each gives files that must be refused -----------------------
Tabular = Callable[[Source, Patch], dict[str, bytes]]


def _loads(change: Callable[[Frame], Frame], **recipe: Any) -> Tabular:
    """The first reader, broken."""

    def mutant(origin: Source, patch: Patch) -> dict[str, bytes]:
        return tabular(replace(origin, load=lambda: change(origin.load())), **recipe)

    return mutant


def _times(name: str, factor: float, only: Callable[[Any], Any] = lambda v: v == v) -> Any:
    def change(frame: Frame) -> Frame:
        values = frame[name].astype(float)
        return frame.assign(**{name: values.where(~only(values), values * factor)})

    return change


def _ranges(test: Callable[[Any, Any, Any], Any]) -> Tabular:
    """The filter, broken: `test` says which numbers are kept."""

    def mutant(origin: Source, patch: Patch) -> dict[str, bytes]:
        def in_range(frame: Frame, ranges: Any, kinds: Any) -> Frame:
            keep = frame.index == frame.index
            for name, allowed in ranges.items():
                column = frame[name]
                if kinds[name] == "numerical":
                    keep &= test(column, *allowed)
                else:
                    keep &= column.isin(allowed) | column.isna()
            return frame[keep]

        patch.setattr(reference_solution, "in_range", in_range)
        return tabular(origin)

    return mutant


def _fits(**changes: Any) -> Tabular:
    """The reference does something else than the recipe says."""

    def mutant(origin: Source, patch: Patch) -> dict[str, bytes]:
        fit = reference_solution.fit
        patch.setattr(reference_solution, "fit", lambda t, r: fit(t, {**r, **changes}))
        return tabular(origin)

    return mutant


def _answers_by(**changes: Any) -> Tabular:
    """What was learnt is right, but the answer is another recipe's."""

    def mutant(origin: Source, patch: Patch) -> dict[str, bytes]:
        files = tabular(origin)
        recipe = json.loads(files["verify/all_metadata.json"])["question"]
        other = answered(files, recipe | changes, "csv")
        name = "verify/simulated_pred_local.csv"
        return files | {name: other[name]}

    return mutant


def _codes_kept(origin: Source, patch: Patch) -> dict[str, bytes]:
    patch.setattr(analyse, "without_marks", lambda column: column.astype(float))
    return _loads(lambda f: f.assign(pegel=f["pegel"].fillna(-999.0)))(origin, patch)


def _sample_deviation(origin: Source, patch: Patch) -> dict[str, bytes]:
    import sklearn.preprocessing as pre

    class Sample(pre.StandardScaler):
        def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
            super().fit(X, y, sample_weight)
            rows = len(X)
            self.var_ = self.var_ * rows / (rows - 1)
            self.scale_ = self.var_**0.5
            return self

    patch.setattr(pre, "StandardScaler", Sample)
    return tabular(origin)


def _truth(change: Callable[[Frame], Frame]) -> Tabular:
    """The hidden answers, moved against their rows."""

    def mutant(origin: Source, patch: Patch) -> dict[str, bytes]:
        files = tabular(origin)
        name = "verify/ground_truth.csv"
        truth = pd.read_csv(io.BytesIO(files[name]))
        return files | {name: csv_bytes(change(truth))}

    return mutant


def _clean_rows(change: Callable[[Frame], Frame]) -> Tabular:
    """The clean training file of the IF variant, changed."""

    def mutant(origin: Source, patch: Patch) -> dict[str, bytes]:
        files = tabular(origin)
        name = "source/train_v1_no_err.csv"
        frame = pd.read_csv(io.BytesIO(files[name]))
        return files | {name: table_bytes(change(frame), "csv", "train_set")}

    return mutant


def _sorted(truth: Frame, ascending: bool) -> Frame:
    values = truth["preis"].sort_values(ascending=ascending).to_numpy()
    return truth.assign(preis=values)


TABULAR: dict[str, Tabular] = {
    "decimal comma dropped": _loads(_times("flaeche", 10)),
    "thousands read as decimals": _loads(_times("preis", 0.001, lambda v: v >= 1000)),
    "decimals read as thousands": _loads(_times("quote", 1000)),
    "one cell read wrongly": _loads(lambda f: f.assign(zimmer=[*f["zimmer"][:-1], 99])),
    "a code for no value kept": _codes_kept,
    "gaps filled with 0": _loads(lambda f: f.assign(alter=f["alter"].fillna(0.0))),
    "rows with gaps dropped": _loads(lambda f: f.dropna()),
    "last row lost": _loads(lambda f: f.iloc[:-1]),
    "target moved by one row": _loads(lambda f: f.assign(preis=f["preis"].shift(1).bfill())),
    "< for <=": _ranges(lambda c, low, high: (c.gt(low) & c.lt(high)) | c.isna()),
    "filter off by one": _ranges(lambda c, low, high: (c.ge(low) & c.le(high - 1)) | c.isna()),
    "filter drops gaps": _ranges(lambda c, low, high: c.ge(low) & c.le(high)),
    "filter only below": _ranges(lambda c, low, high: c.le(high) | c.isna()),
    "mean for median": _fits(imputer_type="mean"),
    "mode for median": _fits(imputer_type="most_frequent"),
    "answer by the mean": _answers_by(imputer_type="mean"),
    "answer without a feature": _answers_by(selected_features=["flaeche", "alter", "lage"]),
    "answer without the words": _answers_by(selected_features=NUMBERS),
    "answer of another model": _answers_by(model_type="Lasso"),
    "sample for population deviation": _sample_deviation,
    "truth ascending": _truth(lambda t: _sorted(t, True)),
    "truth descending": _truth(lambda t: _sorted(t, False)),
    "truth one row further": _truth(lambda t: t.assign(preis=t["preis"].shift(1).bfill())),
    "truth rounded": _truth(lambda t: t.assign(preis=t["preis"].round())),
    "a clean row twice": _clean_rows(lambda f: pd.concat([f, f.iloc[-1:]])),
    "clean rows sorted": _clean_rows(lambda f: f.sort_values("preis")),
}


# --- series ---------------------------------------------------------------------------------------
def days(folder: Path) -> Source:
    """Daily readings of two stations, dates day first, decimal commas; some days are missing."""
    rng = random.Random(4)
    rows = ["tag;station;menge;temperatur;hoehe"]
    for number_, when in enumerate(pd.date_range("2021-01-01", periods=760)):
        for place, station in enumerate(["Nord", "Süd"]):
            if rng.random() < 0.1 or (station == "Süd" and 660 <= number_ < 680):
                continue
            warm = 12 + 9 * float(pd.Series([when.dayofyear * 6.2832 / 365]).map(_sine)[0])
            flow = 50 + 30 * place + 2.5 * warm + 0.05 * number_ + rng.gauss(0, 2)
            cells = [f"{when:%d.%m.%Y}", station, number(flow, 1)]
            rows.append(
                ";".join([*cells, number(warm + rng.gauss(0, 3), 1), str(200 + 90 * place)])
            )
    return source(folder, "pegel.csv", "\n".join(rows) + "\n")


def _sine(value: float) -> float:
    return -math.cos(value)


def built(origin: Source, out: Path, patch: Patch, resample: Any, shape: Any = None) -> Built:
    """What the builder makes of a series whose resampling and files are chosen here."""
    found = Built(origin.name)
    patch.setattr(series, "choose", lambda timed, rng: resample)
    if shape is not None:
        patch.setattr(series, "shape_of", lambda timed, known, rng: shape)
    patch.setattr(series, "_dull", lambda *given: "")  # whether it is worth asking is not the point
    patch.setattr(series, "series_targets", lambda *given: (["menge"], []))
    settings = Settings(out, 0, False, frozenset())
    series.build_series(origin, settings, found, 1)
    return found


Series = Callable[[Patch], None]


def _answers(change: Callable[[Frame], Frame]) -> Series:
    """The answers without covariates, changed."""

    def mutant(patch: Patch) -> None:
        split = series.split

        def broken(*given: Any) -> Any:
            parts = split(*given)
            return replace(parts, answers=change(parts.answers).reset_index(drop=True))

        patch.setattr(series, "split", broken)

    return mutant


def _moved(step: int) -> Callable[[Frame], Frame]:
    return lambda a: a.assign(menge=a.groupby("station")["menge"].shift(step).bfill().ffill())


def _bins(change: Callable[..., Frame]) -> Series:
    def mutant(patch: Patch) -> None:
        original = bins.binned
        patch.setattr(series, "binned", lambda *given: change(original, *given))

    return mutant


def _named_by_monday(original: Any, timed: Any, target: str, resample: Any) -> Frame:
    whole = original(timed, target, resample)
    return whole.assign(_bin=whole["_start"])


def _without_entities(original: Any, timed: Any, target: str, resample: Any) -> Frame:
    whole = original(timed, target, resample)
    return whole.assign(**{target: whole.groupby("_bin")[target].transform("sum")})


def _from_sunday(original: Any, timed: Any, target: str, resample: Any) -> Frame:
    day = pd.Timedelta(days=1)
    moved = replace(timed, frame=timed.frame.assign(_when=timed.frame["_when"] + day))
    return original(moved, target, resample)


def _month_first(patch: Patch) -> None:
    """03.04. read as the 4th of March, where that is a day."""
    find = series.find_time

    def broken(frame: Frame) -> Any:
        name, when, form = find(frame)
        swapped = [v.replace(month=v.day, day=v.month) if v.day <= 12 else v for v in when]
        return name, pd.Series(swapped, index=when.index), form

    patch.setattr(series, "find_time", broken)
    patch.setattr(series, "entity_keys", lambda *given: ["station"])


def _late_training(patch: Patch) -> None:
    split = series.split

    def broken(*given: Any) -> Any:
        parts = split(*given)
        return replace(parts, early=pd.concat([parts.early, parts.late.iloc[:3]]))

    patch.setattr(series, "split", broken)


WEEKS, PLAIN, COUNTS = ("1W", "sum"), None, ("1W", "count")
SERIES: dict[str, tuple[Any, Series]] = {
    "a lag of 1": (PLAIN, _answers(_moved(1))),
    "a lag of 2": (PLAIN, _answers(_moved(2))),
    "answers of a lag of 1 in weeks": (WEEKS, _answers(_moved(1))),
    "day and month swapped": (PLAIN, _month_first),
    "training rows after the cut": (PLAIN, _late_training),
    "last answer lost": (PLAIN, _answers(lambda a: a.iloc[:-1])),
    "week named by its Monday": (WEEKS, _bins(_named_by_monday)),
    "week from Sunday": (WEEKS, _bins(_from_sunday)),
    "mean for sum": (WEEKS, _bins(lambda f, t, y, r: f(t, y, ("1W", "mean")))),
    "median for mean": (
        ("1W", "mean"),
        _bins(lambda f, t, y, r: f(t, y, ("1W", "median"))),
    ),
    "entities thrown together": (WEEKS, _bins(_without_entities)),
    "empty bins left out": (COUNTS, _answers(lambda a: a[a["menge"] > 0])),
}
