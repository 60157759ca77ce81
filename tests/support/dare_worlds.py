"""Small worlds of table tasks: files as people keep them, and databases as the builder makes
them."""

from __future__ import annotations

import math
import random
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from assay.tables.load import load, plan_file
from data_gen.dare import models, series
from data_gen.dare import tabular as first
from data_gen.dare.layout import metadata_json
from data_gen.dare.sources import Source
from data_gen.dare.tabular import files_of, propose
from data_gen.dare.targets import Built, Settings, clean
from data_gen.pipeline import tasks_of
from data_gen.proof.original import Original

Patch = pytest.MonkeyPatch
NUMBERS = ["flaeche", "quote", "zimmer", "alter", "pegel"]


def number(value: float, digits: int = 2) -> str:
    """As it is written in German: 1.234,56."""
    return f"{value:,.{digits}f}".replace(",", " ").replace(".", ",").replace(" ", ".")


def prices(rows: int = 400) -> Any:
    rng = random.Random(5)
    frame = pd.DataFrame({"size": [rng.gauss(20, 6) for _ in range(rows)]})
    frame["age"] = [rng.randint(1, 60) for _ in range(rows)]
    frame["rooms"] = [rng.randint(1, 9) for _ in range(rows)]
    frame["town"] = [rng.choice(["Ulm", "Bonn", "Köln"]) for _ in range(rows)]
    noise = pd.Series([rng.gauss(0, 4) for _ in range(rows)])
    return frame.assign(price=(frame["size"] * 3 - frame["age"] * 0.5 + noise).round(3))


def sold_houses(rows: int = 320, seed: int = 5) -> Any:
    rng = random.Random(seed)
    day = pd.Series(pd.date_range("2019-01-01", periods=rows)).dt.strftime("%Y-%m-%d")
    frame = pd.DataFrame({"id": range(rows), "sold_on": day})
    frame["size"] = [round(rng.gauss(90, 20), 1) for _ in range(rows)]
    frame["age"] = [rng.randint(0, 80) for _ in range(rows)]
    frame["town"] = [rng.choice(["Ulm", "Bonn", "Trier"]) for _ in range(rows)]
    pairs = zip(frame["size"], frame["age"], strict=True)
    frame["price"] = [round(s * 3 - a + rng.gauss(0, 9), 2) for s, a in pairs]
    frame["rent"] = [round(p / 25 + rng.gauss(0, 1), 2) for p in frame["price"]]
    return frame.assign(price_in_dollars=(frame["price"] * 1.09).round(2))


def houses(folder: Path) -> Source:
    """A csv file with semicolons, decimal commas, points between thousands, gaps, a code for no
    value, and decimals that could be thousands; `tables.yaml` settles them."""
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
    rules = """"haeuser.csv": {decimal: ",", missing: {pegel: ["-999"]}}\n"""
    (folder / "tables.yaml").write_text(rules, encoding="utf-8")
    return source(folder, "haeuser.csv", "\n".join(rows) + "\n")


def source(folder: Path, name: str, text: str) -> Source:
    """A file as the builder's first reader gives it."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    (reading,) = plan_file(path, folder)
    names, original = ("in", path.stem, path.stem, "MIT"), Original(path)
    return Source(*names, lambda: load(reading, folder), original=original)


def tabular(origin: Source, kind: str = "csv", **changes: Any) -> dict[str, bytes]:
    """The files of a reg database that predicts `preis`, its answer by the reference."""
    looked = clean(origin.load(), 3)
    assert looked is not None
    made = propose(looked, "reg", ["preis"], random.Random(5), mini=False)
    assert made is not None
    recipe = {**made.recipe, "numerical_features": NUMBERS, "categorical_features": ["lage"]}
    recipe["selected_features"] = recipe["not_filtered_related_features"] = [*NUMBERS, "lage"]
    recipe |= {"save_file_type": kind, "imputer_type": "median", "model_type": "Ridge", **changes}
    kept = made.train[recipe["not_filtered_related_features"]]
    ranges = {n: first._range(kept[n], looked.kinds[n]) for n in kept}
    recipe["expected_ranges"] = {n: r for n, r in ranges.items() if r is not None}
    drafted = replace(made, recipe=recipe)
    made = first.with_noise(drafted, recipe["expected_ranges"], random.Random(6))
    files = files_of(made, "", random.Random(7))
    files["verify/all_metadata.json"] = metadata_json(made.recipe, "d", {})
    return files | answered(files, made.recipe, kind)


def answered(files: dict[str, bytes], recipe: dict[str, Any], kind: str) -> dict[str, bytes]:
    """The answer by the reference from the rows with noise."""
    with tempfile.TemporaryDirectory() as folder:
        paths = {}
        for name in (f"source/train_v1.{kind}", f"source/val_v1.{kind}"):
            paths[name] = Path(folder) / Path(name).name
            paths[name].write_bytes(files[name])
        noisy, asked = (models.read(path) for path in paths.values())
    kinds = recipe["column_type_inference"]
    train = models.in_range(noisy, recipe["expected_ranges"], kinds)
    said = models.solve(train, asked, recipe)
    return {"verify/simulated_pred_local.csv": said.encode()}


def days(folder: Path) -> Source:
    """Daily readings of two stations, dates day first, decimal commas; some days are missing."""
    rng = random.Random(4)
    rows = ["tag;station;menge;temperatur;hoehe"]
    for number_, when in enumerate(pd.date_range("2021-01-01", periods=760)):
        for place, station in enumerate(["Nord", "Süd"]):
            if rng.random() < 0.1 or (station == "Süd" and 660 <= number_ < 680):
                continue
            warm = 12 - 9 * math.cos(number_ * 6.2832 / 365)
            flow = 50 + 30 * place + 2.5 * warm + 0.05 * number_ + rng.gauss(0, 2)
            cells = [number(flow, 1), number(warm + rng.gauss(0, 3), 1), str(200 + 90 * place)]
            rows.append(";".join([f"{when:%d.%m.%Y}", station, *cells]))
    return source(folder, "pegel.csv", "\n".join(rows) + "\n")


def built(origin: Source, out: Path, patch: Patch, resample: Any, shape: Any = None) -> Built:
    """What the builder makes of a series whose resampling and files are chosen here."""
    found = Built(origin.name)
    patch.setattr(series, "choose", lambda timed, rng: resample)
    look = series.look
    adds = lambda *given: replace(look(*given), adds=True)  # noqa: E731  sums too, whatever of
    patch.setattr(series, "look", adds)
    if shape is not None:
        patch.setattr(series, "shape_of", lambda timed, known, rng: shape)
    patch.setattr(series, "_dull", lambda *given: "")  # whether it is worth asking is not the point
    patch.setattr(series, "targets_of", lambda *given: {"menge": None})
    settings = Settings(out, 0, False, frozenset())
    builder = series.SeriesBuilder(origin, settings, found, 1)
    made: Any = tasks_of(builder, origin, 1, random.Random(0), found)
    found.rows = made
    return found
