"""Gold in harmless respellings scores 1 wherever the benchmark's own reading says so.

The training readings ask for the answer's form too: what they reject of it is listed here, and
nothing else is.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from mixed_tasks import asked, refinement
from places import tables

from assay.family import BUILT_IN, Task
from rewards.audit.variants import Respelled, respelled, respelled_lines

TABLES = tables("rewards")

# The answer's form is part of the task in training: the release forgives it.
FORM = {k: set(v) for k, v in TABLES["respellings_rejected_for_their_form"].items()}
# What the benchmark's own reading rejects too, by family and answer type.
REJECTED = {k: set(v) for k, v in TABLES["respellings_rejected_by_the_benchmark_too"].items()}
ANSWERS = TABLES["variants_answers"]


def structured() -> list[Task]:
    fields: list[dict[str, Any]] = [
        {"helpfulness": 3, "correctness": 4, "note": "Fine"},
        {"safe": True, "categories": ["s1", "s2"], "count": 2},
    ]
    return [
        Task(f"j{i}", "structured", "json", "t", asked("x"), _reference(row))
        for i, row in enumerate(fields)
    ]


def _reference(row: dict[str, Any]) -> dict[str, Any]:
    return {"input_text": "a", "reference_text": json.dumps(row), "reference_json": row}


def table() -> list[Task]:
    pytest.importorskip("pandas")
    numbers = "row_id,y\n" + "".join(f"{i},{i * 37 % 11 / 7:.4f}\n" for i in range(1, 25))
    whole = "row_id,y\n" + "".join(f"{i},{i * 37 % 11}\n" for i in range(1, 25))
    labels = "row_id,mood\n" + "".join(f"{i},{'abc'[i * i % 3]}\n" for i in range(1, 25))
    return [
        Task(
            f"{kind}{number}",
            "table",
            "table",
            "t",
            asked("x"),
            {"task_type": kind, "truth_csv": truth, "key_columns": ["row_id"], "targets": [name]},
        )
        for number, (kind, truth, name) in enumerate(
            (
                ("reg-IF", numbers, "y"),
                ("reg-MM", whole, "y"),
                ("class-IF", labels, "mood"),
            )
        )
    ]


def answers() -> list[Task]:
    return [
        Task(f"{k}{i}", "answer", "lake", "t", asked("x"), {"answer_type": k, "answer": v})
        for k, values in ANSWERS.items()
        for i, v in enumerate(values)
    ]


@cache
def found(name: str) -> dict[str, list[Respelled]]:
    tasks = {
        "refinement": lambda: [refinement(i, "KEEP" if i % 2 else "DROP", i) for i in range(4)],
        "structured": structured,
        "table": table,
        "answer": answers,
    }[name]()
    return respelled(BUILT_IN[name], tasks)


@pytest.mark.parametrize("name", FORM)
def test_gold_respelled_scores_one_or_is_listed(name: str) -> None:
    for kind, rows in found(name).items():
        listed = REJECTED[kind if name == "answer" else name]
        assert len(rows) >= 18
        rejected = {row.name for row in rows if row.training < row.tasks}
        assert rejected == (listed | FORM[name]) & {row.name for row in rows}


@pytest.mark.parametrize("name", FORM)
def test_training_rejects_only_the_form_of_what_the_benchmark_takes(name: str) -> None:
    """No content that the benchmark's own reading takes is rejected. (The published harness turns
    lists into text, and scores 0 for gold itself there.)"""
    for kind, rows in found(name).items():
        for row in rows:
            assert row.benchmark is not None
            if row.name not in FORM[name]:
                assert row.training >= row.benchmark, (kind, row)


def test_the_table_says_who_rejects() -> None:
    said = respelled_lines(
        {
            "k": [
                Respelled("spaces", 2, 2, 2),
                Respelled("fence", 2, 0, 2),
                Respelled("quotes", 2, 0, 0),
            ],
            "own": [Respelled("period", 1, 0, None)],
        }
    )
    assert said == [
        "  gold respelled, k: 1 of 3 score 1; not: fence (training only), quotes (the benchmark's "
        "own reading too)",
        "  gold respelled, own: 0 of 1 score 1; not: period (rejected)",
    ]
