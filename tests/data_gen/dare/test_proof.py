# ruff: noqa: E402
"""Gold twice: what is right is proved, and whatever breaks the first computation is refused."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn")
pytest.importorskip("duckdb")

from dare_worlds import answered, built, days, houses, source, tabular
from sklearn import preprocessing

from data_gen.certificate import DIFFERS, UNPROVABLE, Refused
from data_gen.dare import models, series
from data_gen.dare.layout import csv_bytes
from data_gen.dare.proof import prove
from data_gen.dare.series import COVARIATES, ENTITIES, Shape
from data_gen.dare.sources import Source
from data_gen.proof.original import Original

Patch = pytest.MonkeyPatch
Frame = Any


# --- mutants of a tabular database: each gives files that must be refused -----------------------
Tabular = Callable[[Source, Patch], dict[str, bytes]]


def _loads(change: Callable[[Frame], Frame]) -> Tabular:
    """The first reader, broken."""
    return lambda origin, patch: tabular(replace(origin, load=lambda: change(origin.load())))


def _computes(place: Any, name: str, change: Callable[[Any], Any]) -> Tabular:
    """A part of the first computation, changed."""

    def mutant(origin: Source, patch: Patch) -> dict[str, bytes]:
        patch.setattr(place, name, change(getattr(place, name)))
        return tabular(origin)

    return mutant


def _ranges(test: Callable[[Any, Any, Any], Any]) -> Tabular:
    """The filter, broken: `test` says which numbers are kept."""

    def in_range(frame: Frame, ranges: Any, kinds: Any) -> Frame:
        keep = frame.index == frame.index
        for name, allowed in ranges.items():
            column = frame[name]
            if kinds[name] == "numerical":
                keep &= test(column, *allowed)
            else:
                keep &= column.isin(allowed) | column.isna()
        return frame[keep]

    return _computes(models, "in_range", lambda _: in_range)


def _answers_by(**changes: Any) -> Tabular:
    """What was learnt is right, but the answer is another recipe's."""

    def mutant(origin: Source, patch: Patch) -> dict[str, bytes]:
        files = tabular(origin)
        recipe = json.loads(files["verify/all_metadata.json"])["question"]
        return files | answered(files, recipe | changes, "csv")

    return mutant


class SampleDeviation(preprocessing.StandardScaler):
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        super().fit(X, y, sample_weight)
        self.var_ = self.var_ * len(X) / (len(X) - 1)
        self.scale_ = self.var_**0.5
        return self


def _file(name: str, change: Callable[[Frame], Frame]) -> Tabular:
    """A file of the database, changed: the hidden answers, or the clean rows of the IF variant."""

    def mutant(origin: Source, patch: Patch) -> dict[str, bytes]:
        files = tabular(origin)
        return files | {name: csv_bytes(change(pd.read_csv(io.BytesIO(files[name]))))}

    return mutant


TRUTH, CLEAN = "verify/ground_truth.csv", "source/train_v1_no_err.csv"
TABULAR: dict[str, Tabular] = {
    "decimal comma dropped": _loads(lambda f: f.assign(flaeche=f["flaeche"] * 10)),
    "a code for no value kept": _loads(lambda f: f.assign(pegel=f["pegel"].fillna(-999.0))),
    "last row lost": _loads(lambda f: f.iloc[:-1]),
    "< for <=": _ranges(lambda c, low, high: (c.gt(low) & c.lt(high)) | c.isna()),
    "filter drops gaps": _ranges(lambda c, low, high: c.ge(low) & c.le(high)),
    "mean for median": _computes(
        *(models, "fit", lambda fit: lambda t, r: fit(t, {**r, "imputer_type": "mean"}))
    ),
    "answer without a feature": _answers_by(selected_features=["flaeche", "alter", "lage"]),
    "sample for population deviation": _computes(
        *(preprocessing, "StandardScaler", lambda _: SampleDeviation)
    ),
    "truth ascending": _file(TRUTH, lambda t: t.assign(preis=sorted(t["preis"]))),
    "a clean row twice": _file(CLEAN, lambda f: pd.concat([f, f.iloc[-1:]])),
    "clean rows sorted": _file(CLEAN, lambda f: f.sort_values("preis")),
}


# --- series ---------------------------------------------------------------------------------------
Series = tuple[str, Callable[[Any], Any]]  # a part of the first computation, and how it is changed


def _split(change: Callable[[Any], Any]) -> Series:
    return "split", lambda split: lambda *given: change(split(*given))


def _answers(change: Callable[[Frame], Frame]) -> Series:
    """The answers without covariates, changed."""
    return _split(lambda p: replace(p, answers=change(p.answers).reset_index(drop=True)))


def _moved(answers: Frame) -> Frame:
    lag = answers.groupby("station")["menge"].shift(1)
    return answers.assign(menge=lag.bfill().ffill())


def _bins(change: Callable[..., Frame]) -> Series:
    return "binned", lambda binned: lambda *given: change(binned, *given)


def _start(bins: Frame) -> Any:
    return bins["_start"]


def _without_entities(binned: Any, timed: Any, target: str, resample: Any) -> Frame:
    whole = binned(timed, target, resample)
    return whole.assign(**{target: whole.groupby("_bin")[target].transform("sum")})


def _month_first(find: Any) -> Any:
    """03.04. read as the 4th of March, where that is a day."""

    def broken(frame: Frame) -> Any:
        name, when, form = find(frame)
        swapped = [v.replace(month=v.day, day=v.month) if v.day <= 12 else v for v in when]
        return name, pd.Series(swapped, index=when.index), form

    return broken


WEEKS, PLAIN, COUNTS = ("1W", "sum"), None, ("1W", "count")
SERIES: dict[str, tuple[Any, Series]] = {
    "a lag of 1": (PLAIN, _answers(_moved)),
    "day and month swapped": (PLAIN, ("find_time", _month_first)),
    "training rows after the cut": (
        *(PLAIN, _split(lambda p: replace(p, early=pd.concat([p.early, p.late.iloc[:3]])))),
    ),
    "week named by its Monday": (WEEKS, _bins(lambda f, *g: f(*g).assign(_bin=_start))),
    "mean for sum": (WEEKS, _bins(lambda f, t, y, r: f(t, y, ("1W", "mean")))),
    "entities thrown together": (WEEKS, _bins(_without_entities)),
    "empty bins left out": (COUNTS, _answers(lambda a: a[a["menge"] > 0])),
}


# --- what is proved, and what is refused

SHAPES = (Shape(), Shape(ENTITIES, ("hoehe",)), Shape(COVARIATES, ("temperatur", "hoehe")))
RESAMPLED = (None, ("1W", "sum"), ("1W", "count"), ("1M", "mean"), ("1D", "count"))


def code(original: Original | None, files: dict[str, bytes]) -> str:
    """The code of what the proof has against a database, "" for one that is proved."""
    try:
        prove(original, files)
    except Refused as refused:
        return refused.why.code
    return ""


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Source:
    return houses(tmp_path_factory.mktemp("houses"))


@pytest.mark.parametrize(
    ("kind", "model", "fill"),
    [
        ("csv", "Ridge", "mean"),
        ("sqlite", "DecisionTreeRegressor", "median"),
        ("parquet", "Ridge", "most_frequent"),
    ],
)
def test_right_gold_is_proved(origin: Source, kind: str, model: str, fill: str) -> None:
    files = tabular(origin, kind, model_type=model, imputer_type=fill)
    assert code(origin.original, files) == ""


@pytest.mark.parametrize("name", sorted(TABULAR))
def test_every_mutant_of_a_table_is_refused(
    origin: Source, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert code(origin.original, TABULAR[name](origin, monkeypatch)) == DIFFERS


@pytest.mark.parametrize(
    ("shape", "resample"),
    [(SHAPES[i % 3], one) for i, one in enumerate(RESAMPLED)] + [(s, None) for s in SHAPES[1:]],
    ids=str,
)
def test_right_series_are_proved(
    tmp_path: Path, shape: Shape, resample: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = built(days(tmp_path), tmp_path / "out", monkeypatch, resample, shape)
    assert found.refused == [] and len(found.rows) == 1


@pytest.mark.parametrize("name", sorted(SERIES))
def test_every_mutant_of_a_series_is_refused(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    resample, (part, change) = SERIES[name]
    monkeypatch.setattr(series, part, change(getattr(series, part)))
    monkeypatch.setattr(series, "entity_keys", lambda *given: ["station"])
    found = built(days(tmp_path), tmp_path / "out", monkeypatch, resample)
    assert found.rows == [] and [one.code for one in found.refused] == [DIFFERS]
    assert not list((tmp_path / "out").rglob("train.csv"))


def test_what_the_second_reader_cannot_decide_is_not_proved(origin: Source, tmp_path: Path) -> None:
    files = tabular(origin)
    other = source(tmp_path, "other.csv", "a;b\n1,5;2\n2,5;3\n")
    for original in (None, Original(tmp_path / "notes.docx"), other.original):
        assert code(original, files) == UNPROVABLE
