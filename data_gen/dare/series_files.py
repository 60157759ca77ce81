# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""The files of a series: one table, or several that have to be joined.

Some series stand in several files, as the published ones with `contain_multiple_files`: what does
not change over time in `entities.csv`, a row an entity; or the covariates in files of their own, by
time and entity. Forecasts without covariates are never handed the later ones.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from data_gen.dare.layout import Frame, csv_bytes
from data_gen.dare.time_columns import Timed

ONE, ENTITIES, COVARIATES = "one", "entities", "covariates"


@dataclass(frozen=True)
class Shape:
    """How a series lies in files: `moved` are the columns that stand beside the target's file."""

    kind: str = ONE
    moved: tuple[str, ...] = ()

    @property
    def several(self) -> bool:
        return self.kind != ONE

    def needed(self, variant: str) -> list[str]:
        """The files of a variant, `v1` (with covariates) or `v2`."""
        more = ["entities.csv"] if self.kind == ENTITIES else []
        if self.kind == COVARIATES:
            more = ["covariates_train.csv"]
            more += ["covariates_val.csv"] if variant == "v1" else []
        return ["train.csv", f"val_{variant}.csv", *more, "metadata.txt"]


def shape_of(timed: Timed, known: Sequence[str], rng: random.Random) -> Shape:
    """One file for most series; for some, what does not change by entity, or the covariates, stand
    apart."""
    free = [name for name in known if name not in timed.keys]
    steady = [name for name in free if timed.keys and _steady(timed, name)]
    apart = rng.random()
    if steady and apart < 0.6:
        return Shape(ENTITIES, tuple(steady))
    if len(free) >= 2 and apart < 0.25:
        return Shape(COVARIATES, tuple(free))
    return Shape()


def _steady(timed: Timed, name: str) -> bool:
    """Whether an entity has one value throughout."""
    return bool((timed.frame.groupby(timed.keys)[name].nunique(dropna=False) <= 1).all())


def tables_of(
    timed: Timed, target: str, known: Sequence[str], shape: Shape, parts: Any
) -> dict[str, bytes]:
    """Tables and ground truths by their place in the database."""
    early, late, answers = parts
    keys = [timed.column, *timed.keys]
    stay = [name for name in known if name not in shape.moved]
    columns = [timed.column, *stay, target]

    def written(frame: Frame, names: Sequence[str]) -> Frame:
        out = frame[list(names)].copy()
        out[timed.column] = frame["_when"].dt.strftime(timed.form)
        return out.reset_index(drop=True)

    test = written(late, columns)
    test.insert(0, "row_id", range(1, len(test) + 1))
    files = {
        "source/train.csv": csv_bytes(written(early, columns)),
        "source/val_v1.csv": csv_bytes(test.drop(columns=target)),
        "source/val_v2.csv": csv_bytes(answers[keys]),
        "verify/ground_truth_v1.csv": csv_bytes(test[["row_id", target]]),
        "verify/ground_truth_v2.csv": csv_bytes(answers[[*keys, target]]),
    }
    moved = list(shape.moved)
    if shape.kind == COVARIATES:
        for name, frame in (("train", early), ("val", late)):
            files[f"source/covariates_{name}.csv"] = csv_bytes(written(frame, [*keys, *moved]))
    if shape.kind == ENTITIES:
        rows = timed.frame[[*timed.keys, *moved]].drop_duplicates(subset=timed.keys)
        files["source/entities.csv"] = csv_bytes(rows.sort_values(timed.keys))
    return files


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def sentences(timed: Timed, shape: Shape) -> Mapping[str, str]:
    """What the question of each variant says of further files."""
    if shape.kind == ENTITIES:
        said = (
            f" `entities.csv` holds what does not change over time ({_listed(shape.moved)}), one "
            f"row for each {' and '.join(f'`{k}`' for k in timed.keys)}."
        )
        return {"v1": said, "v2": said}
    if shape.kind == COVARIATES:
        on = " and ".join(f"`{k}`" for k in [timed.column, *timed.keys])
        past = f" `covariates_train.csv` holds {_listed(shape.moved)} for the rows of `train.csv`"
        return {
            "v1": f"{past}, `covariates_val.csv` those of `val_v1.csv`; both are joined on {on}.",
            "v2": f"{past}, to be joined on {on}.",
        }
    return {"v1": "", "v2": ""}
