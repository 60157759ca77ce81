"""No answer given without looking pays: constants, listings of everything, and the audit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb")

from lake_files import write_lines
from places import tables

from assay.task import Task
from data_gen.audit import audit_answers
from data_gen.proof.forms import Shelf
from data_gen.queries.lake_checks import MOST, Watch, best_constants, best_listing, paying, pays
from data_gen.queries.lake_proof import everything
from data_gen.queries.ops import Group, Load, Source, Split, Top

DRAWS = range(90)
DRAWN: dict[str, list[Any]] = {
    "numeric_exact": [i % 9 for i in DRAWS],
    "string_exact": ["yes" if i % 3 else f"name {i}" for i in DRAWS],
    "numeric_approximate": [0.5 + (i * 7 % 50) / 100 for i in DRAWS],
    "list_exact": [["a", "b"] if i % 4 else ["a", f"n{i}", "c"] for i in DRAWS],
    "list_approximate": [[10.0 + i % 5, 20.0, 30.0 + i] for i in DRAWS],
    "string_approximate": ["Acton, Fresh" if i % 2 else f"Town {i}, Salt" for i in DRAWS],
}


def tasks(kind: str, answers: list[Any], benchmark: str = "lake") -> list[Task]:
    meta = {"benchmark": benchmark}
    return [
        Task(f"t{i}", "answer", "lake", "train", [], {"answer_type": kind, "answer": a}, meta=meta)
        for i, a in enumerate(answers)
    ]


@pytest.mark.parametrize("kind", DRAWN)
def test_a_watched_set_pays_no_constant(kind: str) -> None:
    watch = Watch(kind)
    kept = [answer for answer in DRAWN[kind] if watch.admits(answer)]
    plain, best = (best_constants(tasks(kind, a))[kind]["reward"] for a in (DRAWN[kind], kept))
    assert plain["mean"] > MOST  # there was something to keep out
    assert best["mean"] <= max(MOST, 1.5 / len(kept)) + 1e-4, best


def test_the_audit_names_a_constant_that_pays_in_generated_tasks_only() -> None:
    answers = [7 if i % 2 else i for i in range(40)]
    rows, summary, broken = audit_answers(tasks("numeric_exact", answers), [Path()] * 40)
    assert len(rows) == 40
    assert summary["best constants"]["numeric_exact"]["reward"] == {"mean": 0.5, "answer": "7"}
    assert [b.law for b in broken] == ["constant"] and "constant 7 earns 0.500" in str(broken[0])
    assert audit_answers(tasks("numeric_exact", [7] * 40, "krama"), [Path()] * 40)[2] == []
    assert paying(best_constants(tasks("numeric_exact", answers[:10]))) == []  # too few to tell


def test_everything_that_is_listed(tmp_path: Path) -> None:
    """Also where columns are called as the queries call theirs."""
    rows = (f'"{"ab"[i % 2]}, {"xyz"[i % 3]}",{i % 9},{i},k' for i in range(18))
    write_lines(tmp_path / "t.csv", "two,amount,c,n", rows)
    steps = (
        Load(Source("t.csv", "", ("two", "amount"))),
        Split("two", "after_comma", "two part"),
        Group(("two part",), (False,), "amount", "mean"),
        Top(2, True),
    )
    with Shelf(tmp_path) as shelf:
        lists = everything(steps, shelf)
    assert ["x", "y", "z"] in lists and ["two", "amount", "c", "n"] in lists
    assert [float(i) for i in range(9)] in lists
    assert {"x", "y", "z", "a, x", "amount", 3.0} <= set(lists[-1])


@pytest.mark.parametrize(
    ("kind", "target", "listed", "paid"), tables("queries")["what_a_listing_earns"]
)
def test_what_a_listing_earns(kind: str, target: Any, listed: list[Any], paid: bool) -> None:
    assert pays(best_listing(kind, target, [listed])) == paid
