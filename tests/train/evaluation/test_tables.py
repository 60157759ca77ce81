"""Numbers of an evaluation by hand: samples, instances, groups; and two runs compared."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import assay
from assay.task import json_text
from train.evaluation.comparing import compare_rows
from train.evaluation.tables import Draw, tables


def row(task: str, outcome: float | None, **more: Any) -> dict[str, Any]:
    reward = None if outcome is None else 0.5 * outcome
    return {
        "task_id": task,
        "family": "f",
        "track": "x",
        "sample": 0,
        "outcome": outcome,
        "reward": reward,
        "parts": {},
        "why": "ok" if outcome else "wrong",
        "slices": {"track": "x"},
        "tokens_out": 3,
        "stop": "eos",
        **more,
    }


def test_groups_and_instances_by_hand() -> None:
    """Group g has two orders, each asked in two ways; h lacks an outcome."""
    rows = [
        row("g1#0", 0.0, instance="g1", group="g"),
        row("g1#1", 1.0, instance="g1", group="g"),
        row("g2#0", 1.0, instance="g2", group="g"),
        row("g2#1", 1.0, instance="g2", group="g"),
        row("h1#0", 1.0, instance="h1", group="h"),
        row("h1#1", None, instance="h1", group="h"),
        row("i1#0", 0.0, instance="i1", group="i"),
        row("i1#1", 0.0, instance="i1", group="i"),
    ]
    overall = tables(rows)["overall"]
    assert overall["rs@k"] == {"k": 2, "n": 3, "value": pytest.approx(2 / 3)}
    assert overall["ocs@k"] == {"k": 2, "n": 2, "value": 0.5}
    assert (overall["n"], overall["no_outcome"], overall["mean_outcome"]) == (7, 1, 4 / 7)
    assert overall["mean_reward"] == pytest.approx(2 / 7)  # reward is a column of its own


def test_a_group_of_plain_tasks_is_right_when_all_members_are() -> None:
    rows = [row("a", 1.0, group="g"), row("b", 1.0, group="g"), row("c", 0.0, group="h")]
    overall = tables(rows)["overall"]
    assert overall["ocs@k"] == {"k": 1, "n": 2, "value": 0.5} and "rs@k" not in overall


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=6))
def test_pass_at_k_is_the_share_of_subsets_with_a_right_answer(tasks: list[list[bool]]) -> None:
    rows = [
        row(f"t{i}", float(right), sample=j)
        for i, samples in enumerate(tasks)
        for j, right in enumerate(samples)
    ]
    found = tables(rows, Draw(50))["overall"]
    for k in range(1, 5):
        chosen = [any(c) for samples in tasks for c in combinations(samples, k)]
        assert found["pass@k"][str(k)] == pytest.approx(sum(chosen) / len(chosen))
    assert found["avg@4"] == pytest.approx(found["pass@k"]["1"])


def test_families_do_not_share_sources() -> None:
    rows = [row("a", 1.0, source="one"), row("b", 0.0, source="one", family="g")]
    assert tables(rows)["overall"]["sources"] == 2


def test_tables_are_json(tmp_path: Path) -> None:
    for rows in ([], [row("a", None)], [row("a", 1.0, source="s"), row("b", 0.0, source="s")]):
        assert json.loads(json_text(tables(rows))) == json.loads(
            json.dumps(tables(rows), allow_nan=False)
        )


def test_a_comparison_is_clustered_by_source() -> None:
    old = [row(f"t{i}", 0.0, source=f"s{i // 10}") for i in range(100)]
    new = [row(f"t{i}", float(i // 10 < 5), source=f"s{i // 10}") for i in range(100)]
    got = compare_rows("a", "b", old, new)
    assert (got.n, got.sources, got.gained, got.lost) == (100, 10, 50, 0)
    lone = [{**r, "source": None} for r in new]
    narrow = compare_rows("a", "b", old, lone)
    width, other = (c.outcome.high - c.outcome.low for c in (got, narrow))
    assert got.outcome.value == narrow.outcome.value == 0.5 and width > 2 * other


def run(folder: Path, outcomes: dict[str, float | None]) -> Path:
    folder.mkdir()
    rows = [
        row(name, outcome, source=name[0], slices={"letter": name[0]})
        for name, outcome in outcomes.items()
    ]
    (folder / "results.json").write_text(json.dumps({"meta": {"name": "m"}, "rows": rows}))
    return folder


def test_the_command_compares_runs_by_slice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = run(tmp_path / "a", {"a1": 0.0, "a2": 1.0, "b1": 0.0, "c1": None})
    b = run(tmp_path / "b", {"a1": 1.0, "a2": 0.0, "b1": 1.0, "c1": 1.0})
    assert assay.main(["compare", str(a), str(b), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["comparisons"][0]
    assert (found["tasks"], found["gained"], found["lost"]) == (3, 2, 1)
    assert found["outcome"]["difference"] == pytest.approx(1 / 3)
    assert found["parts"]["letter = b"]["outcome"]["difference"] == 1.0
    assert assay.main(["compare", str(a), str(b)]) == 0
    said = capsys.readouterr().out
    assert "on 3 tasks of 2 sources, 2 gained, 1 lost" in said and "letter = a" in said


@pytest.mark.parametrize("wrong", ["one", "none", "other"])
def test_runs_that_cannot_be_compared_are_one_sentence(
    wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = run(tmp_path / "a", {"a1": 0.0})
    other = {"one": [], "none": [str(tmp_path / "none")], "other": ["b"]}[wrong]
    if other == ["b"]:
        other = [str(run(tmp_path / "b", {"z": 1.0}))]
    assert assay.main(["compare", str(a), *other]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
