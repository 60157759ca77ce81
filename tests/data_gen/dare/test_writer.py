"""`--writer`: an endpoint says questions in other words, and what it may not change stays."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn")
pytest.importorskip("duckdb")
pytest.importorskip("aiohttp")

from chat_server import serving  # noqa: E402
from dare_recipes import house_recipe  # noqa: E402
from front import command  # noqa: E402

from assay.task import read_tasks  # noqa: E402
from data_gen.dare.wording import cf_question, if_question, mm_question, xf_question  # noqa: E402
from data_gen.dare.writer import (  # noqa: E402
    facts_of,
    lost_in,
    misread,
    opening_of,
    reword_rows,
)
from data_gen.rewording import FILE, Endpoint  # noqa: E402
from data_gen.tally import Refusal  # noqa: E402

RECIPE = house_recipe(
    save_file_type="sqlite",
    expected_ranges={"size": [2.5, 41], "town": ["Bonn", "Ulm"]},
    column_words={"size": "area in square metres"},
)


def question(seed: int) -> str:
    return if_question(RECIPE, random.Random(seed))


def asked(body: dict[str, Any]) -> str:
    return str(body["messages"][0]["content"]).rpartition("\n")[2]


def row(text: str) -> dict[str, Any]:
    return {"file_path": "shop_reg", "question_v1": text, "question_v2": ""}


def reword(out: Path, text: str, said: Any) -> tuple[str, dict[str, Any]]:
    rows = [row(text)]
    with serving(said) as (url, _):
        report = reword_rows(rows, {"shop_reg": RECIPE}, Endpoint(url, "m", out / FILE), 0)
    return rows[0]["question_v1"], report


def other(text: str) -> str:
    """The question with another way to say where its files are."""
    return text.replace("There are a training file", "You are given the training file")


@pytest.mark.parametrize("seed", range(4))
def test_another_description_is_kept(tmp_path: Path, seed: int) -> None:
    text = question(seed)
    found, report = reword(tmp_path, text, lambda body: other(asked(body)))
    assert found == other(text) != text
    assert (report["asked"], report["reworded"]) == (1, 1)
    assert (tmp_path / FILE).is_file() and len(opening_of(text)) > 40
    again = [row(text)]  # the journal answers: nobody listens there
    nobody = Endpoint("http://127.0.0.1:9/v1", "m", tmp_path / FILE)
    reword_rows(again, {"shop_reg": RECIPE}, nobody, 0)
    assert again[0]["question_v1"] == found


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("`age`", "`years`"),
        ("area in square metres", "floor space"),
        ("41", "42"),
        ("'Ulm'", "'Cologne'"),
        ("Ridge", "Lasso"),
        ("random_state=7", "a fixed seed"),
        (", in this order", ""),
        ("standardise", "scale"),
        ("with the mean", "with the median"),
        ("`prediction.csv`", "`answers.csv`"),
        ("regression", "classification"),
        ("ignoring unknown categories, ", ""),
    ],
)
def test_what_decides_the_answer_stays_to_the_letter(tmp_path: Path, old: str, new: str) -> None:
    text = question(0)
    assert old in text
    found, report = reword(tmp_path, text, lambda body: other(asked(body)).replace(old, new))
    assert found == text and report["reworded"] == 0 and sum(report["refused"].values()) == 1


def test_steps_stay_in_their_order(tmp_path: Path) -> None:
    text = question(0)
    fixed = facts_of(text, RECIPE).literals
    one, two = (next(p for p in fixed if p.startswith(s)) for s in ("Filter", "Fit one"))

    def swapped(body: dict[str, Any]) -> str:
        return other(asked(body)).replace(one, "<>").replace(two, one).replace("<>", two)

    found, report = reword(tmp_path, text, swapped)
    assert found == text and list(report["refused"]) == ["another order"]


def test_every_kind_of_question_has_its_steps_fixed() -> None:
    rng = random.Random(0)
    texts = {
        mm_question(RECIPE, rng): "Save `prediction.csv`",
        xf_question("load", rng): "Train on the CPU, predict `load`",
        cf_question("load", ["day"], ("1W", "mean"), rng): "First resample the training data",
        cf_question("load", ["day"], None, rng): "Forecast `load` at the later time points",
    }
    for text, start in texts.items():
        fixed = facts_of(text, None).literals
        assert any(part.startswith(start) for part in fixed)
        assert all(part in text for part in fixed)
        assert sum(map(len, fixed)) < len(text) - 40  # something is left to say otherwise


def test_a_build_has_its_questions_reworded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(1)
    frame = pd.DataFrame(
        {c: [rng.gauss(50, 9) for _ in range(300)] for c in ("size", "age", "tax")}
    )
    frame["price"] = 3 * frame["size"] - frame["age"] + [rng.gauss(0, 9) for _ in range(300)]
    (tmp_path / "in").mkdir()
    frame.round(2).to_csv(tmp_path / "in" / "houses.csv", index=False)
    command_line = ["dare", "--tables", str(tmp_path / "in"), "--target", "price"]
    command_line += ["--task-types", "MM", "--workers", "1", "--databases", "1"]
    run = command("tasks")
    assert run([*command_line, "--out", str(tmp_path / "plain")]) == 0
    (plain,) = read_tasks(tmp_path / "plain" / "train.jsonl")

    def said(body: dict[str, Any]) -> str:
        return asked(body).replace("The columns are described in", "Read about the columns in")

    with serving(said) as (url, seen):
        out = tmp_path / "out"
        words = ["--out", str(out), "--writer", url, "--writer-model", "m"]
        assert run([*command_line, *words]) == 0
    assert len(seen) == 1 and seen[0]["model"] == "m"
    (task,) = read_tasks(out / "train.jsonl")
    told = json.loads((out / "certificate.json").read_text())["dare"]["reworded"]
    assert (told["asked"], told["reworded"]) == (1, 1)
    assert "Read about the columns in `metadata.txt`" in str(task.prompt)
    assert task.prompt != plain.prompt and task.gold == plain.gold
    capsys.readouterr()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--writer", "localhost:1"], "give a URL"),
        (["--writer", "http://localhost:1/v1"], "--writer-model NAME"),
        (["--writer", "http://localhost:1/v1", "--writer-model", "m", "--short"], "--short"),
    ],
)
def test_a_writer_that_cannot_be_used_is_said_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    told = ["dare", "--tables", str(tmp_path), "--out", str(tmp_path / "o")]
    assert command("tasks")([*told, *words]) == 2
    assert said in capsys.readouterr().err


READ = {
    "model": "Ridge",
    "random_state": 7,
    "features": ["area in square metres", "town", "age"],
    "ranges": {"area in square metres": [2.5, 41], "town": ["Bonn", "Ulm"]},
    "keep_missing": True,
    "imputer": "mean",
    "scale": True,
}


def freely(body: dict[str, Any], read: dict[str, Any]) -> str:
    """An endpoint that says a step otherwise, and reads a recipe back."""
    said = str(body["messages"][0]["content"])
    if said.startswith("Read the instruction"):
        return f"```json\n{json.dumps(read)}\n```"
    return asked(body).replace("Filter the training rows by", "Keep only training rows that meet")


def test_steps_in_other_words_are_kept_where_the_recipe_is_read_back(tmp_path: Path) -> None:
    text = question(0)
    found, report = reword(tmp_path, text, lambda body: freely(body, READ))
    assert found == text.replace("Filter the training rows by", "Keep only training rows that meet")
    assert found != text and report["reworded"] == 1
    assert len((tmp_path / FILE).read_text("utf-8").splitlines()) == 2  # both are journalled


@pytest.mark.parametrize(
    "change",
    [
        {"model": "Lasso"},
        {"random_state": None},
        {"features": ["town", "area in square metres", "age"]},
        {"keep_missing": False},
    ],
)
def test_steps_that_read_otherwise_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    text = question(0)
    found, report = reword(tmp_path, text, lambda body: freely(body, READ | change))
    assert found == text and report["reworded"] == 0
    (refusal,) = report["refusals"].values()
    assert f"not read back: {next(iter(change))}" in refusal["why"]


# --- what a free rewording of an IF question must hold

PLAIN = house_recipe(stated=["filter", "model", "features", "seed", "order", "scale"])
ASKED = if_question(PLAIN, random.Random(0))
PLAIN_READ = {
    "model": "Ridge",
    "random_state": 7,
    "features": ["size", "town", "age"],
    "ranges": {"size": [2.0, 41.0], "town": ["Bonn", "Ulm"]},
    "keep_missing": True,
    "imputer": None,
    "scale": True,
}


def coded(why: Refusal | None) -> str:
    """A refusal in words, "" for none."""
    return why.coded() if why else ""


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
    lowered = ASKED.replace("One-hot", "one-hot")
    changed = lowered.replace(old, new).replace("Numeric: `size`", "Numeric: `size`")
    assert changed != lowered
    found = lost_in(lowered, changed, ["size", "town", "age"])
    assert coded(found).startswith(why) if why else True


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
def test_a_rewrite_that_reads_otherwise_is_found(change: dict[str, Any]) -> None:
    said = f"Sure:\n```json\n{json.dumps(PLAIN_READ | change)}\n```"
    assert misread(PLAIN, said) == next(iter(change))


def test_a_rewrite_that_reads_as_the_recipe_is_proved() -> None:
    assert misread(PLAIN, json.dumps(PLAIN_READ)) == ""
    for said in ('["no object"]', "nothing", "{" * 3000, '{"features": NaN}'):
        assert misread(PLAIN, said)


def test_a_resampling_is_kept() -> None:
    cf = cf_question("load", ["day"], ("1W", "mean"), random.Random(0))
    assert coded(lost_in(cf, cf.replace("1W", "1D"), [])).startswith("categories")


WORDS = {"size": "floor area in square metres", "age": "age, in years"}


def test_words_for_columns_are_as_fixed_as_names() -> None:
    recipe = PLAIN | {"column_words": WORDS}
    question = if_question(recipe, random.Random(0))
    assert "floor area in square metres" in question
    said = {
        "features": ["floor area in square metres", "town", "age, in years"],
        "ranges": {"floor area in square metres": [2, 41], "town": ["Bonn", "Ulm"]},
    }
    assert misread(recipe, json.dumps(PLAIN_READ | said)) == ""
    assert misread(recipe, json.dumps(PLAIN_READ)) == "features, ranges"
    lost = question.replace("floor area in", "area in")
    assert coded(lost_in(question, lost, [], WORDS)).startswith("names")
    assert lost_in(question, question.replace("“", "").replace("”", ""), [], WORDS) is None
