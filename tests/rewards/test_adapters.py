"""A reward is one number: through `assay score`, the TRL adapter and verl's `compute_score`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mixed_tasks import table, task_of
from places import tables

from assay.task import Task
from rewards.adapters import FILES, trl_reward, verl_compute_score
from rewards.score import score_row
from rewards.weights import RefinementReward

TABLES = tables("rewards")

GOLD = {"input_text": "axb", "status": "KEEP", "text": "ab"}
TASK = Task("t", "refinement", "toy", "train", [{"role": "user", "content": "x"}], GOLD)
TEXT = json.dumps(TASK.to_json())
ANSWERS = TABLES["adapters_answers"]


@pytest.mark.parametrize("answer", ANSWERS)
def test_the_reward_is_the_same_wherever_it_is_computed(answer: str) -> None:
    row = {"id": "t", "family": "refinement", "task": GOLD, "output": answer}
    wanted = score_row(row)
    verl = verl_compute_score("refinement/toy", answer, TEXT, {})
    assert verl["score"] == wanted["reward"] and verl["acc"] == wanted["outcome"]
    assert verl["valid"] == 1.0
    assert trl_reward([answer], task=[TEXT], extra_column=[1]) == [wanted["reward"]]
    messages = [
        {"role": "assistant", "content": "calling"},
        {"role": "tool", "content": "42"},
        {"role": "assistant", "content": answer},
    ]
    assert trl_reward([messages], task=[TASK.to_json()]) == [wanted["reward"]]
    with pytest.raises(ValueError, match="1 completions for 2 tasks"):
        trl_reward([answer], task=[TEXT, TEXT])


def test_files_that_an_answer_left_are_scored() -> None:
    truth = table().gold["truth_csv"]
    text = json.dumps(table().to_json())
    for said in (truth, truth.replace("b", "a")):
        files = {"prediction.csv": said.encode()}
        row = {"id": "t", "family": "table", "task": table().gold, "output": "It is in the file."}
        wanted = score_row(row | {"prediction_csv": said})
        verl = verl_compute_score("d", "x", text, {"assay_text": "", FILES: files})
        assert (verl["acc"], verl["score"]) == (wanted["outcome"], wanted["reward"])
        assert trl_reward(["x"], task=[text], files=[files]) == [wanted["reward"]]
        assert (wanted["outcome"] == 1.0) is (said == truth)


def test_what_a_tool_printed_is_not_scored() -> None:
    """verl's `solution_str` is the whole decoded response, tool output included."""
    whole = f"let me print it {ANSWERS[0]}"
    said = {"assay_text": "I do not know"}
    assert verl_compute_score("d", whole, TEXT, said)["acc"] == 0.0
    assert verl_compute_score("d", "", TEXT, {"assay_text": ANSWERS[0]})["acc"] == 1.0
    cut = {"assay_text": ANSWERS[0], "assay_truncated": True}
    assert verl_compute_score("d", "", TEXT, cut)["score"] == 0.0


@pytest.mark.parametrize("truth", ["", "{", "[]", "null", json.dumps({"id": "t"}), None, 7])
def test_a_row_that_cannot_be_scored_is_marked_and_never_raises(truth: Any) -> None:
    assert verl_compute_score("d", "x", truth, {})["valid"] == 0.0


def test_every_row_of_a_family_has_the_same_keys() -> None:
    """Whatever the answer's type and whatever went wrong: verl stacks the rows of a batch."""
    parts = {"subtasks": [{"id": "a", "answer": 3}]}
    kinds = ("numeric_exact", "string_approximate", "odd")
    golds = [{"answer": 3, "answer_type": kind} for kind in kinds]
    rows = [
        verl_compute_score("d", said, json.dumps(task_of("t", "answer", gold | more).to_json()), {})
        for gold in golds
        for more in ({}, parts)
        for said in ("<answer>3</answer>", "", "<answer>[</answer>")
    ]
    assert rows[-1]["valid"] == 0.0 and "part_answered" in rows[0]
    assert {frozenset(row) for row in rows} == {frozenset(rows[0])}


def test_the_settings_of_a_run_reach_verl_s_reward() -> None:
    shares = {"format": 0.5, "status": 0.3, "progress": 0.2, "success": 0.0}
    plain, *found = (
        verl_compute_score("d", ANSWERS[2], TEXT, None, weights=weights)["score"]
        for weights in (None, {"refinement": shares}, {"refinement": RefinementReward(**shares)})
    )
    assert found[0] == found[1] != plain
