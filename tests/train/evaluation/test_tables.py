"""Numbers of an evaluation by hand: cells, samples, instances, slices; two runs compared;
intervals against published values and simulation."""

from __future__ import annotations

import json
import math
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from places import tables as placed

import assay
from assay.task import json_text
from train.evaluation.results import figures
from train.evaluation.stats import clustered_mean, mcnemar_exact, mean_interval, pass_at_k, wilson
from train.evaluation.tables import (
    Draw,
    compare_rows,
    groups_of,
    instances_of,
    tables,
    wordings,
)

Row = dict[str, Any]


def row(task: str, outcome: float | None, **more: Any) -> Row:
    made = {"task_id": task, "family": "f", "sample": 0, "outcome": outcome, "parts": {}}
    made |= {"reward": None if outcome is None else 0.5 * outcome, "tokens_out": 3}
    return made | {"why": "ok" if outcome else "wrong", "stop": "eos", "slices": {}} | more


def asked(right: dict[str, str], **more: Any) -> list[Row]:
    """Rows of instances; a digit a wording, `-` for an answer without an outcome."""
    return [
        row(f"{name}#{n}", None if said == "-" else float(said), instance=name, source=name[0])
        | {"slices": {"track": "x", "style": f"s{n}", "domain": name[0]}}
        | more
        for name, digits in right.items()
        for n, said in enumerate(digits)
    ]


def test_a_cell_by_hand() -> None:
    def of(task: str, gold: str, outcome: float | None, said: str, **more: Any) -> Row:
        reward = None if outcome is None else 1.0 if outcome else 0.25
        more = {"label": gold, "said": said, "reward": reward, "parts": {"rg": outcome}} | more
        return row(task, outcome, slices={"gold status": gold}, **more)

    rows = [
        of("0", "KEEP", 1.0, "KEEP", tokens_out=10),
        of("1", "KEEP", 0.0, "DROP", tokens_out=20, stop="length"),
        of("2", "KEEP", 0.0, "DROP"),
        of("3", "DROP", 1.0, "DROP"),
        of("4", "DROP", None, "KEEP", why="timeout"),
        of("5", "DROP", 0.0, "none", why="no_answer"),
    ]
    found = tables(rows)
    cell = found["overall"]
    assert (cell["n"], cell["no_outcome"], cell["mean_outcome"]) == (5, 1, 0.4)
    assert cell["balanced"] == pytest.approx((1 / 3 + 1 / 2) / 2)
    assert cell["confusion"] == {"KEEP": {"DROP": 2, "KEEP": 1}, "DROP": {"DROP": 1, "none": 1}}
    assert cell["mean_reward"] == pytest.approx((2 + 3 * 0.25) / 5)
    assert (cell["parts"], cell["no_answer"], cell["cut"]) == ({"rg": 0.4}, 0.2, 0.2)
    assert cell["tokens_out"] == pytest.approx((10 + 20 + 9) / 5) and "pass@k" not in cell
    by_status = found["by_slice"]["f"]["gold status"]
    assert by_status["KEEP"]["mean_outcome"] == pytest.approx(1 / 3)
    assert (by_status["DROP"]["mean_outcome"], by_status["DROP"]["no_outcome"]) == (0.5, 1)
    assert figures(rows) == {
        "outcome": 0.4,
        "reward": pytest.approx(0.55),
        "balanced": pytest.approx(5 / 12),
        "outcome/KEEP": pytest.approx(1 / 3),
        "outcome/DROP": 0.5,
    }
    shared = [row("a", 1.0, source="one"), row("b", 0.0, source="one", family="g")]
    assert tables(shared)["overall"]["sources"] == 2  # families do not share sources
    for some in ([], [row("a", None)], shared):  # tables are JSON
        assert json.loads(json_text(tables(some))) == json.loads(
            json.dumps(tables(some), allow_nan=False)
        )


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
    two = tables([r for r in rows if r["sample"] < 2], Draw(50))["overall"]
    assert two["avg@2"] == pytest.approx(two["pass@k"]["1"])
    short = tables(rows[:-1], Draw(50))["overall"]  # the last task lacks a sample
    assert len(tasks) == 1 or short["k_short"] == 1


def test_pass_at_k_that_rows_bring_is_a_mean_where_all_have_it() -> None:
    rows = [row("a", 1.0, **{"pass@1": 0.5, "pass@8": 1.0}), row("b", 1.0, **{"pass@1": 0.1})]
    assert tables(rows)["overall"]["pass@k"] == {"1": 0.3}


# --- instances and groups ------------------------------------------------------------------------


def test_an_instance_is_right_in_one_wording_and_a_group_in_all_instances() -> None:
    rows = [
        *asked({"a1": "001", "a2": "000", "b1": "1-1"}, group="g"),
        *asked({"c1": "010", "c2": "111"}, group="h"),
        *asked({"d1": "100"}),
    ]
    found = {one["task_id"].partition("\x1f")[2]: one for one in instances_of(rows)}
    assert {name: one["outcome"] for name, one in found.items()} == {
        **{"a1": 1.0, "a2": 0.0, "b1": None, "c1": 1.0, "c2": 1.0, "d1": 1.0}
    }
    # what wordings differ in is no slice of the instance
    assert found["a1"]["slices"] == {"track": "x", "domain": "a"}
    groups = {one["group"]: one["outcome"] for one in groups_of(rows)}
    assert groups == {"g": None, "h": 1.0} and wordings(rows) == 3
    cell = tables(rows)["overall"]
    assert cell["rs@k"] == {"k": 3, "n": 5, "value": 0.8}
    assert cell["ocs@k"] == {"k": 3, "n": 1, "value": 1.0}
    right = (1, 0, 1, 3, 1)  # of the wordings of each instance that has all three
    assert cell["rs_curve"] == {
        str(k): pytest.approx(sum(pass_at_k(3, c, k) for c in right) / 5) for k in (1, 2, 3)
    }
    plain = [row("a", 1.0, group="g"), row("b", 1.0, group="g"), row("c", 0.0, group="h")]
    cell = tables(plain)["overall"]
    assert cell["ocs@k"] == {"k": 1, "n": 2, "value": 0.5} and "rs@k" not in cell


def test_slices_have_numbers_of_the_instances_and_groups_they_do_not_cut_apart() -> None:
    rows = [
        *asked({"a1": "001", "b1": "000"}, group="g"),
        *asked({"a2": "100", "a3": "110"}, group="h"),
    ]
    by = tables(rows, Draw(20))["by_slice"]["f"]
    assert by["domain"]["a"]["rs@k"] == {"k": 3, "n": 3, "value": 1.0}
    assert by["domain"]["b"]["rs@k"]["value"] == 0.0
    assert "ocs@k" not in by["domain"]["a"] and "ocs@k" not in by["domain"]["b"]
    assert by["track"]["x"]["ocs@k"]["value"] == 0.5
    assert all("rs@k" not in cell for cell in by["style"].values())


# --- two runs ------------------------------------------------------------------------------------


def test_a_comparison_pairs_by_task_and_is_clustered_by_source() -> None:
    before = [row(f"t{i}", float(i < 2)) for i in range(4)]
    after = [row(f"t{i}", float(i >= 1)) for i in reversed(range(5))]
    got = compare_rows("sft", "rl", before, after, Draw(300))
    assert (got.n, got.gained, got.lost, got.outcome.value) == (4, 2, 1, 0.25)
    old = [row(f"t{i}", 0.0, source=f"s{i // 10}") for i in range(100)]
    new = [row(f"t{i}", float(i // 10 < 5), source=f"s{i // 10}") for i in range(100)]
    got = compare_rows("a", "b", old, new)
    assert (got.n, got.sources, got.gained, got.lost) == (100, 10, 50, 0)
    narrow = compare_rows("a", "b", old, [{**r, "source": None} for r in new])
    width, other = (c.outcome.high - c.outcome.low for c in (got, narrow))
    assert got.outcome.value == narrow.outcome.value == 0.5 and width > 2 * other


def written(folder: Path, rows: list[Row], **meta: Any) -> str:
    folder.mkdir()
    data = {"meta": {"name": "m", **meta}, "rows": rows}
    (folder / "results.json").write_bytes(json_text(data))
    return str(folder)


def test_compare_says_what_thinking_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    off = asked({"a1": "000", "a2": "100", "b1": "000", "b2": "110"}, group="g")
    on = asked({"a1": "010", "a2": "000", "b1": "001", "b2": "111"}, group="g", tokens_out=90)
    on += asked({"c1": "000"})  # and what the other was not asked
    settings = {"mode": "direct", "k": 3, "model": "x", "max_new_tokens": 64}
    a = written(tmp_path / "off", off, thinking=False, settings=settings)
    longer = settings | {"max_new_tokens": 512, "model": "y", "new": 1}
    b = written(tmp_path / "on", on, thinking=True, settings=longer)
    assert assay.main(["compare", a, b, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["comparisons"][0]
    assert (found["tasks"], found["gained"], found["lost"]) == (12, 3, 1)
    assert found["RS@3"]["outcome"]["difference"] == 0.25
    assert found["OCS@3"]["outcome"]["difference"] == 0.0
    parts = {name: part["outcome"]["difference"] for name, part in found["RS@3"]["parts"].items()}
    assert parts == {"domain = a": 0.0, "domain = b": 0.5}
    assert found["tokens_out"] == [3.0, 90.0]
    assert found["differ"] == ["max_new_tokens: 64 → 512", "thinking: off → on"]


def test_compare_takes_every_model_of_a_file_but_baselines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    digits = {"gold": "1111", "empty": "1000", "sft": "1000", "rl": "1110"}
    sets = {
        n: [row(f"t{i}", float(d), label="KD"[i % 2]) for i, d in enumerate(said)]
        for n, said in digits.items()
    }
    path = tmp_path / "x.json"
    for names, pair in ((["gold", "sft", "rl"], "sft rl"), (["gold", "empty"], "empty gold")):
        path.write_bytes(json_text({"meta": {}, "rows": {n: sets[n] for n in names}}))
        assert assay.main(["compare", str(path)]) == 0
        line = re.sub(r" \[.*?\]", "", capsys.readouterr().out.splitlines()[0])
        one, two = pair.split()
        assert line.startswith(f"{path}:{one} → {path}:{two}: outcome +0.")
    assert line.endswith(
        "balanced +0.750 on 4 tasks of 4 sources, 3 gained, 0 lost, McNemar p 0.25"
    )


# --- intervals -----------------------------------------------------------------------------------


NEWCOMBE = placed("training")["Wilson intervals of Newcombe 1998, table I"]


@pytest.mark.parametrize(("k", "n", "low", "high"), NEWCOMBE)
def test_wilson_matches_newcombe(k: int, n: int, low: float, high: float) -> None:
    got = wilson(k, n)
    assert got.value == k / n
    assert (got.low, got.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))
    assert 0 <= got.low <= got.value <= got.high <= 1
    assert math.isnan(wilson(0, 0).value) and wilson(0, 0)[1:] == (0.0, 1.0)


def test_mcnemar_by_hand() -> None:
    assert mcnemar_exact(31, 14) == pytest.approx(0.0160, abs=2e-4)
    assert mcnemar_exact(5, 0) == 2 / 32 == mcnemar_exact(0, 5)
    assert mcnemar_exact(0, 0) == mcnemar_exact(4, 4) == 1.0


def test_the_clustered_bootstrap_is_a_plain_simulation() -> None:
    """As its definition says it: draw sources, take all their items, weigh classes alike."""
    random = np.random.default_rng(17)
    sources, values = random.integers(0, 12, 50), random.choice([0.0, 0.3, 1.0], 50)
    for classes in (random.choice(["K", "D"], 50, p=[0.8, 0.2]), np.full(50, "")):
        found: list[float] = []
        for drawn in random.choice(np.unique(sources), (3000, len(np.unique(sources)))):
            at = np.concatenate([np.flatnonzero(sources == one) for one in drawn])
            own = [values[at][classes[at] == name].mean() for name in np.unique(classes[at])]
            found.append(float(np.mean(own)))
        got = clustered_mean(values.tolist(), sources.tolist(), classes.tolist(), 4000)
        means = [values[classes == name].mean() for name in np.unique(classes)]
        assert got.value == pytest.approx(np.mean(means))
        assert got[1:] == pytest.approx(np.quantile(found, [0.025, 0.975]), abs=0.02)


def test_one_item_a_source_is_wilson_and_one_source_has_no_interval() -> None:
    assert mean_interval([1.0, 0.0, 1.0], ["a", "b", "c"]) == wilson(2, 3)
    assert mean_interval([1.0] * 6, ["a", "b", "c"] * 2) == wilson(3, 3)
    assert math.isnan(mean_interval([1.0, 0.0], ["a", "a"]).low)
    graded = mean_interval([0.2, 0.4, 0.9], ["a", "b", "c"])
    assert graded.low < graded.value < graded.high and graded.value == pytest.approx(0.5)
    assert math.isnan(mean_interval([], []).value)


def test_many_sources_are_drawn_in_blocks() -> None:
    values = [float(i % 4 == 0) for i in range(9000)]
    got = clustered_mean(values, [i // 2 for i in range(9000)])
    assert got == clustered_mean(values, [i // 2 for i in range(9000)])  # the seed fixes it
    spread = 1.96 * np.std([np.mean(values[i : i + 2]) for i in range(0, 9000, 2)]) / 4500**0.5
    assert got.high - got.low == pytest.approx(2 * spread, rel=0.15)
    assert (got.high + got.low) / 2 == pytest.approx(0.25, abs=0.01)
    with pytest.raises(ValueError, match="wanted the same items"):
        clustered_mean([1.0], [1, 2])
