"""What an endpoint proposes is read field by field; nothing that it says ends a build."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pandas")
pytest.importorskip("duckdb")

from data_gen.dare.proposals import FIELDS, STEPS, Proposal, read
from data_gen.dare.wishes import FAMILIES
from data_gen.krama.lakes.choices import FIELDS as LAKE_FIELDS
from data_gen.krama.lakes.lake import Lake, open_lake
from data_gen.krama.lakes.pipeline import Question
from data_gen.krama.lakes.questions import KINDS, proposed_question
from data_gen.krama.lakes.steps import NoQuestion
from data_gen.proposing import MOST, Outcome, Unfit, kind, read_reply, told

WORDS = ["class", "reg", "series", "IF", "MM", "XF", "Ridge", "mean", "1W", "Height", "Kind", "a"]
WORDS += [
    "highest",
    "above",
    "things.csv",
    "after_comma",
    "slope",
    *KINDS,
    *FIELDS,
    *STEPS,
    "column",
]
PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, 1, 2, 3, -1, 10**400, 0.5, 28.0, 1e300, "\ud83d", ""]),
    st.sampled_from(WORDS),
)
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from([*WORDS, "is", "file", "brings"]), inner, max_size=3),
    ),
    max_leaves=6,
)


@given(st.text(max_size=200) | VALUES.map(json.dumps))
@settings(deadline=None, max_examples=200)
def test_any_reply_is_read(text: str) -> None:
    drafts, odd = read_reply({"request": "r", "text": text, "stop": "eos"}, "t")
    assert all(isinstance(draft, dict) and draft[""] > 0 for draft in drafts)
    for one in odd:
        json.dumps(one.row().row()).encode("utf-8")
        assert one.what.encode("utf-8") is not None and one.why


@given(st.dictionaries(st.sampled_from([*FIELDS, "code"]), VALUES, max_size=7))
@settings(deadline=None, max_examples=300)
def test_any_table_proposal_is_read_or_refused_with_a_reason(row: dict[str, Any]) -> None:
    try:
        assert isinstance(read(row | {"": 1}, FAMILIES), Proposal)
    except Unfit as error:
        assert str(error)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    folder = tmp_path_factory.mktemp("lake")
    lines = ["Kind,Area,Year,Height"] + [
        f"{'abcdefgh'[i * 7 % 8]},{20 + (i * 37) % 101 / 3:.3f},{1990 + i % 25},"
        f"{i * i % 89 / 7:.3f}"
        for i in range(200)
    ]
    (folder / "things.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return open_lake(folder)


@given(
    st.sampled_from(list(KINDS)),
    st.dictionaries(st.sampled_from(LAKE_FIELDS[2:]), VALUES, max_size=6),
    st.sampled_from(["Height", "Area", "Year", "Kind"]),
)
@settings(deadline=None, max_examples=300)
def test_any_lake_draft_is_a_question_or_refused(
    lake: Lake, name: str, row: dict[str, Any], measure: str
) -> None:
    draft = {"measure": measure, **row, "kind": name, "file": "things.csv", "": 1}
    try:
        _, question = proposed_question(lake.tables, draft, 1, lake.links)
        assert isinstance(question, Question)
    except (Unfit, NoQuestion):
        pass


def test_a_reply_may_chatter_and_holds_so_many() -> None:
    rows = [{"task": "reg"}] * (MOST + 2)
    text = f"<think>[1]</think>Sure:\n```json\n{json.dumps({'proposals': rows})}\n```\nBye."
    drafts, odd = read_reply({"request": "r", "text": text, "stop": "eos"}, "t")
    assert len(drafts) == MOST and [one.number for one in odd] == [MOST + 1, MOST + 2]
    cut, why = read_reply({"request": "r", "text": '{"proposals": [', "stop": "length"}, "t")
    assert cut == [] and why[0].why == "cut off before its end"


def test_outcomes_are_counted_by_kind() -> None:
    rows = [Outcome("t", 1, "a"), Outcome("t", 2, "b", "no column 'x'; its columns: a, b")]
    rows += [Outcome("t", 3, "c", "no column 'y'; its columns: a, b"), Outcome("t", 0, "", "odd")]
    found = told("m", 4, rows)
    assert (found["requests"], found["proposals"], found["accepted"]) == (4, 3, 1)
    assert found["refused"] == {"no column …": 2, "odd": 1}
    assert kind("feature 'tax' gives the target away (a line)") == "feature … gives the target away"


def test_a_surrogate_of_a_model_ends_nothing(tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    from chat_server import serving

    from data_gen.asking import Endpoint, answers

    with serving(lambda body: 'broken \ud83d {"proposals": [{"task": "\ud83d"}]}') as (url, _):
        endpoint = Endpoint(url, "m", tmp_path / "j.jsonl", pause_s=0.0)
        (reply,) = answers(endpoint, [("p", 1)])
    drafts, _ = read_reply(reply, "t")
    again = Endpoint("http://127.0.0.1:9/v1", "m", tmp_path / "j.jsonl")
    assert answers(again, [("p", 1)]) == [reply] and len(drafts) == 1


def test_an_answer_that_a_filter_keeps_back_ends_nothing(tmp_path: Path) -> None:
    """The one request has no words; the others are answered, and nobody is asked twice."""
    pytest.importorskip("aiohttp")
    from chat_server import serving

    from data_gen.asking import Endpoint, answers

    def reply(body: Any) -> Any:
        bad = "bad" in body["messages"][0]["content"]
        choice = {"message": {"content": ""}, "finish_reason": "content_filter"}
        return {"choices": [choice]} if bad else "good"

    with serving(reply) as (url, seen):
        endpoint = Endpoint(url, "m", tmp_path / "j.jsonl", pause_s=0.0)
        for _ in range(2):
            found = answers(endpoint, [("bad", 1), ("fine", 1)])
    assert [(r["text"], r["stop"]) for r in found] == [("", "content_filter"), ("good", "eos")]
    assert len(seen) == 2
