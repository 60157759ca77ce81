"""DARE-bench's scorer: conformance in both readings, rewards, gold."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from places import tables
from vectors import read, source

pytest.importorskip("pandas")

from assay.family import BUILT_IN, as_answer, score_answer
from assay.task import (
    Answer,
    Task,
    TaskError,
)
from rewards.dare.read import MAX_COLUMNS
from rewards.dare.score import (
    clipped_r2,
    read_gold,
    score_table,
    score_table_row,
)
from rewards.weights import TableReward

TABLES = tables("dare")

CASES = "dare/conformance.jsonl.gz"
GOLD = TABLES["score_gold"]
GOOD = "row_id,y\n1,a\n2,b\n3,a\n"


def score(text: str | bytes | None, reading: str = "strict", **changes: Any) -> Any:
    data = text.encode() if isinstance(text, str) else text
    return score_table(read_gold(GOLD | changes), data, reading)


def _bytes(case: dict[str, Any]) -> bytes | None:
    if "prediction_b64" in case:
        return base64.b64decode(case["prediction_b64"])
    return None if case.get("prediction") is None else str(case["prediction"]).encode()


def test_every_conformance_case_in_both_readings() -> None:
    truths: dict[str, Any] = {}
    wrong, count = [], 0
    for case in read(CASES):
        if case["kind"] == "truth":
            truths[case["truth_id"]] = case
            continue
        truth = truths[case["truth_id"]]
        task = {k: truth[k] for k in ("task_type", "key_columns", "targets")}
        row = {"prediction_csv": case.get("prediction"), "reading": "release"}
        if "prediction_b64" in case:
            row = {"prediction_b64": case["prediction_b64"], "reading": "release"}
        task["truth_csv"] = truth["csv"]
        if count % 8:  # the others without the jail, which test_read looks at
            release = score_table(read_gold(task), _bytes(case), "release", trusted=True)
        else:
            release = score_table_row(task, row)
        strict = score_table(read_gold(task), _bytes(case), "strict", trusted=True)
        count += 2
        good = release.outcome == pytest.approx(case["score"], abs=1e-9)
        good &= release.parts["exists"] == case["prediction_exists"]
        good &= strict.outcome == pytest.approx(case["strict_score"], abs=1e-9)
        wrong += [] if good else [case["id"]]
    assert count > (1000 if source(CASES)[1] else 80) and wrong == []


@pytest.mark.parametrize(
    ("text", "outcome", "reward", "why"),
    [
        *TABLES["strict_pays_for_the_work_only"],
        ("c," * (MAX_COLUMNS + 5), 0.0, 0.0, "unreadable: a line has more than"),
    ],
)
def test_strict_pays_for_the_work_only(text: Any, outcome: float, reward: float, why: str) -> None:
    found = score(text)
    assert (found.outcome, found.reward) == (outcome, reward) and found.why.startswith(why)


@pytest.mark.parametrize(("truth", "said", "wanted"), TABLES["r2_by_hand"])
def test_r2_is_scikit_learns_clipped(truth: list[Any], said: list[Any], wanted: float) -> None:
    pd = pytest.importorskip("pandas")
    assert clipped_r2(pd.Series(truth), pd.Series(said)) == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("kind", ["class-IF", "class-MM"])
def test_a_label_composed_or_not_is_one_label_in_the_strict_reading(kind: str) -> None:
    truth = {"task_type": kind, "truth_csv": "row_id,y\nS\u00e3o,caf\u00e9\nb,x\n"}
    said = "row_id,y\nSa\u0303o,cafe\u0301\nb,x\n"
    assert score(said, **truth).outcome == 1.0
    assert score(said, "release", **truth).outcome == 0.0
    assert score(said.replace("cafe\u0301", "cafe"), **truth).outcome < 1.0


def test_several_targets_are_averaged_and_r2_is_logged_unclipped() -> None:
    truth = "row_id,y,z\n1,1,2\n2,2,4\n3,3,7\n"
    changes = {"truth_csv": truth, "targets": ["y", "z"], "task_type": "reg-MM"}
    found = score("row_id,y,z\n1,1,9\n2,2,9\n3,3,-9\n", **changes)
    assert found.outcome == 0.5 and found.parts["score/z"] == 0 and found.parts["r2_raw"] < -1
    missing = score("row_id,y\n1,1\n2,2\n3,3\n", **changes)
    assert missing.outcome == 0.5 and missing.reward == 0.5 and "missing_targets: z" in missing.why


def test_rows_give_the_prediction_in_one_of_three_ways(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text(GOOD)
    b64 = base64.b64encode(GOOD.encode()).decode()
    rows = {"prediction_csv": GOOD}, {"prediction_b64": b64}, {"prediction_path": str(path)}
    assert [score_table_row(GOLD, row).outcome for row in rows] == [1.0] * 3
    for row in ({}, {"prediction_path": str(tmp_path / "no")}):
        assert score_table_row(GOLD, row).why == "no_prediction"
    for row, why in (
        ({"prediction_b64": "*"}, "not base64"),
        ({"prediction_csv": 3}, "wanted text"),
        ({"prediction_csv": "", "prediction_path": ""}, "give one"),
    ):
        with pytest.raises(TaskError, match=why):
            score_table_row(GOLD, row)


@pytest.mark.parametrize(("changes", "why"), TABLES["gold_that_cannot_be_used_is_named"])
def test_gold_that_cannot_be_used_is_named(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(TaskError, match=why):
        read_gold(GOLD | changes)


TASK = Task("t", "table", "class-MM", "train", [], GOLD)


def test_trajectories_and_rows_score_alike() -> None:
    answer = Answer("x", False, {"prediction.csv": b"row_id,y\n1,a\n1,a\n1,a\n"})
    assert score_answer(TASK, answer).outcome == 0
    assert score_answer(TASK, answer, {"table": TableReward("release")}).outcome == 1


@pytest.mark.parametrize("text", ["a", "", 'a "b", c', "x\ny", "1e999"])
def test_the_audit_s_trusted_file_of_a_constant_scores_as_any_other(text: str) -> None:
    family, weights = BUILT_IN["table"], TableReward()
    answer = as_answer(family.audited.forms["every target"](TASK, text))
    found = family.score(TASK, answer, weights)
    assert family.audited.trusted is not None
    assert family.audited.trusted(TASK, answer, weights) == found
