"""The release's scorer: every shared vector, and its laws."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import tables
from vectors import needs_full_vectors, vectors

from rewards.cdr.release_scores import compare_json, parse_json, score_file, score_prediction
from rewards.parse import normalise, normalise_lines, parse_release
from rewards.score import score_row

TABLES = tables("cdr")


def test_metric_vectors() -> None:
    for row in vectors("scorer", "metric"):
        row |= {"scoring_profile": "text_refinement"}
        got, _ = score_prediction(row, row["predicted_status"], row["predicted_text"])
        assert {name: got[name] for name in row["expected"]} == row["expected"], row["case"]


def test_parse_normalise_and_json_vectors() -> None:
    for row in vectors("scorer", "parse"):
        read = parse_release(row["raw_response"])
        assert {"status": read.status, "clean_text": read.text} == row["expected"]
    for row in vectors("scorer", "normalise"):
        text = row["input_text"]
        assert {"n1": normalise_lines(text), "n2": normalise(text)} == row["expected"]
    for row in vectors("scorer", "json_compare"):
        match = compare_json(row["reference_text"], row["predicted_text"])
        assert {
            "json_parse_success": match.parsed,
            "json_exact_match": match.exact,
            "field_matches": match.fields,
            "field_accuracy": match.accuracy,
        } == row["expected"]


@needs_full_vectors
def test_score_file_vectors() -> None:
    for row in vectors("scorer", "score_file"):
        for expected in row["expected"]:
            got = score_file(row["predictions"], expected["k"])
            for mine, theirs in zip(got.instances, expected["instances"], strict=True):
                assert {name: mine[name] for name in theirs} == theirs
            assert got.paper == expected["paper_metrics"], row["case"]
            assert got.summary["overall"] == expected["overall"]
            assert got.summary["num_order_groups"] == expected["num_order_groups"]


PIECES = TABLES["release_files_pieces"]


@given(st.lists(st.sampled_from(PIECES), max_size=12))
def test_the_fast_readings_are_the_published_patterns(pieces: list[str]) -> None:
    text = "".join(pieces)
    whole = re.search(r"<clean_text>(.*?)</clean_text>", text, re.DOTALL | re.IGNORECASE)
    assert parse_release(text).text == (whole.group(1) if whole else text.strip())
    tag = r"<(clean_text|output|result|answer)>(.*?)</\1>"
    tagged = re.search(tag, text, re.DOTALL | re.IGNORECASE)
    if tagged and tagged.group(2).strip() == '{"a": 1}':
        assert parse_json(text) == {"a": 1}


def test_a_row_that_names_no_profile_is_json_when_its_reference_is() -> None:
    task = {"input_text": "p", "reference_status": "KEEP", "reference_text": '["b", "A"]'}
    row = {"id": 1, "family": "refinement", "task": task, "output": '["a ", "B"]'}
    assert score_row(row | {"parsing": "release"})["outcome"] == 1.0
    assert score_row(row)["outcome"] == 1.0
    other = row | {"output": 'so: ["a", "b"]'}
    assert score_row(other | {"parsing": "release"})["outcome"] == 1.0
    assert score_row(other)["why"] == "no_answer"


@pytest.mark.parametrize(("answer", "value"), TABLES["tags_are_read_in_the_order_of_the_release"])
def test_tags_are_read_in_the_order_of_the_release(answer: str, value: object) -> None:
    assert parse_json(answer) == value


@pytest.mark.parametrize(
    ("status", "text", "success", "same_text", "accuracy"), TABLES["answers_to_a_mixed_row"]
)
def test_a_mixed_row_is_wrong_with_the_wrong_status_and_shows_the_text_it_compares(
    status: str, text: str, success: bool, same_text: bool, accuracy: float
) -> None:
    said = {"prompt_variant_index": 0, "predicted_status": status, "predicted_clean_text": text}
    row = TABLES["mixed_row"] | {"instance_id": "1", "variant_predictions": [said]}
    (found,) = score_file([row], 0).variants
    assert (found["recipe_success"], found["norm_text_exact_match"]) == (success, same_text)
    assert found["field_accuracy"] == accuracy
