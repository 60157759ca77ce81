"""Scripted agents through the real episode, tool, sandbox and scorer: honest, cheating, broken."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn")
pytest.importorskip("transformers")
from tiny_model import write_tiny_tokenizer  # noqa: E402

from assay.family import score_answer  # noqa: E402
from assay.task import Task  # noqa: E402
from data_gen.dare.agents import once, tool_call  # noqa: E402
from rewards.dare.score import TableReward  # noqa: E402
from rollouts.engines.scripted import ScriptedEngine  # noqa: E402
from rollouts.environment import Budget  # noqa: E402
from rollouts.environments import EnvironmentFactory, ToolSettings  # noqa: E402
from rollouts.episode import rollout  # noqa: E402
from rollouts.prompts import ChatTokenizer  # noqa: E402
from rollouts.python_tool import NAME  # noqa: E402
from rollouts.scripted_agents import script  # noqa: E402
from rollouts.tool_calls import CallFormat  # noqa: E402
from rollouts.trajectory import Sampling  # noqa: E402
from train.evaluation.dare_tables import category  # noqa: E402

LOAD = """import numpy as np, pandas as pd, sqlite3, os
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


def cheat(body: str) -> Any:
    """A script that sees `val`, `train`, `keys` and `targets`, and must write prediction.csv."""

    def code(task: Task) -> str:
        names = f"keys, targets = {task.gold['key_columns']!r}, {task.gold['targets']!r}\n"
        return f"{LOAD}{names}guess = {{t: train[t].mode()[0] for t in targets}}\n{body}\n"

    return once(code)


SAVE = ".to_csv('prediction.csv', index=False)"
CHEATS = {
    "one_row_repeated": cheat(
        f"one = val[keys].iloc[:1].assign(**guess)\npd.concat([one] * len(val)){SAVE}"
    ),
    "every_key_many_times": cheat(f"pd.concat([val[keys].assign(**guess)] * 50){SAVE}"),
    "link_to_secret": cheat("import os\nos.symlink('/etc/hostname', 'prediction.csv')"),
    "look_for_gold": cheat(
        "import glob\n"
        "names = ('ground_truth*', 'simulated_pred*', 'train_v1_no_err*', 'all_metadata*')\n"
        "found = [p for n in names for top in ('.', '..', '/') for p in "
        "glob.glob(f'{top}/**/{n}', recursive=True)[:1]]\n"
        "open('prediction.csv', 'wb').write(open(found[0], 'rb').read() if found else b'none')"
    ),
}


def malformed(task: Task, turn: int, calls: CallFormat) -> str:
    bad = (
        '<tool_call>\n{"name": "python_executor", "arguments": {code: 1}}\n</tool_call>',
        '<tool_call>\n{"name": "bash", "arguments": {"cmd": "ls"}}\n</tool_call>',
        '<tool_call>\n{"name": "python_executor", "arguments": {"code": 5}}\n</tool_call>',
    )
    return bad[turn % 3]


FAILING: dict[str, Any] = {
    "words": "words",
    "crashing": lambda *asked: running("import pandas as pd\npd.read_csv('nowhere.csv')", *asked),
    "slow": lambda *asked: running("import time\nwhile True: time.sleep(1)", *asked),
    "malformed": malformed,
    "endless": lambda *asked: (
        '<tool_call>\n{"name": "python_executor", "arguments": {"code": "' + "x = 1; " * 4000
    ),
    "wordy": lambda *asked: "First I will plan. " * 40,
}


def running(code: str, task: Task, turn: int, calls: CallFormat) -> str:
    return tool_call(task, code, calls)


RECIPE = {
    "save_file_type": "csv",
    "target": ["y"],
    "model_type": "Ridge",
    "random_state": 3,
    "column_type_inference": {"a": "numerical", "b": "numerical", "y": "numerical"},
    "selected_features": ["a", "b"],
    "expected_ranges": {"a": [0, 9]},
    "imputer_type": "mean",
    "stated": ["filter", "scale"],
}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    folder = tmp_path_factory.mktemp("tok")
    write_tiny_tokenizer(folder)
    return ChatTokenizer(folder)


def reference(train: Any, val: Any) -> Any:
    """The answer, by other means than the solver's script: centred least squares with a penalty."""
    import numpy as np

    good = train[(train["a"] >= 0) & (train["a"] <= 9)]
    x, y = good[["a", "b"]].to_numpy(float), good["y"].to_numpy(float)
    mean, spread = x.mean(0), x.std(0)
    z = (x - mean) / spread
    w = np.linalg.solve(z.T @ z + np.eye(2), z.T @ (y - y.mean()))
    said = (val[["a", "b"]].to_numpy(float) - mean) / spread @ w + y.mean()
    return pd.DataFrame({"row_id": val["row_id"], "y": said})


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Task]]:
    """An IF task, a class-MM task whose labels are mostly one, and a CF task."""
    root = tmp_path_factory.mktemp("tables")
    made: list[Task] = []

    def add(kind: str, train: Any, val: Any, truth: Any, keys: list[str], **gold: Any) -> None:
        files = {}
        for name, frame in (("train.csv", train), ("val.csv", val)):
            own = f"{name[:-4]}_v1.csv" if kind.endswith("IF") else name
            frame.to_csv(root / f"{kind}-{own}", index=False)
            files[own] = f"{kind}-{own}"
        gold |= {
            "task_type": kind,
            "truth_csv": truth.to_csv(index=False),
            "key_columns": keys,
            "targets": ["y"],
        }
        prompt = [{"role": "user", "content": f"Solve {kind}."}]
        made.append(Task(kind, "table", kind, "train", prompt, gold, (NAME,), files))

    n = range(60)
    train = pd.DataFrame(
        {"y": [i * 1.5 + i % 7 for i in n], "a": [i % 10 for i in n], "b": list(n)}
    )
    noise = pd.DataFrame({"y": [900.0] * 10, "a": [15] * 10, "b": [1] * 10})
    val = pd.DataFrame({"row_id": range(1, 21), "a": [i % 9 for i in range(20)], "b": range(20)})
    noisy = pd.concat([train, noise])
    add("reg-IF", noisy, val, reference(noisy, val), ["row_id"], recipe=RECIPE)
    labels = pd.DataFrame({"a": list(n), "y": ["p" if i % 3 else "q" for i in n]})
    ask = pd.DataFrame({"row_id": range(1, 31), "a": range(30)})
    truth = ask[["row_id"]].assign(y=["p" if i % 3 else "q" for i in range(30)])
    add("class-MM", labels, ask, truth, ["row_id"])
    past = pd.DataFrame(
        {
            "t": [f"2020-01-{d:02d}" for d in range(1, 20)] * 2,
            "e": ["u"] * 19 + ["v"] * 19,
            "y": [1.0] * 19 + [9.0] * 19,
        }
    )
    later = pd.DataFrame({"t": ["2020-02-01", "2020-02-02"] * 2, "e": ["u", "u", "v", "v"]})
    add("time-CF", past, later, later.assign(y=[1.1, 0.9, 9.2, 8.8]), ["t", "e"])
    return root, made


def run(
    solver: Any,
    tasks: tuple[Path, list[Task]],
    tokenizer: ChatTokenizer,
    run_s: float = 20.0,
    turns: int = 3,
    tokens: int = 6000,
) -> list[Any]:
    root, listed = tasks
    engine = ScriptedEngine(script(solver, listed, tokenizer.calls), tokenizer)

    async def go() -> Any:
        shop = EnvironmentFactory(root, ToolSettings(run_s=run_s, brief=True))
        found = await rollout(
            listed,
            engine,
            tokenizer,
            Sampling(tokens),
            1,
            0,
            maker=shop.maker,
            budget=Budget(turns),
        )
        await shop.close()
        return found

    return [
        (task, t, score_answer(task, t.answer()))
        for task, (t,) in zip(listed, asyncio.run(go()), strict=True)
    ]


def test_the_honest_solver_earns_what_the_work_is_worth(tasks: Any, tokenizer: Any) -> None:
    exact, labels, series = run("reference", tasks, tokenizer)
    assert (exact[2].outcome, exact[2].reward, exact[1].stop) == (1.0, 1.1, "eos"), exact[
        1
    ].messages
    assert category(*exact) is None
    assert labels[2].outcome > 0.5 and series[2].outcome > 0.9


@pytest.mark.slow  # every cheat on every visible table
def test_no_cheat_earns_more_than_a_tenth(tasks: Any, tokenizer: Any) -> None:
    """Each cheat on each table is one task of a single run: the sandbox starts once."""
    root, listed = tasks
    every = [(name, task) for name in CHEATS for task in listed]
    named = [
        Task(
            f"{name}:{t.id}",
            t.family,
            t.track,
            t.split,
            [{"role": "user", "content": f"{name} of {t.id}."}],
            t.gold,
            t.tools,
            t.files,
        )
        for name, t in every
    ]
    scripts = {name: script(solver, named, tokenizer.calls) for name, solver in CHEATS.items()}

    def say(turn: Any) -> str:
        name = next(n for n in CHEATS if f"{n} of " in turn.conversation)
        return scripts[name](turn)

    async def go() -> Any:
        shop = EnvironmentFactory(root, ToolSettings(run_s=20, brief=True))
        engine = ScriptedEngine(say, tokenizer)
        found = await rollout(
            named, engine, tokenizer, Sampling(6000), 1, 0, maker=shop.maker, budget=Budget(2)
        )
        await shop.close()
        return found

    paid: dict[str, float] = {}
    for task, (t,) in zip(named, asyncio.run(go()), strict=True):
        score = score_answer(task, t.answer())
        assert t.failure is None and t.tool_calls, task.id
        paid[task.id] = score.reward or 0.0
        assert score_answer(task, t.answer(), {"table": TableReward("release")}).outcome is not None
    assert {n: r for n, r in paid.items() if r > 0.1 + 1e-9} == {}


@pytest.mark.parametrize(
    ("name", "stop", "cause", "settings"),
    [
        ("words", "eos", "code error", {}),
        ("crashing", "turns", "code execution limit", {}),
        ("slow", "turns", "code execution limit", {"run_s": 0.5, "turns": 1}),
        ("malformed", "turns", "code execution limit", {}),
        ("endless", "length", "max token limit", {"tokens": 300, "turns": 2}),
        ("wordy", "length", "max token limit", {"tokens": 50}),
    ],
)
def test_failures_have_a_cause(
    tasks: Any, tokenizer: Any, name: str, stop: str, cause: str, settings: dict[str, Any]
) -> None:
    root, listed = tasks
    for task, t, score in run(FAILING[name], (root, listed[:1]), tokenizer, **settings):
        assert (t.stop, score.reward, category(task, t, score)) == (stop, 0.0, cause)
        if name in ("malformed", "crashing"):
            assert sum(t.errors.values()) == 3
