# ruff: noqa: E402
"""Questions in words, columns in words, short questions, and what an endpoint may not change."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("aiohttp")

from chat_server import serving

from assay.task import TaskError
from data_gen.certificate import Refused
from data_gen.dare.targets import FAMILIES, Looked, task_types
from data_gen.dare.wording import (
    MOST,
    OPENINGS,
    ROWS,
    check_series,
    described,
    facts_of,
    few_columns,
    if_question,
    phrase,
    phrases,
    plain_about,
    reword_rows,
    short_kinds,
)
from data_gen.rewording import FILE, Endpoint

WORDS = {"size": "floor area in square metres", "town": "town, as registered"}


def recipe(**more: Any) -> dict[str, Any]:
    """The recipe of a regression of prices on sizes, towns and ages; `more` replaces fields."""
    return {
        "save_file_type": "csv",
        "stated": ["filter", "model", "features", "seed", "order", "scale", "impute"],
        "column_type_inference": {"size": "numerical", "town": "categorical", "age": "numerical"},
        "numerical_features": ["size", "age"],
        "categorical_features": ["town"],
        "problem_type": "regression",
        "target": ["price"],
        "selected_features": ["size", "town", "age"],
        "expected_ranges": {"size": [2.5, 41], "town": ["Bonn", "Ulm"]},
        "imputer_type": "mean",
        "model_type": "Ridge",
        "random_state": 7,
    } | more


def test_a_question_says_every_step_that_is_stated_and_no_other() -> None:
    steps = {
        "seed": "random_state=7",
        "order": "in this order",
        "scale": "StandardScaler",
        "impute": "Fill missing",
    }
    said = if_question(recipe(), random.Random(1))
    assert all(word in said for word in (*steps.values(), "Ridge", "`size` must", "2.5", "41"))
    for step, word in steps.items():
        stated = [s for s in recipe()["stated"] if s != step]
        assert word not in if_question(recipe(stated=stated), random.Random(1))
    two = recipe(target=["price", "rent"], model_type="LinearSVC", save_file_type="sqlite")
    said = if_question(two, random.Random(1))
    assert "`row_id`, `price` and `rent`" in said and "MultiOutputClassifier" in said
    assert any(opening in said for opening in OPENINGS["join"])


def test_a_question_names_columns_in_words_where_there_are_some() -> None:
    said = if_question(recipe(column_words=WORDS), random.Random(1))
    assert WORDS["size"] in said and "`size`" not in said
    assert "`age`" in said and "`price`" in said and "metadata.txt" in said
    odd = ("1 decimals", "-9999", "at least -99 ", ".0.", "None", "nan", "inf", "  ", "`, and")
    for seed in range(60):
        text = if_question(recipe(column_words=WORDS if seed % 2 else {}), random.Random(seed))
        assert not [mark for mark in odd if mark in text]


PAGE = """nassCDS| R Documentation
---|---

### Description

Crashes. dead: not this line

### Usage

    data(nassCDS)

### Format

dead

    factor with levels `alive` `dead`

`weight`

    Observation weights, of uncertain
    accuracy.

  * **black:** =1 if black
  * **y82:**

  * **age:** in months

### Examples

    summary(weight)
"""


def test_descriptions_are_read_from_the_list_of_columns() -> None:
    found = described(PAGE, ["dead", "weight", "black", "y82", "age", "x"])
    assert found["weight"] == "Observation weights, of uncertain accuracy."
    assert found["black"] == "=1 if black" and found["dead"].startswith("factor with levels")
    assert found.keys() == {"dead", "weight", "black", "age"}
    assert "summary" not in plain_about(PAGE)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Number of children (under 7 years).", "Number of children"),
        ("post high school status: Enrolled in", "post high school status"),
        ("state cig. price, cents/pack", "state cig. price, cents/pack"),
        ("number of visits (Same as carData::Mroz['k618'])", "number of visits"),
        ("GDP per capita in 1960. From the bank.", "GDP per capita in 1960"),
        ("Occurrences of '!', in per cent", "Occurrences of '!', in per cent"),
        *dict.fromkeys(
            (
                "factor. Child's secondary school level.",
                "=1 if married when incarc.",
                "a numeric vector; note that -9999 is used for missing",
                "see below",
                "(log",
                "Occurrences of; the sign",
                "male*educ",
                "x " * 80,
            ),
            "",
        ).items(),
    ],
)
def test_a_phrase_is_the_first_clause_where_it_says_what_a_column_is(text: str, said: str) -> None:
    assert phrase(text) == said


def test_a_phrase_belongs_to_one_column_alone() -> None:
    texts = {"a": "height in cm", "b": "Height in cm", "c": "weight of the person", "d": "age"}
    assert phrases([*"abcd", "age"], texts) == {"c": "weight of the person"}


# --- short questions ---


def test_what_short_builds() -> None:
    plain = {"class": ("IF",), "reg": ("IF",)}
    assert short_kinds(FAMILIES, "") == plain
    assert short_kinds(task_types("MM,CF"), "MM,CF")["ts"] == ("CF",)
    for kinds in ("IF,MM", "series"):
        with pytest.raises(TaskError):
            short_kinds(task_types(kinds), kinds)
    assert task_types("class") == {"class": ("IF", "MM")}
    assert task_types("MM,XF") == {"class": ("MM",), "reg": ("MM",), "ts": ("XF",)}
    assert task_types("reg,series,IF,CF") == {"reg": ("IF",), "ts": ("CF",)}


def test_short_questions_have_few_plain_columns() -> None:
    frame = pd.DataFrame({f"c{i}": range(700) for i in range(12)})
    frame = frame.assign(**{"two words": range(700), "many": list(map(str, range(700))), "y": 1.5})
    kinds = {c: "categorical" if c == "many" else "numerical" for c in frame.columns}
    found = few_columns(Looked(frame, kinds), ["y"], random.Random(0))
    assert len(found.frame) == ROWS and "y" in found.kinds and len(found.kinds) == MOST + 1
    assert not {"two words", "many"} & {*found.kinds}
    for table, target in ((frame[["c1", "y"]], "y"), (frame, "two words")):
        with pytest.raises(Refused):
            few_columns(Looked(table, kinds), [target], random.Random(0))
    check_series(200, ["y", "year.of"])
    for rows, names in ((100_000, ["y"]), (200, ["y", "two words"])):
        with pytest.raises(Refused):
            check_series(rows, names)


# --- an endpoint's words ---

TEXT = if_question(recipe(save_file_type="sqlite", column_words=WORDS), random.Random(0))


def other(body: dict[str, Any]) -> str:
    """The question with another way to say where its files are."""
    text = str(body["messages"][0]["content"]).rpartition("\n")[2]
    return text.replace("There are a training file", "You are given the training file")


def reword(out: Path, said: Any) -> tuple[str, dict[str, Any]]:
    rows: list[dict[str, Any]] = [{"file_path": "s", "question_v1": TEXT, "question_v2": ""}]
    with serving(said) as (url, _):
        report = reword_rows(rows, Endpoint(url, "m", out / FILE), 0)
    return rows[0]["question_v1"], report


def test_what_decides_the_answer_stays_to_the_letter(tmp_path: Path) -> None:
    steps = [p for p in facts_of(TEXT).literals if p.startswith(("Filter", "Fit one"))]
    changes = {
        "`age`": "`years`",
        WORDS["size"]: "floor space",
        "41": "42",
        "'Ulm'": "'Cologne'",
        "Ridge": "Lasso",
        "random_state=7": "a fixed seed",
        ", in this order": "",
        "standardise": "scale",
        "with the mean": "with the median",
        "regression": "classification",
        "`prediction.csv`": "`answers.csv`",
        steps[0]: steps[1],
    }
    for number, (old, new) in enumerate(changes.items()):
        assert old in TEXT
        found, report = reword(tmp_path / str(number), lambda b: other(b).replace(old, new))  # noqa: B023
        assert (found, report["reworded"]) == (TEXT, 0), old
