"""Instances and order groups of two runs, compared as RS@K and OCS@K."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import assay
from assay.task import json_text
from train.evaluation.tables import Draw, in_order, tables
from train.evaluation.wholes import common, groups_of, instances_of, wordings

NAMES = ("a", "b", "c", "d")


def row(instance: str, wording: int, outcome: float | None, **more: Any) -> dict[str, Any]:
    return {
        "task_id": f"{instance}#{wording}",
        "family": "refinement",
        "track": "order_f",
        "sample": 0,
        "instance": instance,
        "group": None,
        "source": instance[0],
        "slices": {"track": "order_f", "style": f"s{wording}", "domain": instance[0]},
        "outcome": outcome,
        "reward": outcome,
        "parts": {},
        "why": "ok",
        "stop": "eos",
        "tokens_out": 10,
        **more,
    }


def asked(right: dict[str, str], **more: Any) -> list[dict[str, Any]]:
    """Rows of instances; a digit a wording, `-` for an answer without an outcome."""
    return [
        row(name, place, None if said == "-" else float(said), **more)
        for name, digits in right.items()
        for place, said in enumerate(digits)
    ]


def test_an_instance_is_right_in_one_wording_and_a_group_in_all_instances() -> None:
    rows = [
        *asked({"a1": "001", "a2": "000", "b1": "1-1"}, group="g"),
        *asked({"c1": "010", "c2": "111"}, group="h"),
        *asked({"d1": "100"}),
    ]
    found = {one["task_id"].partition("/")[2]: one for one in instances_of(rows)}
    assert {name: one["outcome"] for name, one in found.items()} == {
        **{"a1": 1.0, "a2": 0.0, "b1": None, "c1": 1.0, "c2": 1.0, "d1": 1.0}
    }
    # what wordings differ in is no slice of the instance
    assert found["a1"]["slices"] == {"track": "order_f", "domain": "a"}
    groups = {one["task_id"].rpartition("/")[2]: one["outcome"] for one in groups_of(rows)}
    assert groups == {"g": None, "h": 1.0}
    assert wordings(rows) == 3


@settings(deadline=None, max_examples=40)
@given(
    st.dictionaries(
        st.sampled_from(NAMES), st.text("01", min_size=3, max_size=3), min_size=1, max_size=4
    )
)
def test_the_curve_ends_in_rs_at_k_and_begins_in_the_mean(right: dict[str, str]) -> None:
    cell = tables(asked(right), Draw(20))["overall"]
    curve = cell["rs_curve"]
    assert curve["3"] == pytest.approx(cell["rs@k"]["value"])
    assert curve["1"] == pytest.approx(cell["mean_outcome"])
    assert curve["1"] <= curve["2"] + 1e-9 <= curve["3"] + 2e-9
    mine = [one["outcome"] for one in instances_of(asked(right))]
    assert sum(mine) / len(mine) == pytest.approx(cell["rs@k"]["value"])


def test_slices_have_numbers_of_the_instances_and_groups_they_do_not_cut_apart() -> None:
    rows = [
        *asked({"a1": "001", "b1": "000"}, group="g"),
        *asked({"a2": "100", "a3": "110"}, group="h"),
    ]
    by = tables(rows, Draw(20))["by_slice"]["refinement"]
    assert by["domain"]["a"]["rs@k"] == {"k": 3, "n": 3, "value": 1.0}
    assert by["domain"]["b"]["rs@k"]["value"] == 0.0
    assert "ocs@k" not in by["domain"]["a"] and "ocs@k" not in by["domain"]["b"]
    assert by["track"]["order_f"]["ocs@k"]["value"] == 0.5
    assert all("rs@k" not in cell for cell in by["style"].values())


def test_values_of_slices_are_in_the_order_of_their_numbers() -> None:
    lengths = ["> 8000", "≤ 1000", "≤ 500", "≤ 8000", "10", "9", "web"]
    ranked = sorted(lengths, key=in_order)
    assert ranked == ["web", "9", "10", "≤ 500", "≤ 1000", "≤ 8000", "> 8000"]


def test_only_wordings_that_both_were_asked_are_compared() -> None:
    one, other = asked({"a1": "001"}), asked({"a1": "00"})
    mine, theirs = common(one, other)
    assert len(mine) == len(theirs) == 2
    assert instances_of(mine)[0]["outcome"] == instances_of(theirs)[0]["outcome"] == 0.0


def written(folder: Path, rows: list[dict[str, Any]], **meta: Any) -> Path:
    folder.mkdir()
    data = {"meta": {"name": "m", **meta}, "rows": rows}
    (folder / "results.json").write_bytes(json_text(data))
    return folder


def test_compare_says_what_thinking_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    off = asked({"a1": "000", "a2": "100", "b1": "000", "b2": "110"}, group="g")
    on = asked({"a1": "010", "a2": "000", "b1": "001", "b2": "111"}, group="g", tokens_out=90)
    settings = {"mode": "direct", "k": 3, "model": "x", "max_new_tokens": 64}
    a = written(tmp_path / "off", off, thinking=False, settings=settings)
    longer = settings | {"max_new_tokens": 512, "model": "y", "new": 1}
    b = written(tmp_path / "on", on, thinking=True, settings=longer)
    assert assay.main(["compare", str(a), str(b)]) == 0
    said = capsys.readouterr().out
    assert "asked differently: max_new_tokens: 64 → 512; thinking: off → on\n" in said
    assert "tokens an answer: 10 → 90" in said
    assert "RS@3 +0.250" in said and "OCS@3 +0.000" in said
    table = {line.split("  ")[0]: line for line in said.splitlines()}
    assert "RS@3 [95 %]" in table["part"]
    assert "+0.500" in table["domain = b"] and table["style = s0"].rstrip().endswith("–")
    assert assay.main(["compare", str(a), str(b), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["comparisons"][0]
    assert found["RS@3"]["outcome"]["difference"] == 0.25
    assert found["RS@3"]["parts"]["domain = a"]["outcome"]["difference"] == 0.0
    assert found["tokens_out"] == [10.0, 90.0] and found["tasks"] == 12
    assert assay.main(["compare", str(a), str(a / "results.json")]) == 0
    assert "asked differently" not in capsys.readouterr().out
