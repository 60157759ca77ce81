"""Gold in harmless respellings scores 1 wherever the benchmark's own reading says so.

The training readings ask for the answer's form too: what they reject of it is listed here, and
nothing else is.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import pytest
from demo_splits import demo_splits
from mixed_tasks import asked, objects, refinement, task_of, value_tables
from places import tables

from assay import family as families
from assay.family import BUILT_IN, Audit, Family, Score, Task
from data_gen.corpora import read_corpus
from data_gen.demo.settings import preset
from rewards.audit import Respelled, find_twins, respelled, respelled_lines
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


def test_the_table_says_who_rejects() -> None:
    rows = [("spaces", 2, 2, 2), ("fence", 2, 0, 2), ("quotes", 2, 0, 0)]
    made = [Respelled(*row) for row in rows]
    one, two = respelled_lines({"k": made, "own": [Respelled("period", 1, 0, None)]})
    assert "k: 1 of 3 score 1; not: fence (training only), quotes (the benchmark's own" in one
    assert "own: 0 of 1 score 1; not: period (rejected)" in two


# ---- twins: gold is computed again, and what is remembered fails


def twinned(family: Family, tasks: list[Task]) -> Audited:
    found = Audited(family)
    find_twins(found, tasks)
    return found


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


@pytest.mark.parametrize(
    ("kind", "values"), [("class-MM", "abcab"), ("reg-MM", (1.5, 2.0, -3.0, 4.0, 9.0))]
)
def test_a_table_twin_has_other_values(kind: str, values: tuple[object, ...]) -> None:
    pytest.importorskip("pandas")
    truth = "row_id,y\n" + "".join(f"{i},{v}\n" for i, v in enumerate(values, 1))
    gold = {"task_type": kind, "truth_csv": truth, "key_columns": ["row_id"], "targets": ["y"]}
    task = Task("t", "table", kind, "train", asked("Predict `y`."), gold)
    twin = BUILT_IN["table"].audited.twin(task, 0)  # type: ignore[misc]
    assert twin is not None and twin.files == {}
    assert scored(twin, gold_of(BUILT_IN["table"], twin)).outcome == 1.0
    assert scored(twin, gold_of(BUILT_IN["table"], task)).outcome == 0.0
    one = {**gold, "truth_csv": "row_id,y\n1,a\n2,a\n"}
    if kind == "class-MM":
        assert BUILT_IN["table"].audited.twin(replace(task, gold=one), 0) is None  # type: ignore[misc]


def test_tasks_that_name_a_plain_one_are_its_twins() -> None:
    def lake(name: str, answer: object, **meta: str) -> Task:
        gold = {"answer_type": "numeric_exact", "answer": answer}
        return Task(name, "answer", "lake", "train", asked(name), gold, meta=meta)

    tasks = [lake(f"q{i}", i + 5) for i in range(6)]
    good = twinned(BUILT_IN["answer"], tasks + [_other(t, 70) for t in tasks])
    assert good.twins == 6 and not good.broken
    assert good.recalled[0].mean(0) == 0.0
    same = twinned(BUILT_IN["answer"], tasks + [_other(t, 0) for t in tasks])
    assert [b.law for b in same.broken] == ["twin"]
    assert "remembered gold scores 1.000 on 6 twins" in same.broken[0].why


def _other(task: Task, more: int) -> Task:
    gold = {**task.gold, "answer": task.gold["answer"] + more}
    return replace(task, id=f"{task.id}-other", gold=gold, meta={"plain": task.id})


def test_an_own_family_brings_its_twin() -> None:
    def score(task: Task, answer: object) -> Score:
        return Score.of(json.loads(answer.text or "0") == task.gold["n"])  # type: ignore[attr-defined]

    def twin(task: Task, seed: int) -> Task | None:
        if task.id == "t0":
            return None
        if task.id == "t9":
            raise KeyError("n")
        return replace(task, id=f"{task.id}-twin", gold={"n": task.gold["n"] + 1})

    family = Family("own", score, gold=lambda task: str(task.gold["n"]), audit=Audit(twin=twin))
    families._added["own"] = family
    tasks = [Task(f"t{i}", "own", "k", "train", [], {"n": i}) for i in range(9)]
    found = twinned(family, tasks)
    assert found.twins == 8 and not found.broken
    bad = twinned(family, [replace(tasks[0], id="t9")])
    assert [b.law for b in bad.broken] == ["twin"] and "raised KeyError" in bad.broken[0].why
