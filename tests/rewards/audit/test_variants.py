"""Gold in harmless respellings scores 1 wherever the benchmark's own reading says so.

The training readings ask for the answer's form too: what they reject of it is listed here, and
nothing else is.
"""

from __future__ import annotations

from functools import cache

import pytest
from mixed_tasks import objects, refinement, task_of, value_tables
from places import tables

from assay.family import BUILT_IN, Task
from rewards.audit.variants import Respelled, respelled, respelled_lines

TABLES = tables("rewards")

# The answer's form is part of the task in training: the release forgives it.
FORM = {k: set(v) for k, v in TABLES["respellings_rejected_for_their_form"].items()}
# What the benchmark's own reading rejects too, by family and answer type.
REJECTED = {k: set(v) for k, v in TABLES["respellings_rejected_by_the_benchmark_too"].items()}
ANSWERS = TABLES["variants_answers"]


def answers() -> list[Task]:
    return [
        task_of(f"{kind}{i}", "answer", {"answer_type": kind, "answer": value})
        for kind, values in ANSWERS.items()
        for i, value in enumerate(values)
    ]


@cache
def found(name: str) -> dict[str, list[Respelled]]:
    tasks = {
        "refinement": lambda: [refinement(i, "KEEP" if i % 2 else "DROP", i) for i in range(4)],
        "structured": objects,
        "table": value_tables,
        "answer": answers,
    }[name]()
    return respelled(BUILT_IN[name], tasks)


@pytest.mark.parametrize("name", FORM)
def test_gold_respelled_scores_one_or_is_listed(name: str) -> None:
    if name == "table":
        pytest.importorskip("pandas")
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
