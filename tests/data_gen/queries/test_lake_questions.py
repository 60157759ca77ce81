"""Questions over lakes: both ways of the builder agree, the words say every step, a rewording keeps
its facts, and what can be guessed or told two ways is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("pandas")
pytest.importorskip("duckdb")

from lake_files import open_lake, run, shelf_of
from places import ROOT

from data_gen.queries.lake import Lake
from data_gen.queries.lake_build import facts_of
from data_gen.queries.lake_proof import refusal, validate
from data_gen.queries.lake_questions import KINDS, NoQuestion, question_for
from data_gen.queries.ops import Figure, Join, Load, Source
from data_gen.queries.pipeline import LakeStep, Question
from data_gen.rewording import lacks, named

QUERIES = ROOT / "tests/data/queries"


@pytest.fixture(scope="module")
def lake() -> Lake:
    """Sales with amounts and years; two more tables that share the key, each without some rows; one
    calls it otherwise."""
    return open_lake(QUERIES / "shops")


@pytest.mark.parametrize("kind", KINDS)
def test_both_ways_agree_on_a_question_and_its_words_say_every_step(lake: Lake, kind: str) -> None:
    """A rewording keeps all facts: one that is taken away is missed."""
    proved = 0
    for draw in range(400):
        try:
            question = question_for(lake.tables, kind, draw, lake.links)
        except NoQuestion:
            continue
        facts, text = facts_of(question, lake.tables, "no such answer"), question.text
        assert ("a number or without a value of" in text) == (kind == "above_own"), text
        assert "{" not in text and "None" not in text and "  " not in text, text
        assert lacks(text, text, facts) is None, text
        for part in named(text, facts):
            assert lacks(text, text.replace(part, "it"), facts), (part, text)
        for together in (*facts.together, *facts.in_order):
            assert all(part in text for part in together), (together, text)
        values, _ = validate(question, lake.folder)
        if values is None:
            continue
        assert refusal(question, values, shelf_of(lake.folder)) is None, text
        assert text.count("matched with") == sum(isinstance(op, Join) for op in question.ops or ())
        proved += 1
        if proved == 2:
            break
    assert proved, kind


def test_a_year_is_asked_for_where_no_trend_gives_it() -> None:
    """Of a column that rises with the years, and of one that is lowest in their middle."""
    lake, trend = open_lake(QUERIES / "years"), "the first or the last years"
    drawn = (question_for(lake.tables, "best_group", draw) for draw in range(60))
    plain = [q for q in drawn if " with '" not in q.text]
    for words, why in (("highest", trend), ("lowest", ""), ("'Rising'", trend)):
        column = "'Rising'" if words == "'Rising'" else "'Bowl'"
        asked = next(q for q in plain if {words, column} <= {*re.split("[ .]", q.text)})
        assert validate(asked, lake.folder)[1] == why, words


# --- what is refused of a pipeline, and what one cannot do


FOLDER = QUERIES / "things"
THINGS, CENTS = Load(Source("things.csv")), Figure("Height", "mean", 2)


def made(value: str, kind: str = "numeric_exact", margin: str = "1.0", code: str = "") -> Question:
    read = "t = pd.read_csv('data/things.csv')"
    load = LakeStep("load", "Load", read, "Rows?", "len(t)", "numeric_exact", op=THINGS)
    last = LakeStep("finish", "Finish", code, "?", value, kind, op=CENTS)
    return Question("What?", (load, last), "s", margin)


MEAN = "float(t['Height'].mean())"


def test_what_is_refused() -> None:
    for question, why in (
        (made("float(t['Height'].iloc[0])"), "unstable"),
        (made(MEAN, margin="1e-5"), "ambiguous"),
        (made(MEAN, margin="-1.0"), "a group of one row"),
        (made("0"), "trivial"),
        (made("['a', 'a']", "list_exact"), "trivial"),
        (made("'What?'[:4]", "string_exact"), "trivial"),
        (made("float('nan')", "numeric_approximate"), "not finite"),
        (made("t.nothing"), "pipeline failed (AttributeError)"),
        (made("2e11 + 0.123"), "too few or too many digits"),
        (made("0.04"), "too few or too many digits"),
        (made("0.14"), ""),
        (made(MEAN, "numeric_approximate"), ""),
    ):
        assert validate(question, FOLDER)[1] == why
    mean = made(MEAN)
    keep = "t = t[t['Height'] > 0]"
    idle = LakeStep("filter", "Keep all", keep, "?", "len(t)", "numeric_exact", True)
    steps = (mean.steps[0], idle, mean.steps[1])
    assert validate(Question("What?", steps, "s"), FOLDER)[1] == "a step changes nothing"
    assert run(mean, FOLDER)["subtask-1"] == 300


def test_a_gold_pipeline_has_no_hand_on_the_builder(tmp_path: Path) -> None:
    """Code that got into a pipeline runs in the sandbox: no file of the host, no shared state; and
    no cell can end the comment that it stands in."""
    mark = tmp_path / "ran"
    tmp_path.chmod(0o777)
    attack = f"import sys, pathlib, data_gen\npathlib.Path({str(mark)!r}).write_text('x')"
    assert validate(made("len(t)", code=attack), FOLDER)[1].startswith("pipeline failed (")
    write = f"try:\n    open({str(mark)!r}, 'w')\nexcept OSError:\n    pass"
    run(made("len(t)", code=f"{write}\njson.dumps.__globals__['taint'] = 1"), FOLDER)
    assert "taint" not in run(made("len(t)"), FOLDER)
    steps = list(made(MEAN, "numeric_approximate").steps)
    for end in "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029":
        text = f"Keep x{end}import pathlib; pathlib.Path({str(mark)!r}).touch() #"
        steps.insert(1, LakeStep("clean", text, "t = t", "?", "len(t)", "numeric_exact"))
    question = Question("What?", tuple(steps), "s")
    assert validate(question, FOLDER)[1] == ""
    assert sum(line.startswith("# Keep x") for line in question.code().splitlines()) == 10
    assert not mark.exists()
