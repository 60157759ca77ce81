"""The release's scorer: every shared vector, and its laws."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rewards.cdr.json_score import compare_json
from rewards.cdr.predictions import metric_row, score_prediction
from rewards.cdr.scorefile import score_file
from rewards.parse import normalise, normalise_lines, parse_release

VECTORS = Path(__file__).resolve().parents[3] / "shared" / "cdr" / "conformance"
shared = pytest.mark.skipif(
    not VECTORS.is_dir(), reason="the shared conformance vectors are not beside this checkout"
)


def vectors(kind: str) -> Iterator[dict[str, Any]]:
    with gzip.open(VECTORS / "scorer.jsonl.gz", "rt", encoding="utf-8", newline="\n") as lines:
        yield from (row for line in lines if (row := json.loads(line))["kind"] == kind)


@shared
def test_metric_vectors() -> None:
    for row in vectors("metric"):
        row |= {"scoring_profile": "text_refinement"}
        score = score_prediction(row, row["predicted_status"], row["predicted_text"])
        got = metric_row(score, row, row["predicted_text"])
        assert {name: got[name] for name in row["expected"]} == row["expected"], row["case"]


@shared
def test_parse_normalise_and_json_vectors() -> None:
    for row in vectors("parse"):
        read = parse_release(row["raw_response"])
        assert {"status": read.status, "clean_text": read.text} == row["expected"]
    for row in vectors("normalise"):
        text = row["input_text"]
        assert {"n1": normalise_lines(text), "n2": normalise(text)} == row["expected"]
    for row in vectors("json_compare"):
        match = compare_json(row["reference_text"], row["predicted_text"])
        assert {
            "json_parse_success": match.parsed, "json_exact_match": match.exact,
            "field_matches": match.fields, "field_accuracy": match.accuracy,
        } == row["expected"]  # fmt: skip


@shared
def test_score_file_vectors() -> None:
    for row in vectors("score_file"):
        for expected in row["expected"]:
            got = score_file(row["predictions"], expected["k"])
            for mine, theirs in zip(got.instances, expected["instances"], strict=True):
                assert {name: mine[name] for name in theirs} == theirs
            assert got.paper == expected["paper_metrics"], row["case"]
            assert got.summary["overall"] == expected["overall"]
            assert got.summary["num_order_groups"] == expected["num_order_groups"]
