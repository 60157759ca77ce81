# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""`--short` with MM, XF or CF: few columns of plain names, few rows, a question of one line.

A small model sees at most some hundred tokens of a table, so its columns stand in the question and
there is no metadata file. `data_gen/dare/agents.py` reads these questions again.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

from assay.task import TaskError
from data_gen.dare.layout import Frame
from data_gen.dare.targets import Looked

MOST = 7  # features
ROWS = 600
SERIES_ROWS = 8000  # a longer series is none for a short task
LABELS = 12  # of a column of words
_PLAIN = re.compile(r"[A-Za-z](?:[\w.]{0,18}\w)?", re.ASCII)

Kinds = Mapping[str, tuple[str, ...]]


def plain(name: str) -> bool:
    """Whether a name can stand in a list without marks, and costs few tokens."""
    return _PLAIN.fullmatch(name) is not None


def short_kinds(kinds: Kinds, asked: str) -> dict[str, tuple[str, ...]]:
    """The kinds of tasks of a build with short questions: IF alone, unless `asked` (the option
    `--task-types`) names MM, XF or CF. Raises `TaskError` where it names IF beside one of these."""
    words = {word.strip() for word in asked.split(",")}
    if more := sorted(words & {"MM", "XF", "CF"}):
        if "IF" in words:
            raise TaskError(
                f"--short --task-types {asked}: short IF tasks and short {more[0]} tasks have "
                "different tables; build them in two folders"
            )
        return {f: tuple(t for t in own if t != "IF") for f, own in kinds.items()}
    found = {f: tuple(t for t in own if t == "IF") for f, own in kinds.items()}
    if not any(found.values()):
        raise TaskError(f"--short --task-types {asked}: name the tracks, such as XF,CF for series")
    return {f: own for f, own in found.items() if own}


def few_columns(looked: Looked, targets: Sequence[str], rng: random.Random) -> Looked | None:
    """The targets with at most `MOST` features of plain names, and `ROWS` rows; None where fewer
    than two features are left or a target has no plain name."""
    frame = looked.frame
    fit = [
        name
        for name in looked.features(list(targets))
        if plain(name)
        and (looked.kinds[name] == "numerical" or frame[name].nunique() <= LABELS)
        and frame[name].nunique() > 1
    ]
    if len(fit) < 2 or not all(map(plain, targets)):
        return None
    kept = set(rng.sample(fit, min(MOST, len(fit))))
    columns = [c for c in frame.columns if c in targets or c in kept]
    rows = sorted(rng.sample(range(len(frame)), min(ROWS, len(frame))))
    part = frame[columns].iloc[rows].reset_index(drop=True)
    return Looked(part, {c: looked.kinds[c] for c in columns})


def unfit_series(rows: int, names: Sequence[str]) -> str:
    """Why a series with these columns has no short question; "" where it has one."""
    if rows > SERIES_ROWS:
        return f"more than {SERIES_ROWS} rows, too many for a short task"
    long = next((name for name in names if not plain(name)), "")
    return f"column '{long}' is too long for a short question" if long else ""


def few_known(frame: Frame, known: Sequence[str], keys: Sequence[str]) -> list[str]:
    """The keys and the first `MOST` further columns that a short question can list."""
    free = [
        name
        for name in known
        if name not in keys
        and plain(name)
        and (frame[name].dtype.kind in "if" or frame[name].nunique() <= LABELS)
    ]
    return [*free[:MOST], *keys]


def _list(head: str, names: Sequence[str]) -> str:
    return f" {head}: {', '.join(names)}." if names else ""


def mm_short(recipe: Mapping[str, Any]) -> str:
    """The modelling question in one line."""
    kinds, target = recipe["column_type_inference"], recipe["target"][0]
    names = recipe["related_features"]
    numbers = [n for n in names if kinds[n] == "numerical"]
    words = [n for n in names if kinds[n] != "numerical"]
    return (
        f"train_v2.csv, val_v2.csv. Predict {target}: {recipe['problem_type']}."
        f"{_list('Numbers', numbers)}{_list('Words', words)} Save prediction.csv."
    )


def series_short(
    target: str, time: str, keys: Sequence[str], known: Sequence[str], kinds: Mapping[str, str]
) -> dict[str, str]:
    """The questions of a series: `v1` with covariates, `v2` without."""
    free = [name for name in known if name not in keys]
    numbers = _list("Numbers", [n for n in free if kinds[n] == "numerical"])
    words = _list("Words", [n for n in free if kinds[n] != "numerical"])
    head = f"Forecast {target} over {time}: regression.{_list('Keys', keys)}"
    return {
        "v1": f"train.csv, val_v1.csv. {head}{numbers}{words} Save prediction.csv.",
        "v2": f"train.csv, val_v2.csv. {head} Save prediction.csv.",
    }
