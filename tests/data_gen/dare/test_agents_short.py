"""Short modelling scripts: questions are read back, and every script runs and is scored."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn")

from assay.task import Task, TaskError  # noqa: E402
from data_gen.dare.agents import (  # noqa: E402  # noqa: E402
    Asked,
    choices,
    drawn_code,
    forest_code,
    read_question,
    reference_code,
    short_model_code,
)
from data_gen.dare.wording import mm_short, series_short  # noqa: E402
from rewards.dare.score import score_table_row  # noqa: E402
from rollouts.sandbox.model import Config  # noqa: E402
from rollouts.sandbox.pool import Pool  # noqa: E402

NAMES = st.lists(
    st.from_regex(r"[A-Za-z]([A-Za-z0-9_.]{0,8}[A-Za-z0-9_])?", fullmatch=True),
    unique=True,
    max_size=6,
)


@given(NAMES, NAMES, st.sampled_from(["classification", "regression"]))
def test_a_modelling_question_is_read_back(numbers: list[str], words: list[str], kind: str) -> None:
    words = [w for w in words if w not in numbers]
    kinds = {n: "numerical" for n in numbers} | {w: "categorical" for w in words}
    recipe = {
        "column_type_inference": kinds,
        "target": ["y.z"],
        "related_features": [*numbers, *words],
        "problem_type": kind,
    }
    asked = read_question(mm_short(recipe))
    assert asked is not None and (asked.target, asked.kind, asked.time) == ("y.z", kind, "")
    assert (asked.numbers, asked.words, asked.keys) == (tuple(numbers), tuple(words), ())
    found = [short_model_code(asked, choice) for choice in choices(asked)]
    assert len(found) == 15 and all("y.z" in code for code in found)


@given(NAMES, st.sampled_from([[], ["town"], ["a", "b.c"]]))
def test_the_questions_of_a_series_are_read_back(free: list[str], keys: list[str]) -> None:
    free = [name for name in free if name not in keys]
    kinds = {name: "numerical" for name in free}
    said = series_short("y", "year", keys, [*free, *keys], kinds)
    known, plain = read_question(said["v1"]), read_question(said["v2"])
    assert known is not None and plain is not None
    assert (known.numbers, known.keys, known.time) == (tuple(free), tuple(keys), "year")
    assert plain.forecast and plain.keys == tuple(keys) and plain.val == "val_v2.csv"
    assert known.forecast is not bool(free)


@pytest.mark.parametrize("text", ["", "Predict y.", "train.csv, val.csv. Predict y: poem."])
def test_another_question_is_not_read(text: str) -> None:
    assert read_question(text) is None
    task = Task("t", "table", "reg-MM", "train", [{"role": "user", "content": text}], {}, ())
    with pytest.raises(TaskError, match="no short modelling task"):
        drawn_code(task)


def series(rows: int = 40) -> dict[str, Any]:
    """Two towns over years: the later years are asked."""
    every = [
        {"year": 1960 + i, "town": town, "heat": i % 5, "sky": "ab"[i % 2], "y": 2.0 * i + add}
        for i in range(rows)
        for town, add in (("Ulm", 0), ("Bonn", 30))
    ]
    frame = pd.DataFrame(every)
    early, late = frame[frame["year"] < 1990], frame[frame["year"] >= 1990].reset_index(drop=True)
    late.insert(0, "row_id", range(1, len(late) + 1))
    return {"train.csv": early, "val_v1.csv": late.drop(columns="y"), "truth": late}


@pytest.mark.parametrize("forecast", [False, True])
def test_every_script_of_a_series_runs(forecast: bool) -> None:
    data = series()
    truth, keys = data.pop("truth"), ["year", "town"] if forecast else ["row_id"]
    data["val_v2.csv"] = truth[["year", "town"]]
    kinds = {"heat": "numerical", "sky": "categorical"}
    said = series_short("y", "year", ["town"], ["heat", "sky", "town"], kinds)
    asked = read_question(said["v2" if forecast else "v1"])
    assert asked is not None
    gold = {
        "task_type": "time-CF" if forecast else "time-XF",
        "truth_csv": truth[[*keys, "y"]].to_csv(index=False),
        "key_columns": keys,
        "targets": ["y"],
    }
    scores = asyncio.run(scores_of(asked, data, gold))
    assert choices(asked)[0] in scores
    assert all(reward >= 0.1 for reward, _ in scores.values())
    plain = scores[choices(asked)[0]][1]
    assert plain > 0.9 if forecast else plain < 0.5  # only the forecast sees the time


Scores = dict[Any, tuple[float, float]]  # of a choice: reward and outcome


async def scores_of(asked: Asked, data: dict[str, Any], gold: Any) -> Scores:
    files = {name: frame.to_csv(index=False).encode() for name, frame in data.items()}
    found: Scores = {}
    light = [c for c in choices(asked) if "Forest" not in c.model]
    async with Pool(Config(workers=1)) as pool:
        for choice in [light[0], *light[1::5]]:
            ran = await pool.run(short_model_code(asked, choice), files, ["prediction.csv"])
            assert ran.status == "ok", ran.stderr
            said = ran.files["prediction.csv"].decode()
            score = score_table_row(gold, {"prediction_csv": said})
            found[choice] = (score.reward or 0.0, score.outcome or 0.0)
    return found


def test_agents_write_the_scripts_of_the_question() -> None:
    text = "train_v2.csv, val_v2.csv. Predict y: classification. Numbers: a. Words: b. Save "
    prompt = [{"role": "user", "content": f"{text}prediction.csv."}]
    files = {name: name for name in ("train_v2.csv", "val_v2.csv")}
    task = Task("t:MM", "table", "class-MM", "train", prompt, {}, (), files)
    assert "LogisticRegression" in reference_code(task) and "[['a']]" in reference_code(task)
    assert "RandomForestClassifier" in forest_code(task) and "['a', 'b']" in forest_code(task)
    assert drawn_code(task) == drawn_code(task)
    assert drawn_code(task).endswith("v.to_csv('prediction.csv')")
