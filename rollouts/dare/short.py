"""Short scripts for short modelling tasks (`--short` with MM, XF or CF): what the scripted
agents write, from the question alone.

A script is one template with three choices: the estimator, the columns it sees and, for a series,
whether it sees the time. `default_code` takes the plainest ones: a linear model with its library
defaults on the numeric columns.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

HOMES = {
    "LogisticRegression": "linear_model",
    "GaussianNB": "naive_bayes",
    "KNeighborsClassifier": "neighbors",
    "DecisionTreeClassifier": "tree",
    "RandomForestClassifier": "ensemble",
    "LinearRegression": "linear_model",
    "Lasso": "linear_model",
    "KNeighborsRegressor": "neighbors",
    "DecisionTreeRegressor": "tree",
    "RandomForestRegressor": "ensemble",
}
MODELS = {
    "classification": tuple(HOMES)[:5],
    "regression": tuple(HOMES)[5:],
}
COLUMNS = ("numbers", "all", "two")
_NAME = r"\w(?:[\w.]*\w)?"
_NAMES = rf"{_NAME}(?:, {_NAME})*"
_QUESTION = re.compile(
    rf"(?P<train>\S+\.csv), (?P<val>\S+\.csv)\. (?:Predict|Forecast) (?P<target>{_NAME})"
    rf"(?: over (?P<time>{_NAME}))?: (?P<kind>classification|regression)\."
    rf"(?: Keys: (?P<keys>{_NAMES})\.)?(?: Numbers: (?P<numbers>{_NAMES})\.)?"
    rf"(?: Words: (?P<words>{_NAMES})\.)? Save prediction\.csv\."
)


@dataclass(frozen=True)
class Asked:
    """What a short question says. `time` is "" for a task that is no series."""

    train: str
    val: str
    target: str
    kind: str  # classification or regression
    time: str = ""
    keys: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    words: tuple[str, ...] = ()

    @property
    def forecast(self) -> bool:
        """Whether the time and the keys are all that is known of the rows to predict."""
        return bool(self.time) and not self.numbers and not self.words


@dataclass(frozen=True)
class Choice:
    """What a script chooses: an estimator of scikit-learn, columns, and whether time is one."""

    model: str
    columns: str = "numbers"
    time: bool = False


def read_question(text: str) -> Asked | None:
    """The parts of a short question; None for any other text."""
    found = _QUESTION.fullmatch(text)
    if found is None:
        return None
    lists = {
        name: tuple(filter(None, (found[name] or "").split(", ")))
        for name in ("keys", "numbers", "words")
    }
    plain = (found["train"], found["val"], found["target"], found["kind"], found["time"] or "")
    return Asked(*plain, **lists)


def default_choice(asked: Asked) -> Choice:
    """A linear model on the numbers; a forecast from the time and the keys."""
    model = "LogisticRegression" if asked.kind == "classification" else "LinearRegression"
    return Choice(model, "all", True) if asked.forecast else Choice(model)


def choices(asked: Asked) -> Iterator[Choice]:
    """Every script that the template can write for a question, the default one first."""
    first = default_choice(asked)
    yield first
    columns = ("all", "two") if asked.forecast else COLUMNS
    times = (True,) if asked.forecast else (False, True) if asked.time else (False,)
    for model in MODELS[asked.kind]:
        for which in columns:
            for time in times:
                if (choice := Choice(model, which, time)) != first:
                    yield choice


def drawn_choice(asked: Asked, seed: int) -> Choice:
    """One of `choices`, all alike likely."""
    return random.Random(seed).choice(list(choices(asked)))


def _columns(asked: Asked, choice: Choice) -> list[str]:
    if asked.forecast:
        return list(asked.keys) if choice.columns == "all" else []
    every = [*asked.numbers, *asked.words, *asked.keys]
    if choice.columns == "all":
        return every
    return every[:2] if choice.columns == "two" else list(asked.numbers) or every


def short_model_code(asked: Asked, choice: Choice) -> str:
    """The script of a choice: about 150 tokens."""
    names, target = _columns(asked, choice), asked.target
    lines = [
        "import pandas as pd",
        f"from sklearn.{HOMES[choice.model]} import {choice.model} as M",
        f"t = pd.read_csv('{asked.train}')",
        f"v = pd.read_csv('{asked.val}')",
        "a = pd.concat([t, v])",
    ]
    if choice.time:
        lines.append(f"w = pd.to_datetime(a['{asked.time}'].astype(str)).dt")
        lines.append("a['Y'], a['M'] = w.year, w.month")
        names = ["Y", "M", *names]
    lines += [
        f"d = pd.get_dummies(a[{names!r}]).fillna(0)",
        f"v['{target}'] = M().fit(d[:len(t)], t['{target}']).predict(d[len(t):])",
        "v.to_csv('prediction.csv')",
    ]
    return "\n".join(lines)


def default_code(asked: Asked) -> str:
    """The script of a default model."""
    return short_model_code(asked, default_choice(asked))
