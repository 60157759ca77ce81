"""Gold in harmless respellings scores 1 wherever the benchmark's own reading says so.

The training readings ask for the answer's form too: what they reject of it is listed here, and
nothing else is.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from demo_splits import demo_splits
from mixed_tasks import asked, objects, refinement, task_of, value_tables
from places import tables

from assay.family import BUILT_IN, Task
from data_gen.corpora import read_corpus
from data_gen.demo.settings import preset
from rewards.audit import Respelled, find_twins, respelled
from rewards.audit_laws import Audited, gold_of, scored
from rewards.cdr.audit import refinement_twin
from rewards.gold import Step, execute

pytestmark = pytest.mark.usefixtures("no_family_of_another_test")
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
    """And no content that the benchmark's own reading takes is rejected. (The published harness
    turns lists into text, and scores 0 for gold itself there.)"""
    if name == "table":
        pytest.importorskip("pandas")
    for kind, rows in found(name).items():
        listed = REJECTED[kind if name == "answer" else name]
        assert len(rows) >= 18
        rejected = {row.name for row in rows if row.training < row.tasks}
        assert rejected == (listed | FORM[name]) & {row.name for row in rows}
        for row in (row for row in rows if row.name not in FORM[name]):
            assert row.benchmark is not None and row.training >= row.benchmark, (kind, row)


# ---- twins: gold is computed again, and what is remembered fails


def demo() -> list[Task]:
    shipped = read_corpus()
    corpus = replace(shipped, documents=shipped.documents[::5])
    sizes = {"train_sft": 6, "train_rl": 6, "heldout": 12}
    return [*demo_splits(corpus, preset("medium", **sizes), 3)[0]]


def test_a_refinement_twin_is_executed_and_remembering_fails() -> None:
    made = [(task, refinement_twin(task, 1)) for task in demo()]
    pairs = [(task, twin) for task, twin in made if twin is not None]
    assert len(pairs) >= len(made) - 1
    for task, twin in pairs:
        steps = [Step(r["operator"], r["params"]) for r in twin.gold["recipe"]]
        run = execute(twin.gold["input_text"], steps)
        assert (run.status, run.text) == (twin.gold["status"], twin.gold["text"])
        assert twin.gold["input_text"] in twin.prompt[-1]["content"]
        assert twin.gold["input_text"] != task.gold["input_text"]
        assert twin.gold["recipe"] == task.gold["recipe"]
        assert refinement_twin(task, 1) == twin
        assert scored(twin, gold_of(BUILT_IN["refinement"], twin)).outcome == 1.0
        assert scored(twin, gold_of(BUILT_IN["refinement"], task)).outcome == 0.0


def test_a_table_twin_has_other_values() -> None:
    pytest.importorskip("pandas")
    family = BUILT_IN["table"]
    assert family.audited.twin is not None
    for task in value_tables():
        twin = family.audited.twin(task, 0)
        assert twin is not None and twin.files == {}
        assert scored(twin, gold_of(family, twin)).outcome == 1.0
        assert scored(twin, gold_of(family, task)).outcome < 1.0
    alike = task.gold | {"truth_csv": "row_id,mood\n1,a\n2,a\n"}
    assert family.audited.twin(replace(task, gold=alike), 0) is None


def test_tasks_that_name_a_plain_one_are_its_twins() -> None:
    def lake(name: str, answer: int, **meta: str) -> Task:
        gold = {"answer_type": "numeric_exact", "answer": answer}
        return Task(name, "answer", "lake", "train", asked(name), gold, meta=meta)

    for more, law in ((70, []), (0, ["twin"])):
        found = Audited(BUILT_IN["answer"])
        tasks = [lake(f"q{i}", i + 5) for i in range(6)]
        others = [lake(f"other{i}", i + 5 + more, plain=f"q{i}") for i in range(6)]
        find_twins(found, tasks + others)
        assert found.twins == 6 and [b.law for b in found.broken] == law
        assert found.recalled[0].mean(0) == float(not more)
