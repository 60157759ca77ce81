# ruff: noqa: E402
"""Scripted agents through the real episode, tool, sandbox and scorer: honest, cheating, broken; and
the scripts of short modelling tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from harness import WarmFactory, warm_pool

pd = pytest.importorskip("pandas")
np = pytest.importorskip("numpy")
pytest.importorskip("sklearn")
pytest.importorskip("transformers")

from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_model import write_tiny_tokenizer

from assay.family import score_answer
from assay.task import Task, TaskError
from data_gen.dare.agents import (
    Asked,
    choices,
    drawn_code,
    forest_code,
    read_question,
    reference_code,
    short_model_code,
    tool_call,
)
from data_gen.dare.wording import mm_short, series_short
from rewards.dare.score import score_table_row
from rollouts.engines.scripted import ScriptedEngine
from rollouts.environment import Budget
from rollouts.environments import ToolSettings
from rollouts.episode import rollout
from rollouts.event_loop import asyncio_run
from rollouts.prompts import ChatTokenizer
from rollouts.python_tool import NAME
from rollouts.scripted_agents import script
from rollouts.trajectory import Sampling
from train.evaluation.dare import category

CALL = '<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>'
CRASH = "import pandas as pd\npd.read_csv('nowhere.csv')"
LOOP = "import time\nwhile True: time.sleep(1)"
ENDLESS = CALL.partition("%s")[0] + '", "arguments": {"code": "' + "x = 1; " * 4000


def calling(code: str) -> Any:
    return lambda task, turn, calls: tool_call(task, code, calls)


FAILING: dict[str, tuple[Any, str, str, dict[str, Any]]] = {  # agent, stop, cause, settings
    "words": ("words", "eos", "code error", {}),
    "crashing": (calling(CRASH), "turns", "code execution limit", {}),
    "slow": (calling(LOOP), "turns", "code execution limit", {"run_s": 0.5, "turns": 1}),
    "endless": (lambda *asked: ENDLESS, "length", "max token limit", {"tokens": 300, "turns": 2}),
    "wordy": (lambda *asked: "First I plan. " * 50, "length", "max token limit", {"tokens": 50}),
}
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
        gold |= {"task_type": kind, "truth_csv": truth.to_csv(index=False)}
        gold |= {"key_columns": keys, "targets": ["y"]}
        prompt = [{"role": "user", "content": f"Solve {kind}."}]
        made.append(Task(kind, "table", kind, "train", prompt, gold, (NAME,), files))

    n = range(60)
    train = pd.DataFrame({"y": [i * 1.5 + i % 7 for i in n], "a": [i % 10 for i in n], "b": n})
    noise = pd.DataFrame({"y": [900.0] * 10, "a": [15] * 10, "b": [1] * 10})
    val = pd.DataFrame({"row_id": range(1, 21), "a": [i % 9 for i in range(20)], "b": range(20)})
    noisy = pd.concat([train, noise])
    add("reg-IF", noisy, val, reference(noisy, val), ["row_id"], recipe=RECIPE)
    labels = pd.DataFrame({"a": n, "y": ["p" if i % 3 else "q" for i in n]})
    ask = pd.DataFrame({"row_id": range(1, 31), "a": range(30)})
    truth = ask[["row_id"]].assign(y=["p" if i % 3 else "q" for i in range(30)])
    add("class-MM", labels, ask, truth, ["row_id"])
    times = [f"2020-01-{d:02d}" for d in range(1, 20)] * 2
    past = pd.DataFrame({"t": times, "e": ["u"] * 19 + ["v"] * 19, "y": [1.0] * 19 + [9.0] * 19})
    later = pd.DataFrame({"t": ["2020-02-01", "2020-02-02"] * 2, "e": ["u", "u", "v", "v"]})
    add("time-CF", past, later, later.assign(y=[1.1, 0.9, 9.2, 8.8]), ["t", "e"])
    return root, made


def run(
    say: Any,
    root: Path,
    listed: list[Task],
    tokenizer: ChatTokenizer,
    run_s: float = 20.0,
    turns: int = 3,
    tokens: int = 6000,
) -> list[Any]:
    """(task, trajectory, score) of each task."""

    async def go() -> Any:
        shop = WarmFactory(root, ToolSettings(run_s=run_s, brief=True))
        engine, budget = ScriptedEngine(say, tokenizer), Budget(turns)
        return await rollout(
            listed, engine, tokenizer, Sampling(tokens), 1, 0, maker=shop.maker, budget=budget
        )

    pairs = zip(listed, asyncio_run(go()), strict=True)
    return [(task, t, score_answer(task, t.answer())) for task, (t,) in pairs]


def test_the_honest_solver_earns_what_the_work_is_worth(tasks: Any, tokenizer: Any) -> None:
    root, listed = tasks
    say = script("reference", listed, tokenizer.calls)
    exact, labels, series = run(say, root, listed, tokenizer)
    assert (exact[2].outcome, exact[2].reward, exact[1].stop) == (1.0, 1.1, "eos")
    assert category(*exact) is None
    assert labels[2].outcome > 0.5 and series[2].outcome > 0.9


@pytest.mark.parametrize("name", FAILING)
def test_failures_have_a_cause(tasks: Any, tokenizer: Any, name: str) -> None:
    root, listed = tasks
    agent, stop, cause, how = FAILING[name]
    say = script(agent, listed[:1], tokenizer.calls)
    ((task, t, score),) = run(say, root, listed[:1], tokenizer, **how)
    assert (t.stop, score.reward, category(task, t, score)) == (stop, 0.0, cause)
    if name == "crashing":
        assert sum(t.errors.values()) == 3


# --- short modelling tasks: the questions are read back, and every script runs ---

NAMES = st.lists(
    st.from_regex(r"[A-Za-z]([A-Za-z0-9_.]{0,8}[A-Za-z0-9_])?", fullmatch=True),
    unique=True,
    max_size=6,
)


@settings(max_examples=25)
@given(NAMES, NAMES, st.sampled_from([[], ["town"], ["a", "b.c"]]))
def test_short_questions_are_read_back(
    numbers: list[str], words: list[str], keys: list[str]
) -> None:
    numbers = [n for n in numbers if n not in keys]
    words = [w for w in words if w not in (*numbers, *keys)]
    kinds = dict.fromkeys(numbers, "numerical") | dict.fromkeys(words, "categorical")
    names = [*numbers, *words]
    recipe = {"column_type_inference": kinds, "target": ["y.z"], "related_features": names}
    asked = read_question(mm_short(recipe | {"problem_type": "regression"}))
    assert asked is not None and (asked.target, asked.kind) == ("y.z", "regression")
    assert (asked.numbers, asked.words, asked.time) == (tuple(numbers), tuple(words), "")
    assert len(choices(asked)) == 15
    said = series_short("y", "year", keys, [*names, *keys], kinds)
    known, plain = read_question(said["v1"]), read_question(said["v2"])
    assert known is not None and plain is not None and plain.forecast
    assert (known.numbers, known.words, known.time) == (tuple(numbers), tuple(words), "year")
    assert known.keys == plain.keys == tuple(keys) and known.forecast is not bool(names)


@pytest.mark.parametrize("text", ["", "Predict y.", "train.csv, val.csv. Predict y: poem."])
def test_another_question_is_not_read(text: str) -> None:
    assert read_question(text) is None
    task = Task("t", "table", "reg-MM", "train", [{"role": "user", "content": text}], {}, ())
    with pytest.raises(TaskError):
        drawn_code(task)


@pytest.mark.parametrize("variant", ["v1", "v2"])
def test_every_script_of_a_series_runs(variant: str) -> None:
    """Two towns over years: the later years are asked."""
    every = [
        {"year": 1960 + i, "town": town, "heat": i % 5, "sky": "ab"[i % 2], "y": 2.0 * i + add}
        for i in range(40)
        for town, add in (("Ulm", 0), ("Bonn", 30))
    ]
    frame = pd.DataFrame(every)
    early, late = frame[frame["year"] < 1990], frame[frame["year"] >= 1990].reset_index(drop=True)
    late.insert(0, "row_id", range(1, len(late) + 1))
    keys = ["year", "town"] if variant == "v2" else ["row_id"]
    asked_rows = late[keys] if variant == "v2" else late.drop(columns="y")
    kinds = {"heat": "numerical", "sky": "categorical"}
    said = series_short("y", "year", ["town"], ["heat", "sky", "town"], kinds)
    asked = read_question(said[variant])
    assert asked is not None
    gold = {
        "task_type": "time-CF" if variant == "v2" else "time-XF",
        "truth_csv": late[[*keys, "y"]].to_csv(index=False),
        "key_columns": keys,
        "targets": ["y"],
    }
    data = {asked.train: early, asked.val: asked_rows}
    files = {name: frame.to_csv(index=False).encode() for name, frame in data.items()}

    async def go() -> list[float]:
        rewards: list[float] = []
        for choice in choices(asked)[::5]:  # each model, each set of columns, time or not
            code = short_model_code(asked, choice)
            result = await warm_pool().run(code, files, ["prediction.csv"])
            assert result.status == "ok", result.stderr
            answer = {"prediction_csv": result.files["prediction.csv"].decode()}
            rewards.append(score_table_row(gold, answer).reward or 0.0)
        return rewards

    assert min(asyncio_run(go())) >= 0.1


def test_what_the_short_agents_choose() -> None:
    text = "train_v2.csv, val_v2.csv. Predict y: classification. Numbers: a. Words: b. "
    prompt = [{"role": "user", "content": f"{text}Save prediction.csv."}]
    task = Task("t", "table", "class-MM", "train", prompt, {}, ())
    assert isinstance(read_question(prompt[0]["content"]), Asked)
    assert "LogisticRegression" in reference_code(task) and "['a']]" in reference_code(task)
    assert "RandomForestClassifier" in forest_code(task) and "['a', 'b']" in forest_code(task)
    assert drawn_code(task) == drawn_code(task)


def test_a_recipe_that_lacks_a_field_is_the_fault_of_its_task() -> None:
    gold = {"recipe": {"target": ["y"], "save_file_type": "csv"}}
    task = Task("t", "table", "class-IF", "train", [{"role": "user", "content": "?"}], gold, ())
    with pytest.raises(TaskError, match="task t: its recipe says nothing of 'model_type'"):
        reference_code(task)
