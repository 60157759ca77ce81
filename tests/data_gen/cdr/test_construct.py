"""The construction pipeline: against the reference's own results where they are at hand, and its
laws on small made-up corpora where they are not."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from front import command
from hypothesis import given
from hypothesis import strategies as st
from places import ROOT, SHARED
from vectors import needs_full_vectors, vectors

from configs.cdr import MiningConfig
from data_gen.cdr.documents import (
    MAPPERS,
    Found,
    assign_domain,
    execution_order,
    found_in,
    sources_of,
)
from data_gen.cdr.recipes import mine_counts
from data_gen.cdr.units import (
    BOUNDS,
    Rule,
    ZeroPolicy,
    calibrated,
    percentile,
    quantile_of,
    round_threshold,
)
from data_gen.readers import cut
from rewards.cdr.release_files import sample_variants, stable_id


def test_ids_and_prompt_samples() -> None:
    for row in vectors("keys"):
        if row["kind"] == "stable_id":
            got: object = stable_id(*row["parts"])
        else:
            key = row["recipe_prompt_key"] or row["recipe_id"]
            got = sample_variants(row["pool_size"], row["k"], row["seed"], key, row["instance_id"])
        assert got == row["expected"]


def test_mining_vectors() -> None:
    for row in vectors("mining"):
        counts = Counter(tuple(sorted(set(s))) for s in row["signatures"])
        mined = mine_counts(row["domain"], counts, MiningConfig(**row["params"]))
        families = [
            {
                "family_id": f.id,
                "anchor": list(f.anchor),
                "subset_support": f.subset_support,
                "family_support": f.family_support,
                "recipes": [
                    {
                        "recipe_id": r.id,
                        "operators": list(r.operators),
                        "support": r.support,
                        "ordered": list(r.ordered),
                    }
                    for r in f.recipes
                ],
            }
            for f in mined.families
        ]
        fallback = [{"operators": list(s), "support": n} for s, n in mined.fallback]
        got = {"threshold": mined.threshold, "families": families, "fallback": fallback}
        assert got == row["expected"]


@given(
    st.lists(st.sets(st.sampled_from("abcdefg"), min_size=1), min_size=1, max_size=40),
    st.integers(1, 4),
)
def test_coverage_is_that_of_all_subsets(sets: list[set[str]], support: int) -> None:
    config = MiningConfig(min_support=support, min_support_ratio=0, min_recipe_support=0)
    signatures = [sorted(one) for one in sets]
    counts: Counter[tuple[str, ...]] = Counter()
    for signature in signatures:
        for size in range(config.min_combo_len, config.max_combo_len + 1):
            counts.update(combinations(signature, size))
    for family in mine_counts("web", Counter(map(tuple, signatures)), config).families:
        assert family.subset_support == counts[family.anchor] >= support


def threshold(
    name: str, values: Sequence[float], rate: float, zero_policy: ZeroPolicy = "min-positive"
) -> Rule:
    """The threshold that a build calibrates on these statistics."""
    raw = percentile(values, quantile_of(name, rate))
    return calibrated(name, raw, rate, zero_policy)


def test_threshold_vectors() -> None:
    for row in vectors("thresholds"):
        if row["kind"] == "threshold":
            value = percentile(row["values"], row["q"])
            got = {"percentile": value, "formatted": round_threshold(value, row["param_key"])}
        else:
            made = threshold(
                row["operator"], row["values"], row["target_drop_rate"], row["zero_policy"]
            )
            got = {"params": made.params, "meta": made.meta}
        assert got == row["expected"]


def alone(rows: Iterable[dict[str, Any]], domain: str) -> list[dict[str, Any]]:
    """Rows of a domain that no other domain decides on. Which documents become instances and what
    filters keep is chosen over all of them."""
    return [r for r in rows if r["domain"] == domain and r["kind"] != "pipeline_instance"]


@needs_full_vectors
def test_a_domain_of_the_reference_pipeline_is_reproduced_row_by_row(tmp_path: Path) -> None:
    corpus = SHARED / "cdr" / "corpora" / "privacy.jsonl.gz"
    pytest.importorskip("duckdb", reason="needs the extra `build`")
    given = ["--corpus", str(corpus), "--config", str(ROOT / "configs" / "cdr_reference.yaml")]
    assert command("tasks")(["cdr", *given, "--out", str(tmp_path), "--workers", "1"]) == 0
    lines = (tmp_path / "pipeline.jsonl").open(encoding="utf-8")
    got = alone(map(json.loads, lines), "privacy")
    assert {row["kind"].removeprefix("pipeline_") for row in got} == {
        *("activation", "family", "recipe", "order_m")
    }
    assert got == alone(vectors("pipeline_expected"), "privacy")


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=40),
    st.sampled_from(sorted(BOUNDS)),
    st.sampled_from([0.2, 0.5, 0.8]),
)
def test_a_threshold_lies_within_the_values_up_to_rounding(
    values: list[float], name: str, rate: float
) -> None:
    found = threshold(name, values, rate)
    assert min(values) - 1e-6 <= found.meta["threshold_raw_value"] <= max(values) + 1e-6
    assert found.params is not None
    key, _ = BOUNDS[name]
    assert list(found.params) == [key]
    assert threshold(name, [0.0], rate, "skip").params is None or not key.endswith("ratio")


@given(st.sets(st.sampled_from(sorted({m for d in MAPPERS.values() for m in d}))))
def test_execution_order_keeps_every_operator_once(names: set[str]) -> None:
    for domain in MAPPERS:
        assert sorted(execution_order(domain, names)) == sorted(names)
    assert (assign_domain(names, "web") is None) == (not names)


def all_of(corpus: Path) -> list[Found]:
    return list(found_in(cut(sources_of([corpus]), 1, 0)))


def rows_in(found: list[Found]) -> list[dict[str, Any]]:
    return [one.row for one in found if one.row is not None]


def test_folders_of_pages_and_of_data_sets_are_read(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    rows = [{"id": "a", "domain": "web", "text": "<p>x</p>"}, {"id": "b", "text": "y"}]
    (tmp_path / "h").mkdir()
    table = pa.Table.from_pylist(rows)
    shard = str(tmp_path / "h" / "data-00000-of-00001.arrow")
    with pa.OSFile(shard, "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    (tmp_path / "h" / "dataset_info.json").write_text("{}")
    assert [r["id"] for r in rows_in(all_of(tmp_path / "h"))] == ["a", "b"]
    (tmp_path / "t" / "sub").mkdir(parents=True)
    (tmp_path / "t" / "one.html").write_text("<p>one</p>")
    (tmp_path / "t" / "sub" / "two.tex").write_text("\\section{two}")
    texts = rows_in(all_of(tmp_path / "t"))
    assert [(r["id"], r["domain"]) for r in texts] == [
        *(("one.html", "web"), ("sub/two.tex", "latex"))
    ]
    (tmp_path / "t" / "rag.jsonl").write_text('{"id": "b", "text": "y"}\nnot json\n{"id": "c"}')
    found = all_of(tmp_path / "t")  # beside a table texts are no documents
    assert [(r["id"], r["domain"]) for r in rows_in(found)] == [("b", "rag")]
    assert sum(one.row is None for one in found) == 2
