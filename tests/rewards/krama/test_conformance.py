"""Both readings of the answer scorer against the conformance vectors, and every visible task."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from krama_data import cases

from rewards.krama import release as release
from rewards.krama.answer import score_response
from rewards.krama.episode import untagged
from rewards.krama.judge import scripted
from rewards.krama.release import str_to_float
from rewards.score import score_lines


def agrees(got: Any, want: Any) -> bool:
    if isinstance(want, dict) and "raises" in want:
        return got == want
    if got is None or want is None or isinstance(got, dict):
        return got is want
    got, want = float(got), float(untagged(want))
    if not math.isfinite(want):
        return str(got) == str(want)
    return abs(got - want) <= 1e-9 * abs(want) or max(abs(got), abs(want)) < 1e-70


def outcome(compute: Callable[[], Any]) -> Any:
    try:
        return compute()
    except Exception as error:
        return {"raises": type(error).__name__}


def metrics(case: dict[str, Any]) -> dict[str, Any]:
    judge = scripted(case["judge"])
    target, response = untagged(case["target"]), untagged(case["response"])
    return release.harness(case["answer_type"], target, response, judge)


def test_release_metrics_of_every_case() -> None:
    for case in cases("task"):
        expected, got = case["expected"], metrics(case)
        assert set(got) == set(expected["harness"])
        wrong = [k for k, v in expected["harness"].items() if not agrees(got[k], v)]
        if "direct" in expected:
            answer = untagged(case["response"]["answer"])
            judge = scripted(case["judge"])
            typed = release.direct(case["answer_type"], untagged(case["target"]), answer, judge)
            wrong += [k for k, v in expected["direct"].items() if not agrees(typed[k], v)]
        assert wrong == [], case["id"]


def test_release_totals() -> None:
    for case in (*cases("task"), *cases("aggregate")):
        items = case.get("items", [case])
        got = outcome(lambda items=items: release.total([metrics(item) for item in items]))
        assert agrees(got, case["expected"]["total"]), case["id"]


def rows_of(reading: str) -> list[dict[str, Any]]:
    def row(case: dict[str, Any]) -> dict[str, Any]:
        gold = {"answer_type": case["answer_type"], "answer": case["target"]}
        said = {"judge": case["judge"], "response": case["response"]}
        return {"id": case["id"], "family": "answer", "reading": reading, "task": gold, **said}

    return [row(case) for case in cases("task")]


def _other_number(case: dict[str, Any]) -> bool:
    """Another whole number within Table 3's tolerance, which no reward is paid for."""
    want, said = case["target"], case["response"]["answer"]
    return isinstance(want, int) and isinstance(said, int) and want != said


def test_assay_score_agrees_with_table3() -> None:
    scored = list(score_lines(json.dumps(row) for row in rows_of("table3")))
    wrong = [
        case["id"]
        for case, row in zip(cases("task"), scored, strict=True)
        if not agrees(row["outcome"], case["table3"])
        or (row["outcome"] is not None and not 0 <= row["reward"] <= row["outcome"])
        or (row["outcome"] == 1.0 and row["reward"] != 1.0 and not _other_number(case))
    ]
    assert wrong == []
    for case in cases("aggregate"):
        total = 0.0
        for item in case["items"]:
            kind, judge = item["answer_type"], scripted(item["judge"])
            target, response = untagged(item["target"]), untagged(item["response"])
            total += score_response(kind, target, response, "table3", judge).outcome or 0.0
        assert agrees(total / len(case["items"]), case["table3"])


def test_assay_score_agrees_with_the_release() -> None:
    """What the release cannot total (it raises, or prints NaN) has no outcome."""
    scored = list(score_lines(json.dumps(row) for row in rows_of("release")))
    for case, row in zip(cases("task"), scored, strict=True):
        want = case["expected"]["total"]
        if isinstance(want, dict):
            assert row["outcome"] is None, case["id"]
        else:
            assert agrees(row["outcome"], want), case["id"]


def test_number_helper() -> None:
    for case in cases("helper"):
        assert agrees(outcome(lambda case=case: str_to_float(case["input"])), case["expected"])
