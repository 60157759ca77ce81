"""The semantic extension on small hand-made samples, and its scorer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_gen.semantic import (
    hallu_rows,
    pii_rows,
    pii_samples,
    read_fava,
    rubric_rows,
    safety_rows,
)
from rewards.cdr.files import check_row
from rewards.cli import score_row
from rewards.structured import gold_response, score_structured

LETTER = "Ana Diaz (ana@acme.io) lives in Oslo; write to ana@acme.io before 3 May."


def mask(*parts: tuple[str, str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for value, label in parts:
        start = LETTER.index(value)
        found.append({"value": value, "label": label, "start": start, "end": start + len(value)})
    second = LETTER.rindex("ana@acme.io")
    found.append({"value": "ana@acme.io", "label": "EMAIL", "start": second, "end": second + 11})
    return found


PII = [
    {"id": 1, "source_text": LETTER, "language": "en", "privacy_mask": mask(
        ("Ana", "GIVENNAME"), ("Diaz", "SURNAME"), ("ana@acme.io", "EMAIL"), ("Oslo", "CITY"))},
    {"id": 2, "source_text": "Hola", "language": "es", "privacy_mask": []},
]  # fmt: skip
FAVA = [
    {"id": "f1", "annotated": "Oslo is in <entity><delete>Sweden</delete><mark>Norway</mark>"
     "</entity>. <invented>It has two suns.</invented> It is a city."},
    {"id": "f2", "annotated": "Oslo is a city."},
]  # fmt: skip
RUBRIC = [{"prompt": "Hi", "response": "Hello", "helpfulness": 3, "correctness": 4, "coherence": 4,
           "complexity": 0, "verbosity": 1}]  # fmt: skip
SAFETY = [
    {"prompt": "a", "response": "b", "prompt_label": "unsafe", "response_label": "safe",
     "violated_categories": "Violence, Fraud/Deception"},
    {"prompt": "c", "response": "d", "prompt_label": "safe", "response_label": "safe",
     "violated_categories": ""},
]  # fmt: skip


def all_rows() -> list[dict[str, Any]]:
    return [*pii_rows(pii_samples(PII)), *hallu_rows(FAVA), *rubric_rows(RUBRIC),
            *safety_rows(SAFETY)]  # fmt: skip


def test_rows_are_valid_and_gold_scores_one_everywhere() -> None:
    rows = all_rows()
    assert {r["source_track"] for r in rows} == {
        f"semantic_{d}_{s}" for d in ("pii", "hallu", "rubric", "safety")
        for s in ("atomic", "compositional")
    }  # fmt: skip
    assert len({r["instance_id"] for r in rows}) == len(rows)
    for row in rows:
        check_row(row, "row")
        for parsing in ("strict", "release"):
            score = score_structured(row, gold_response(row), parsing)
            assert (score.outcome, score.reward) == (1.0, 1.0), row["semantic_operator"]


def test_redaction_numbers_values_and_leaves_other_groups() -> None:
    rows = {r["semantic_operator"]: r["reference_text"] for r in pii_rows(pii_samples(PII))}
    assert rows["redact_contact"] == LETTER.replace("ana@acme.io", "[EMAIL_1]")
    assert rows["redact_all"] == (
        "[GIVENNAME_1] [SURNAME_1] ([EMAIL_1]) lives in [CITY_1]; write to [EMAIL_1] before 3 May."
    )


def test_fava_annotation_gives_passage_correction_and_spans() -> None:
    passage, corrected, spans = read_fava(FAVA[0]["annotated"])
    assert passage == "Oslo is in Sweden. It has two suns. It is a city."
    assert corrected == "Oslo is in Norway. It is a city."
    assert spans == [
        {"text": "Sweden", "type": "entity"}, {"text": "It has two suns.", "type": "invented"}
    ]  # fmt: skip


def test_partly_right_fields_earn_some_reward_and_no_outcome() -> None:
    row = next(r for r in rubric_rows(RUBRIC) if r["benchmark_split"] == "compositional")
    value = {"helpfulness": 3, "correctness": 4, "coherence": 4, "complexity": 0, "verbosity": 0}
    score = score_structured(row, json.dumps(value))
    assert score.outcome == 0.0
    assert score.reward == pytest.approx(0.1 + 0.3 * 0.8)
    assert score_structured(row, "Sure! " + json.dumps(value)).why == "no_answer"
    assert score_structured(row, "Sure! " + gold_response(row), "release").outcome == 1.0


@given(st.text(max_size=80))
def test_no_text_raises_or_beats_gold(text: str) -> None:
    for row in all_rows()[::4]:
        for parsing in ("strict", "release"):
            score = score_structured(row, text, parsing)
            assert score.reward is not None
            assert 0.0 <= score.reward <= 1.0


def test_the_score_command_takes_rows_of_both_families() -> None:
    row = all_rows()[-1]
    for family in ("refinement", "structured"):
        result = score_row(
            {"id": 1, "family": family, "task": row, "output": gold_response(row),
             "parsing": "release"}
        )  # fmt: skip
        assert result["outcome"] == 1.0
        assert {"rg", "status_match", "strict_equal"} <= set(result["parts"])
