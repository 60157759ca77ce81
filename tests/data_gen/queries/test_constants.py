"""No answer given without looking pays: the watch over a set, the search, and the audit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.task import Task
from data_gen.audit import audit_answers
from data_gen.queries.pays import MOST, Watch, best_constants, paying
from rewards.krama.answer import score_response


def task(number: int, kind: str, answer: Any, benchmark: str = "lake") -> Task:
    gold = {"answer_type": kind, "answer": answer}
    return Task(
        id=f"t{number}",
        family="answer",
        track="lake",
        split="train",
        prompt=[{"role": "user", "content": f"q{number}"}],
        gold=gold,
        meta={"benchmark": benchmark},
    )


DRAWS = 200
DRAWN: dict[str, list[Any]] = {
    "numeric_exact": [i % 9 for i in range(DRAWS)],
    "string_exact": ["yes" if i % 3 else f"name {i}" for i in range(DRAWS)],
    "numeric_approximate": [0.5 + (i * 7 % 50) / 100 for i in range(DRAWS)],
    "list_exact": [["a", "b"] if i % 4 else ["a", f"n{i}", "c"] for i in range(DRAWS)],
    "list_approximate": [[10.0 + i % 5, 20.0, 30.0 + i] for i in range(DRAWS)],
    "string_approximate": ["Acton, Fresh" if i % 2 else f"Town {i}, Salt" for i in range(DRAWS)],
}


@pytest.mark.parametrize("kind", DRAWN)
def test_a_watched_set_pays_no_constant(kind: str) -> None:
    watch = Watch(kind)
    kept = [answer for answer in DRAWN[kind] if watch.admits(answer)]
    plain = best_constants([task(i, kind, a) for i, a in enumerate(DRAWN[kind])])[kind]
    best = best_constants([task(i, kind, a) for i, a in enumerate(kept)])[kind]
    assert plain["reward"]["mean"] > MOST  # there was something to keep out
    most = max(MOST, 1.5 / len(kept))
    assert best["reward"]["mean"] <= most + 1e-9, best


def test_zero_scores_half_and_earns_nothing() -> None:
    score = score_response("numeric_approximate", 12.5, {"answer": 0})
    assert (score.outcome, score.reward) == (0.5, 0.0)


@pytest.mark.parametrize("k", [2, 3, 4])
def test_a_list_of_every_group_earns_nothing(k: int) -> None:
    names = [f"g{i}" for i in range(2 * k)]
    score = score_response("list_exact", names[:k], {"answer": names})
    assert score.outcome is not None and score.outcome > 0.6 and score.reward == 0.0


def test_the_audit_names_a_constant_that_pays_in_generated_tasks_only() -> None:
    made = [task(i, "numeric_exact", 7 if i % 2 else i) for i in range(40)]
    rows, summary, broken = audit_answers(made, [Path()] * 40)
    assert len(rows) == 40
    assert summary["best constants"]["numeric_exact"]["reward"] == {"mean": 0.5, "answer": "7"}
    assert [b.law for b in broken] == ["constant"] and "the constant 7 earns 0.500" in str(
        broken[0]
    )
    published = [task(i, "numeric_exact", 7, "krama") for i in range(40)]
    assert audit_answers(published, [Path()] * 40)[2] == []
    assert paying(best_constants(made[:10])) == []  # too few to tell
