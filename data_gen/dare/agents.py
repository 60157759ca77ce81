"""Scripted agents for table tasks (`--solver`): one call of the code tool, then a closing word.

That of IF tasks knows the recipe from the task's gold. Its code starts from the noisy training
file, as a model has to, and is written independently of the reference. The others know the question
alone. For short modelling tasks (`--short` with MM, XF or CF) a script is one template with
three choices: the estimator, the columns it sees and, for a series, whether it sees the time.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from assay.task import Task, TaskError, derive_seed
from data_gen.dare.models import HOMES
from rollouts.engines.scripted import Solver
from rollouts.python_tool import NAME, PREDICTION
from rollouts.tool_calls import CallFormat

MODELS = {
    "classification": (
        *("LogisticRegression", "GaussianNB", "KNeighborsClassifier"),
        *("DecisionTreeClassifier", "RandomForestClassifier"),
    ),
    "regression": (
        *("LinearRegression", "Lasso", "KNeighborsRegressor"),
        *("DecisionTreeRegressor", "RandomForestRegressor"),
    ),
}

# --- IF: what the recipe says ---------------------------------------------------------------------

_READ = {
    "csv": "def read(f):\n    return pd.read_csv(f, keep_default_na=False, na_values=[''])\n",
    "parquet": "def read(f):\n    return pd.read_parquet(f).replace({None: np.nan})\n",
    "sqlite": (
        "import sqlite3\ndef read(f):\n    db = sqlite3.connect(f)\n"
        "    names = [r[0] for r in db.execute(\"select name from sqlite_master where type='table' "
        'order by name")]\n    out = None\n    for n in names:\n'
        "        t = pd.read_sql('select * from \"%s\"' % n, db)\n"
        "        out = t if out is None else out.merge(t, on='row_id')\n"
        "    return out.replace({None: np.nan})\n"
    ),
}


def _model(recipe: dict[str, Any], stated_only: bool = False) -> str:
    name = recipe["model_type"]
    seeded = name not in ("GaussianNB", "LinearRegression")
    if stated_only and "seed" not in recipe.get("stated", ()):
        seeded = False
    return f"{name}(random_state={recipe['random_state']})" if seeded else f"{name}()"


def faithful_code(recipe: dict[str, Any]) -> str:
    """A script that follows every instruction and writes prediction.csv. Where the recipe says
    which steps the question states, it does those alone: library defaults for the rest."""
    ext, targets, name = recipe["save_file_type"], recipe["target"], recipe["model_type"]
    kinds, chosen = recipe["column_type_inference"], recipe["selected_features"]
    numbers = [f for f in chosen if kinds[f] == "numerical"]
    words = [f for f in chosen if kinds[f] != "numerical"]
    stated = recipe.get("stated", ("impute", "scale", "seed"))
    fill, most = (
        f"SimpleImputer(strategy={w!r})" for w in (recipe["imputer_type"], "most_frequent")
    )
    steps = [fill] * ("impute" in stated) + ["StandardScaler()"] * ("scale" in stated)
    model = _model(recipe, stated_only="stated" in recipe)
    if len(targets) > 1 and name in ("LogisticRegression", "GaussianNB", "LinearSVC"):
        model = f"MultiOutputClassifier({model})"
    return f"""import numpy as np, pandas as pd
from numpy import nan  # a published range may be [nan, nan]
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.{HOMES[name]} import {name}
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
{_READ[ext]}
train, val = read('train_v1.{ext}'), read('val_v1.{ext}')
ranges = {recipe["expected_ranges"]!r}
for name, allowed in ranges.items():
    col = train[name]
    good = col.between(*allowed) if pd.api.types.is_numeric_dtype(col) else col.isin(allowed)
    train = train[good | col.isna()]
numeric, words = {numbers!r}, {words!r}
targets = {targets!r}
train = train.dropna(subset=targets)
blocks = []
if numeric:
    blocks.append(('n', make_pipeline({", ".join(steps) or "'passthrough'"}), numeric))
if words:
    hot = OneHotEncoder(handle_unknown='ignore', sparse_output=False)
    blocks.append(('c', make_pipeline({f"{most}, " * ("impute" in stated)}hot), words))
model = Pipeline([('x', ColumnTransformer(blocks)), ('m', {model})])
model.fit(train[{chosen!r}], train[targets])
said = np.asarray(model.predict(val[{chosen!r}])).reshape(len(val), len(targets))
out = pd.DataFrame(said, columns=targets)
out.insert(0, 'row_id', val['row_id'].to_numpy())
out.to_csv('prediction.csv', index=False)
"""


def short_code(recipe: dict[str, Any]) -> str:
    """The same for a task of numeric columns in csv, as short as a small model can learn it."""
    name, target = recipe["model_type"], recipe["target"][0]
    stated = recipe["stated"]
    lines = [
        "import pandas as pd",
        f"from sklearn.{HOMES[name]} import {name}",
        "from sklearn.pipeline import make_pipeline",
    ]
    steps: list[str] = []
    if "impute" in stated:
        lines.append("from sklearn.impute import SimpleImputer")
        steps.append(f"SimpleImputer(strategy='{recipe['imputer_type']}')")
    if "scale" in stated:
        lines.append("from sklearn.preprocessing import StandardScaler")
        steps.append("StandardScaler()")
    steps.append(_model(recipe, stated_only=True))
    lines += ["t = pd.read_csv('train_v1.csv')", "v = pd.read_csv('val_v1.csv')"]
    for column, (low, high) in recipe["expected_ranges"].items():
        lines.append(
            f"t = t[t['{column}'].between({low:.15g}, {high:.15g}) | t['{column}'].isna()]"
        )
    lines += [
        f"X = {recipe['selected_features']!r}",
        f"m = make_pipeline({', '.join(steps)}).fit(t[X], t['{target}'])",
        f"v['{target}'] = m.predict(v[X])",
        f"v[['row_id', '{target}']].to_csv('prediction.csv', index=False)",
    ]
    return "\n".join(lines)


# --- short modelling tasks: the question, and scripts of one template ----------------------------

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


def choices(asked: Asked) -> list[Choice]:
    """Every script that the template can write for a question; first a linear model on the numbers,
    of a forecast on the time and the keys."""
    columns = ("all", "two") if asked.forecast else ("numbers", "all", "two")
    times = (True,) if asked.forecast else (False, True) if asked.time else (False,)
    return [Choice(m, which, t) for m in MODELS[asked.kind] for which in columns for t in times]


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


# --- agents --------------------------------------------------------------------------------------


def tool_call(task: Task, code: str, calls: CallFormat, save: Sequence[str] = (PREDICTION,)) -> str:
    load = [n for n in task.files if n != "metadata.txt"]
    arguments = {"code": code, "files_to_load": load, "files_to_save": list(save)}
    return calls.write(NAME, arguments)


def once(code: Callable[[Task], str]) -> Solver:
    def solve(task: Task, turn: int, calls: CallFormat) -> str:
        return tool_call(task, code(task), calls) if turn == 0 else "Done."

    return solve


def reference_code(task: Task) -> str:
    """IF: every instruction followed; short modelling tasks: a default linear model; else a default
    forest."""
    recipe: Any = task.gold.get("recipe")
    if task.track.endswith("-IF"):
        if not recipe:
            raise TaskError(f"task {task.id}: its gold holds no recipe; import or build it again")
        try:
            return faithful_code(recipe) if "metadata.txt" in task.files else short_code(recipe)
        except KeyError as error:
            raise TaskError(
                f"task {task.id}: its recipe says nothing of {error}, which the reference needs; "
                "mend the copy and import it again"
            ) from None
    asked = read_question(str(task.prompt[-1]["content"]))
    return baseline_code(task) if asked is None else short_model_code(asked, choices(asked)[0])


def _short(task: Task) -> Asked:
    """What a short modelling question says. Raises `TaskError` for another task."""
    asked = read_question(str(task.prompt[-1]["content"]))
    if asked is None:
        raise TaskError(
            f"task {task.id}: no short modelling task; build some with "
            "--short --task-types MM,XF,CF"
        )
    return asked


def drawn_code(task: Task) -> str:
    """A script with an estimator and columns drawn by the task's id, whatever they are worth."""
    asked = _short(task)
    return short_model_code(
        asked, random.Random(derive_seed(0, "drawn", task.id)).choice(choices(asked))
    )


def forest_code(task: Task) -> str:
    """A random forest on all columns, the time included: the strongest script of the template."""
    asked = _short(task)
    model = "RandomForestClassifier" if asked.kind == "classification" else "RandomForestRegressor"
    return short_model_code(asked, Choice(model, "all", bool(asked.time)))


def baseline_code(task: Task) -> str:
    """Trees on whatever columns both files have; CF: the past mean by entity."""
    gold = task.gold
    kind = "Classifier" if task.track.startswith("class") else "Regressor"
    train, val = (min(n for n in task.files if n.startswith(word)) for word in ("train", "val"))
    return f"""import numpy as np, pandas as pd
from sklearn.ensemble import ExtraTrees{kind}
{_READ[train.rpartition(".")[2]]}
train, val = read({train!r}), read({val!r})
targets, keys = {gold["targets"]!r}, {gold["key_columns"]!r}
out = val[keys].copy()
names = [c for c in val.columns if c in train.columns and c not in targets and c != 'row_id']
both = pd.concat([train[names], val[names]])
for c in names:
    if both[c].dtype.kind not in 'iufb':
        both[c] = pd.factorize(both[c].astype(str))[0]
both = both.fillna(both.median())
for t in targets:
    good = train[t].notna().to_numpy()
    model = ExtraTrees{kind}(60, random_state=0).fit(both[:len(train)][good], train[t][good])
    out[t] = model.predict(both[len(train):])
out.to_csv('prediction.csv', index=False)
"""


def five_calls(task: Task, turn: int, calls: CallFormat) -> str:
    """Small calls until the turns are used up, to measure what an episode costs."""
    return tool_call(task, f"print({turn})", calls, save=())


reference, baseline = once(reference_code), once(baseline_code)
drawn, forest = once(drawn_code), once(forest_code)
