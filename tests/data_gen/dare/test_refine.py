"""Rewordings of questions: kept only when every name, number, order and step is still there."""

from __future__ import annotations

import json
import random
from typing import Any, cast

import pytest

from data_gen.dare.refine import Refined, lacks, misread, refine_rows, refined
from data_gen.dare.wording import cf_question, if_question
from rewards.krama.judge import JudgeError
from rewards.krama.judge_endpoint import Endpoint

RECIPE: dict[str, Any] = {
    "save_file_type": "csv",
    "stated": ["filter", "model", "features", "seed", "order", "scale"],
    "column_type_inference": {"size": "numerical", "town": "categorical", "age": "numerical"},
    "numerical_features": ["size", "age"],
    "categorical_features": ["town"],
    "problem_type": "regression",
    "target": ["price"],
    "selected_features": ["size", "town", "age"],
    "expected_ranges": {"size": [2, 41], "town": ["Bonn", "Ulm"]},
    "imputer_type": "mean",
    "model_type": "Ridge",
    "random_state": 7,
}
QUESTION = if_question(RECIPE, random.Random(0))
READ = {
    "model": "Ridge",
    "random_state": 7,
    "features": ["size", "town", "age"],
    "ranges": {"size": [2.0, 41.0], "town": ["Bonn", "Ulm"]},
    "keep_missing": True,
    "imputer": None,
    "scale": True,
}


class Scripted:
    """An endpoint that rewrites with one function and reads back one object."""

    def __init__(self, rewrite: Any, read: Any = None) -> None:
        self.rewrite, self.read = rewrite, READ if read is None else read

    def chat(self, messages: Any, temperature: float) -> dict[str, Any]:
        prompt = messages[0]["content"]
        if prompt.startswith("Read the instruction"):
            said = f"Sure:\n```json\n{json.dumps(self.read)}\n```"
        else:
            said = self.rewrite(prompt.partition("\n\n")[2])
        return {"message": {"content": said}}


def endpoint(rewrite: Any, read: Any = None) -> Endpoint:
    return cast("Endpoint", Scripted(rewrite, read))


def reworded(text: str) -> str:
    return "Could you help me? " + text.replace("Filter the training rows", "Keep training rows")


def test_a_faithful_rewrite_is_kept() -> None:
    counts = Refined()
    found = refined(QUESTION, RECIPE, endpoint(reworded), counts)
    assert found == reworded(QUESTION) and (counts.asked, counts.kept) == (1, 1)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("`age`", "`ages`", "names"),
        ("41", "42", "numbers"),
        (" 2 ", " two ", "numbers"),
        ("random_state=7", "a fixed seed", "numbers"),
        ("'Ulm'", "'Cologne'", "categories"),
        ("Ridge", "Lasso", "model"),
        ("StandardScaler", "scaler", ""),
        (", in this order", "", "step"),
        ("one-hot encode", "encode", "step"),
        ("missing", "odd", "step"),
        ("`size`, `town`, `age`", "`town`, `size`, `age`", "order"),
        ("dense", "nice", "step"),
    ],
)
def test_what_a_rewrite_lost_is_found(old: str, new: str, why: str) -> None:
    lowered = QUESTION.replace("One-hot", "one-hot")
    changed = lowered.replace(old, new).replace("Numeric: `size`", "Numeric: `size`")
    assert changed != lowered
    said = lacks(lowered, changed, ["size", "town", "age"])
    assert said.startswith(why) if why else True
    if why:
        assert refined(lowered, RECIPE, endpoint(lambda _: changed), Refined()) == lowered


@pytest.mark.parametrize(
    "change",
    [
        {"model": "Lasso"},
        {"random_state": None},
        {"features": ["town", "size", "age"]},
        {"ranges": {"size": [2, 40], "town": ["Bonn", "Ulm"]}},
        {"keep_missing": False},
        {"scale": False},
    ],
)
def test_a_rewrite_that_reads_otherwise_is_refused(change: dict[str, Any]) -> None:
    said = misread(RECIPE, QUESTION, endpoint(reworded, READ | change))
    assert said == next(iter(change))
    counts = Refined()
    found = refined(QUESTION, RECIPE, endpoint(reworded, READ | change), counts)
    assert found == QUESTION and counts.kept == 0
    assert misread(RECIPE, QUESTION, endpoint(reworded, ["no object"])) == "no JSON object"


def test_rows_are_reworded_until_the_endpoint_is_gone() -> None:
    cf = cf_question("load", ["day"], ("1W", "mean"), random.Random(0))
    rows = [
        {"file_path": "a_reg", "question_v1": QUESTION, "question_v2": ""},
        {"file_path": "b_ts", "question_v1": "", "question_v2": cf},
        {"file_path": "c_ts", "question_v1": cf, "question_v2": cf},
    ]
    calls = 0

    def rewrite(text: str) -> str:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise JudgeError("gone")
        return "Please: " + text

    report = refine_rows(rows, {"a_reg": RECIPE}, endpoint(rewrite))
    assert (report["asked"], report["kept"], report["stopped"]) == (3, 2, "gone")
    assert rows[1]["question_v2"] == "Please: " + cf and rows[2]["question_v1"] == cf
    assert lacks(cf, cf.replace("1W", "1D"), []) == "categories"


WORDS = {"size": "floor area in square metres", "age": "age, in years"}


def test_words_for_columns_are_as_fixed_as_names() -> None:
    recipe = RECIPE | {"column_words": WORDS}
    question = if_question(recipe, random.Random(0))
    assert "floor area in square metres" in question
    said = {
        "features": ["floor area in square metres", "town", "age, in years"],
        "ranges": {"floor area in square metres": [2, 41], "town": ["Bonn", "Ulm"]},
    }
    assert refined(question, recipe, endpoint(reworded, READ | said), Refined()) != question
    assert misread(recipe, question, endpoint(reworded)) == "features, ranges"
    lost = question.replace("floor area in", "area in")
    assert lacks(question, lost, [], WORDS).startswith("names")
    assert lacks(question, question.replace("“", "").replace("”", ""), [], WORDS) == ""
