"""Scripted agents for table tasks: honest ones, and ones that cheat or fail.

The honest solver of IF tasks knows the recipe from the task's gold; the others know the question
alone. `CHEATS` are for tests and `assay audit`: none may earn more than 0.1 in `strict`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from assay.seeds import derive_seed
from assay.task import Task, TaskError
from rollouts.dare.scripts import faithful_code, short_code
from rollouts.dare.short import (
    Asked,
    Choice,
    default_code,
    drawn_choice,
    read_question,
    short_model_code,
)
from rollouts.engines.scripted import Solver
from rollouts.python_tool import NAME, PREDICTION
from rollouts.tool_calls import CallFormat


def _call(task: Task, code: str, calls: CallFormat, save: Sequence[str] = (PREDICTION,)) -> str:
    load = [n for n in task.files if n != "metadata.txt"]
    arguments = {"code": code, "files_to_load": load, "files_to_save": list(save)}
    return calls.write(NAME, arguments)


def _once(code: Callable[[Task], str]) -> Solver:
    """One call, then a closing word."""

    def solve(task: Task, turn: int, calls: CallFormat) -> str:
        return _call(task, code(task), calls) if turn == 0 else "Done."

    return solve


def reference_code(task: Task) -> str:
    """IF: every instruction followed; short modelling tasks: a default linear model; else a default
    forest."""
    recipe: Any = task.gold.get("recipe")
    if task.track.endswith("-IF"):
        if not recipe:
            raise TaskError(f"task {task.id}: its gold holds no recipe; import or build it again")
        return faithful_code(recipe) if "metadata.txt" in task.files else short_code(recipe)
    asked = read_question(str(task.prompt[-1]["content"]))
    return baseline_code(task) if asked is None else default_code(asked)


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
    return short_model_code(asked, drawn_choice(asked, derive_seed(0, "drawn", task.id)))


def forest_code(task: Task) -> str:
    """A random forest on all columns, the time included: the strongest script of the template."""
    asked = _short(task)
    model = "RandomForestClassifier" if asked.kind == "classification" else "RandomForestRegressor"
    return short_model_code(asked, Choice(model, "all", bool(asked.time)))


_LOAD = """import numpy as np, pandas as pd, sqlite3, os
def read(f):
    if f.endswith('.csv'):
        return pd.read_csv(f)
    if f.endswith('.parquet'):
        return pd.read_parquet(f)
    db = sqlite3.connect(f)
    names = [r[0] for r in db.execute("select name from sqlite_master where type='table'")]
    out = pd.read_sql('select * from "%s"' % names[0], db)
    for n in names[1:]:
        out = out.merge(pd.read_sql('select * from "%s"' % n, db), on='row_id')
    return out
files = sorted(f for f in os.listdir('.') if not f.endswith('.py'))
train = read([f for f in files if f.startswith('train')][0])
val = read([f for f in files if f.startswith('val')][0])
"""


def baseline_code(task: Task) -> str:
    """Trees on whatever columns both files have; CF: the past mean by entity."""
    gold = task.gold
    kind = "Classifier" if task.track.startswith("class") else "Regressor"
    return f"""{_LOAD}
from sklearn.ensemble import ExtraTrees{kind}
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


# --- dishonest -----------------------------------------------------------------------------------


def _cheat(body: str) -> Solver:
    """A script that sees `val`, `train`, `keys` and `targets`, and must write prediction.csv."""

    def code(task: Task) -> str:
        names = f"keys, targets = {task.gold['key_columns']!r}, {task.gold['targets']!r}\n"
        return f"{_LOAD}{names}guess = {{t: train[t].mode()[0] for t in targets}}\n{body}\n"

    return _once(code)


_SAVE = ".to_csv('prediction.csv', index=False)"
CHEATS: dict[str, Solver] = {
    "one_row_repeated": _cheat(
        f"one = val[keys].iloc[:1].assign(**guess)\npd.concat([one] * len(val)){_SAVE}"
    ),
    "few_rows_repeated": _cheat(
        "part = val[keys].iloc[:3].assign(**guess)\n"
        f"pd.concat([part] * len(val)).iloc[:len(val)]{_SAVE}"
    ),
    "repeat_and_gap": _cheat(
        f"all = val[keys].assign(**guess)\npd.concat([all.iloc[:1], all.iloc[:-1]]){_SAVE}"
    ),
    "keys_only": _cheat(f"val[keys]{_SAVE}"),
    "any_file": _cheat("open('prediction.csv', 'w').write('hello\\n1\\n')"),
    "wrong_names": _cheat(f"val[keys].assign(prediction=0){_SAVE}"),
    "header_only": _cheat(f"val[keys].iloc[:0].assign(**guess){_SAVE}"),
    "all_blank": _cheat(f"val[keys].assign(**{{t: np.nan for t in targets}}){_SAVE}"),
    "huge_numbers": _cheat(f"val[keys].assign(**{{t: 1e308 for t in targets}}){_SAVE}"),
    "invented_label": _cheat(f"val[keys].assign(**{{t: '☃' for t in targets}}){_SAVE}"),
    "every_key_many_times": _cheat(f"pd.concat([val[keys].assign(**guess)] * 50){_SAVE}"),
    "link_to_secret": _cheat("import os\nos.symlink('/etc/hostname', 'prediction.csv')"),
    "hard_link_to_input": _cheat("import os\nos.link(files[0], 'prediction.csv')"),
    "device": _cheat("import os\nos.mkfifo('prediction.csv')"),
    "look_for_gold": _cheat(
        "import glob\n"
        "names = ('ground_truth*', 'simulated_pred*', 'train_v1_no_err*', 'all_metadata*')\n"
        "found = [p for n in names for top in ('.', '..', '/') for p in "
        "glob.glob(f'{top}/**/{n}', recursive=True)[:1]]\n"
        "open('prediction.csv', 'wb').write(open(found[0], 'rb').read() if found else b'none')"
    ),
    "wide_file": _cheat("open('prediction.csv', 'w').write(','.join(map(str, range(200000))))"),
    "deep_quotes": _cheat("open('prediction.csv', 'w').write('\"' * 2000001)"),
    "binary": _cheat("import os\nopen('prediction.csv', 'wb').write(os.urandom(100000))"),
    "formula": _cheat(f"val[keys].assign(**{{t: '=IMPORTDATA(A1)' for t in targets}}){_SAVE}"),
}


def _slow(task: Task, turn: int, calls: CallFormat) -> str:
    return _call(task, "import time\nwhile True: time.sleep(1)", calls)


def _crashing(task: Task, turn: int, calls: CallFormat) -> str:
    return _call(task, "import pandas as pd\npd.read_csv('nowhere.csv')", calls)


def _malformed(task: Task, turn: int, calls: CallFormat) -> str:
    bad = (
        '<tool_call>\n{"name": "python_executor", "arguments": {code: 1}}\n</tool_call>',
        '<tool_call>\n{"name": "bash", "arguments": {"cmd": "ls"}}\n</tool_call>',
        '<tool_call>\n{"name": "python_executor", "arguments": {"code": 5}}\n</tool_call>',
    )
    return bad[turn % 3]


def _endless(task: Task, turn: int, calls: CallFormat) -> str:
    return '<tool_call>\n{"name": "python_executor", "arguments": {"code": "' + "x = 1; " * 4000


def _five_calls(task: Task, turn: int, calls: CallFormat) -> str:
    return _call(task, f"print({turn})", calls, save=())


SOLVERS: dict[str, Solver] = {
    "reference": _once(reference_code),
    "baseline": _once(baseline_code),
    "drawn": _once(drawn_code),
    "forest": _once(forest_code),
    "slow": _slow,
    "crashing": _crashing,
    "malformed": _malformed,
    "endless": _endless,
    "five_calls": _five_calls,
    **CHEATS,
}
