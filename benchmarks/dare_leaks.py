"""Can an answer of a build be computed from its key, from the order of its rows, or from one
feature?

    python -m benchmarks.dare_leaks DIR

DIR is a folder that `assay tasks dare --tables` wrote. Every target of every variant is tried, with
nothing but what a solver is handed. A rule is read from the training rows, applied to the rows to
predict, and counts when it gives 99.5 % of the labels, or R2 of 0.995, and for IF, whose metric
asks for it, every answer. Rules of one column: the mapping of values, the nearest value, a curve,
a line, a parabola, a logarithm, a power; columns are the features, the keys, the calendar parts of
dates, the entity, the row's place in the file and that modulo 2 to 24. Rules of two: weighted sum
or difference, product or quotient. Further: a column that is the target moved by one to three
rows, within each entity of a series. Exit status 1 when a target is computable. Nothing is shared
with the checks of the build (`data_gen/leaks.py`).
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import combinations, islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

ENOUGH = 0.995
PAIRS = 24  # numeric columns of which all pairs are tried
ROWS = 3000  # rows that pairs are tried on
MOVED = (1, 2, 3)
Array = Any


@dataclass(frozen=True)
class Asked:
    """One target of one variant. `train` and `test` hold the columns that a solver sees; `y` (N,)
    and `truth` (M,) the target; `keys` are columns that name a row."""

    name: str
    train: pd.DataFrame
    test: pd.DataFrame
    y: Array
    truth: Array
    keys: tuple[str, ...]
    time: str = ""
    exact: bool = False  # IF: every answer has to be right


def read(path: Path) -> pd.DataFrame:
    """A shipped table; sqlite is joined on `row_id`."""
    if path.suffix == ".parquet":
        return pd.read_parquet(path)
    if path.suffix == ".csv":
        return pd.read_csv(path, keep_default_na=False, na_values=[""])
    import sqlite3

    with sqlite3.connect(path) as db:
        listed = db.execute("select name from sqlite_master where type='table' order by name")
        parts = [pd.read_sql(f'select * from "{name}"', db) for (name,) in listed.fetchall()]
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.merge(part, on="row_id")
    return whole


def targets_of(top: Path, row: dict[str, Any]) -> Iterator[Asked]:
    """Every target of every variant of a database."""
    folder = top / "databases" / row["file_path"]
    about = json.loads((folder / "verify" / "all_metadata.json").read_text())["question"]
    if row["task"] == "time_series_analysis":
        yield from _series(folder, row, about)
        return
    ext = about["save_file_type"]
    for variant, answers in (("v1", "simulated_pred_local"), ("v2", "ground_truth")):
        if not row[f"question_{variant}"]:
            continue
        clean = "train_v1_no_err" if variant == "v1" else "train_v2"
        train = read(folder / "source" / f"{clean}.{ext}")
        test = read(folder / "source" / f"val_{variant}.{ext}")
        truth = read(folder / "verify" / f"{answers}.csv")
        truth = test[["row_id"]].merge(truth, on="row_id", how="left")
        for target in row["target"]:
            seen = train.drop(columns=row["target"])
            name = f"{row['file_path']} {variant} {target}"
            yield Asked(
                name,
                seen,
                test,
                train[target].to_numpy(),
                truth[target].to_numpy(),
                ("row_id",),
                exact=variant == "v1",
            )


def _series(folder: Path, row: dict[str, Any], about: dict[str, Any]) -> Iterator[Asked]:
    time, entity, target = about["time_column"], about["entity_columns"], row["target"][0]
    train, test = (read(folder / "source" / f"{name}.csv") for name in ("train", "val_v1"))
    for side, extra in (("train", "covariates_train"), ("val", "covariates_val")):
        path = folder / "source" / f"{extra}.csv"
        if path.is_file():
            more = read(path)
            if side == "train":
                train = train.merge(more, on=[time, *entity], how="left")
            else:
                test = test.merge(more, on=[time, *entity], how="left")
    if (folder / "source" / "entities.csv").is_file():
        more = read(folder / "source" / "entities.csv")
        train, test = (t.merge(more, on=entity, how="left") for t in (train, test))
    keys = (time, *entity)
    if row["question_v1"]:
        truth = read(folder / "verify" / "ground_truth_v1.csv")
        truth = test[["row_id"]].merge(truth, on="row_id", how="left")[target].to_numpy()
        seen = train.drop(columns=target)
        name = f"{row['file_path']} v1 {target}"
        yield Asked(name, seen, test, train[target].to_numpy(), truth, keys, time)
    if row["question_v2"]:
        truth = read(folder / "verify" / "ground_truth_v2.csv")
        name = f"{row['file_path']} v2 {target}"
        yield Asked(
            name,
            train[[*keys]],
            truth[[*keys]],
            train[target].to_numpy(),
            truth[target].to_numpy(),
            keys,
            time,
        )


def computable(asked: Asked) -> list[str]:
    """The rules that give the target, in words."""
    label = asked.y.dtype.kind not in "iuf" or len(pd.unique(asked.y)) <= 20
    found: list[str] = []
    for name, x, z in _columns(asked):
        rules = _rules(x, asked.y, z, label)
        for rule, said in islice(rules, 1) if "modulo" in name else rules:
            if _given(asked, said, label):
                found.append(f"{rule} {name}")
    if not label:
        found += [f"{rule} of {pair}" for rule, pair in _pairs(asked)]
    return found + [f"{name}, moved by {step}" for name, step in _lags(asked)]


def _columns(asked: Asked) -> Iterator[tuple[str, Array, Array]]:
    """(name, its training values, its values of the rows to predict): features, keys, calendar
    parts, the rows' order."""
    for name in asked.test.columns:
        if name in asked.train.columns:
            x, z = asked.train[name].to_numpy(), asked.test[name].to_numpy()
            yield name, x, z
            if name == asked.time or x.dtype.kind == "M" or x.dtype.kind not in "iufb":
                yield from _parts(name, asked.train[name], asked.test[name])
    before, after = len(asked.train), len(asked.test)
    yield "the row's place in its file", np.arange(before), np.arange(after)
    yield "the row's place among all rows", np.arange(before), before + np.arange(after)
    yield "the share of rows before it", np.arange(before) / before, np.arange(after) / after
    for step in range(2, 25):
        place = np.arange(before) % step
        yield f"its place modulo {step}", place, np.arange(after) % step
        yield f"its place among all modulo {step}", place, (before + np.arange(after)) % step
    if len(asked.keys) > 1:
        both = [
            frame[list(asked.keys[1:])].astype(str).agg("|".join, axis=1).to_numpy()
            for frame in (asked.train, asked.test)
        ]
        yield "its entity", both[0], both[1]


def _parts(name: str, x: pd.Series, z: pd.Series) -> Iterator[tuple[str, Array, Array]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = [c.astype(str) if c.dtype.kind in "iuf" else c for c in (x, z)]
        times = [pd.to_datetime(c, errors="coerce") for c in plain]
    if any(t.isna().mean() > 0.1 for t in times):
        return
    for part in ("year", "month", "day", "day_of_year", "day_of_week", "quarter", "hour"):
        one, other = (getattr(t.dt, part).to_numpy(float) for t in times)
        if len(np.unique(one)) > 1:
            yield f"the {part} of {name}", one, other
    start = times[0].min()
    yield (f"the days of {name}", *((t - start).dt.total_seconds().to_numpy() for t in times))


def _rules(x: Array, y: Array, z: Array, label: bool) -> Iterator[tuple[str, Array]]:
    """(rule, its answers for z)."""
    known = ~(pd.isna(x) | pd.isna(y))
    if known.sum() < 10:
        return
    x, y = x[known], y[known]
    if label:
        counts = pd.DataFrame({"x": x, "y": y}).value_counts().reset_index()
        table = counts.drop_duplicates("x").set_index("x")["y"]
    else:
        table = pd.Series(y).groupby(pd.Series(x)).mean()
    usual = pd.Series(y).mode().iloc[0] if label else y.mean()
    yield "the mapping of", pd.Series(z).map(table).fillna(usual).to_numpy()
    if x.dtype.kind not in "iufb" or z.dtype.kind not in "iufb":
        return
    x, z = x.astype(float), np.where(pd.isna(z), np.nanmedian(x), z).astype(float)
    order = np.argsort(x, kind="stable")
    a, b = x[order], y[order]
    right = np.clip(np.searchsorted(a, z), 1, len(a) - 1)
    yield "the nearest value of", b[np.where(z - a[right - 1] <= a[right] - z, right - 1, right)]
    if label and y.dtype.kind not in "iuf":
        return
    b = b.astype(float)
    values, part = np.unique(a, return_inverse=True)
    means = np.bincount(part, b) / np.bincount(part)
    yield "a curve through", np.interp(z, values, means)
    if np.ptp(a) > 0:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield "a line through", np.polyval(np.polyfit(a, b, 1), z)
            yield "a parabola through", np.polyval(np.polyfit(a, b, 2), z)
            if a.min() > 0 and z.min() > 0:
                yield "a logarithm of", np.polyval(np.polyfit(np.log(a), b, 1), np.log(z))
                if b.min() > 0:
                    power = np.polyfit(np.log(a), np.log(b), 1)
                    yield "a power of", np.exp(np.polyval(power, np.log(z)))


def _pairs(asked: Asked) -> Iterator[tuple[str, str]]:
    """Two numeric columns whose weighted sum, product or quotient gives the target."""
    names = [
        n
        for n in asked.train.columns
        if n in asked.test.columns and n != "row_id" and asked.train[n].dtype.kind in "iuf"
    ]
    names = [n for n in names if asked.train[n].notna().mean() > 0.9][:PAIRS]
    draw = np.random.default_rng(0).permutation(len(asked.train))[:ROWS]
    asked = replace(
        asked,
        train=asked.train[names].iloc[draw],
        test=asked.test[names][:ROWS],
        y=asked.y[draw],
        truth=asked.truth[:ROWS],
    )
    for pair in combinations(names, 2):
        x, z = (f[list(pair)].to_numpy(float) for f in (asked.train, asked.test))
        known = np.isfinite(x).all(axis=1) & ~pd.isna(asked.y)
        x, y = x[known], asked.y[known].astype(float)
        z = np.where(np.isfinite(z), z, np.median(x, axis=0) if len(x) else 0.0)
        if len(x) < 10:
            continue
        if _given(asked, _sum(x, y, z), False):
            yield "the weighted sum", " and ".join(pair)
        if min(x.min(), z.min(), y.min()) > 0:
            said = np.exp(_sum(np.log(x), np.log(y), np.log(z)))
            if _given(asked, said, False):
                yield "the product or quotient", " and ".join(pair)


def _sum(x: Array, y: Array, z: Array) -> Array:
    one, other = (np.column_stack([v, np.ones(len(v))]) for v in (x, z))
    return other @ np.linalg.lstsq(one, y, rcond=None)[0]


def _lags(asked: Asked) -> Iterator[tuple[str, int]]:
    """Columns that are the target moved by some rows, in the order of the files or of time."""
    if asked.y.dtype.kind not in "iuf":
        return
    names = [n for n in asked.test.columns if n in asked.train.columns and n not in asked.keys]
    if len(asked.keys) > 1 or asked.time:
        listed = [*asked.keys[1:], asked.time]
        frame = asked.test[listed].assign(_y=asked.truth).sort_values(listed, kind="stable")
    else:
        frame = asked.test[[]].assign(_y=asked.truth)
    own = frame.groupby(list(asked.keys[1:]))["_y"] if len(asked.keys) > 1 else frame["_y"]
    for name in names:
        column = asked.test[name].reindex(frame.index)
        if column.dtype.kind not in "iuf" or column.nunique() < 5:
            continue
        for step in (s for n in MOVED for s in (n, -n)):
            moved = own.shift(step)
            both = (moved.notna() & column.notna()).to_numpy()
            if both.sum() >= 10 and np.std(moved[both]) > 0 and np.std(column[both]) > 0:
                r = np.corrcoef(moved[both].astype(float), column[both].astype(float))[0, 1]
                if r * r >= ENOUGH:
                    yield str(name), step


def _given(asked: Asked, said: Array, label: bool) -> bool:
    """Whether answers are as good as the truth: all of them for IF, whose metric asks for that."""
    if not asked.exact or label:
        return _score(asked.truth, said, label) >= (1.0 if asked.exact else ENOUGH)
    return bool(np.allclose(asked.truth.astype(float), np.asarray(said, float)))


def _score(truth: Array, said: Array, label: bool) -> float:
    if label:
        pairs = zip(truth, said, strict=True)
        same = [str(a) == str(b) or _number(a) == _number(b) is not None for a, b in pairs]
        return float(np.mean(same)) if len(pd.unique(truth)) > 1 else 0.0
    fine = ~pd.isna(truth) & np.isfinite(np.asarray(said, float))
    if fine.mean() < 0.9:
        return 0.0
    y, said = truth[fine].astype(float), np.asarray(said, float)[fine]
    spread = ((y - y.mean()) ** 2).sum()
    return 1 - float(((y - said) ** 2).sum() / spread) if spread > 0 else 0.0


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def of_database(given: tuple[Path, dict[str, Any]]) -> list[tuple[str, str, list[str]]]:
    """(task type, target, rules that give it) for each target of a database."""
    top, row = given
    kind = str(row["task"]).partition("_")[0]
    return [(kind, asked.name, computable(asked)) for asked in targets_of(top, row)]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dare_leaks", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args(argv)
    rows = json.loads((args.folder / "question_list.json").read_text())
    jobs = [(args.folder, row) for row in rows]
    if args.workers > 1:
        with ProcessPoolExecutor(args.workers, get_context("spawn")) as pool:
            found = [one for part in pool.map(of_database, jobs) for one in part]
    else:
        found = [one for job in jobs for one in of_database(job)]
    for _, name, rules in found:
        if rules:
            print(f"{name}: {'; '.join(rules[:4])}")
    given = Counter(kind for kind, _, rules in found if rules)
    every = Counter(kind for kind, _, _ in found)
    listed = ", ".join(f"{given[kind]} of {count} {kind}" for kind, count in sorted(every.items()))
    print(f"{sum(given.values())} of {len(found)} targets computable ({listed})")
    return int(bool(given))


if __name__ == "__main__":
    raise SystemExit(main())
