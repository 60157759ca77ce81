"""The construction pipeline: against the reference's own results where they are at hand, and its
laws on small made-up corpora where they are not."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import ROOT, SHARED
from vectors import needs_full_vectors, vectors

from configs.cdr import CdrConfig, InstanceConfig, MiningConfig
from configs.loader import load
from data_gen.cdr.calibrate import BOUNDS, calibrate, percentile, round_threshold
from data_gen.cdr.construct import construct, pipeline_rows
from data_gen.cdr.domains import MAPPERS, assign_domain, execution_order
from data_gen.cdr.mining import mine
from data_gen.cdr.records import Record, Replays, active_mappers
from data_gen.cdr.sources import read_sources, scan
from data_gen.corpora import CorpusError
from rewards.cdr.ids import prompt_key, sample_variants, stable_id
from rewards.gold import RECIPE_PARAMS, Step, execute


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
        mined = mine(row["domain"], row["signatures"], MiningConfig(**row["params"]))
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


def test_threshold_vectors() -> None:
    for row in vectors("thresholds"):
        if row["kind"] == "threshold":
            value = percentile(row["values"], row["q"])
            got = {"percentile": value, "formatted": round_threshold(value, row["param_key"])}
        else:
            made = calibrate(
                row["operator"], row["values"], row["target_drop_rate"], row["zero_policy"]
            )
            got = {"params": made.params, "meta": made.meta}
        assert got == row["expected"]


REFERENCE = ROOT / "configs" / "cdr_reference.yaml"


def alone(rows: Iterable[dict[str, Any]], domain: str) -> list[dict[str, Any]]:
    """Rows of a domain that no other domain decides on. Which documents become instances and what
    filters keep is chosen over all of them."""
    return [r for r in rows if r["domain"] == domain and r["kind"] != "pipeline_instance"]


@needs_full_vectors
def test_a_domain_of_the_reference_pipeline_is_reproduced_row_by_row() -> None:
    rows = [r for r in read_sources([SHARED / "cdr" / "corpora"]).rows if r["domain"] == "privacy"]
    made = construct(scan(rows, 1), load(CdrConfig, REFERENCE), Replays())
    got = alone(pipeline_rows(made), "privacy")
    assert {row["kind"].removeprefix("pipeline_") for row in got} == {
        *("activation", "family", "recipe", "order_m")
    }
    assert got == alone(vectors("pipeline_expected"), "privacy")


@pytest.mark.slow  # four domains
@needs_full_vectors
def test_the_reference_pipeline_is_reproduced_row_by_row() -> None:
    config = load(CdrConfig, REFERENCE)
    records = scan(read_sources([SHARED / "cdr" / "corpora"]).rows, 1)
    got = pipeline_rows(construct(records, config, Replays()))
    for number, (mine_, theirs) in enumerate(zip(got, vectors("pipeline_expected"), strict=True)):
        assert mine_ == theirs, f"row {number}"


TEXTS = {
    "web": "<p>See https://a.org/x{n} &amp; www.b.com/{n} now.</p>\n<b>Word {n}</b> more text {t}",
    "privacy": "Mail ana{n}@acme.io from 10.0.0.{n} at /home/a{n}/b.txt, tel 555-010{n}. {t}",
}


def corpus(count: int = 30) -> list[Record]:
    rows: list[Record] = []
    for label, text in TEXTS.items():
        for n in range(count):
            body = text.format(n=n, t="some more words " * (n % 9))
            name = {"privacy": "pii"}.get(label, label)
            active = frozenset(active_mappers(body))
            rows.append(Record(f"{label}-{n}", name, body, active, label=label))
    return rows


def test_every_instance_re_executes_to_its_text_and_status() -> None:
    done = construct(corpus(), CdrConfig(), Replays())
    rows = [*done.atomic, *done.main, *done.order]
    assert {row.track for row in rows} == {"atomic", "main", "order_sensitivity"}
    for row in rows:
        params = {**RECIPE_PARAMS, **row.filter_params}
        steps = [Step(name, dict(params.get(name, {}))) for name in row.sequence]
        run = execute(row.record.text, steps)
        assert (run.status, run.text) == (row.status, row.text)
    groups = Counter(row.group for row in done.order)
    assert set(groups.values()) == {3}
    for pair in done.swaps:
        assert execute(pair.record.text, [Step(n) for n in pair.swapped]).text == pair.swapped_text
        assert pair.canonical_text != pair.swapped_text


def test_the_same_corpus_gives_the_same_rows_and_a_full_memory_changes_nothing() -> None:
    first = list(pipeline_rows(construct(corpus(), CdrConfig(), Replays())))
    again = list(pipeline_rows(construct(corpus(), CdrConfig(), Replays(limit=5))))
    assert first == again


def test_records_too_long_or_with_too_few_mappers_are_not_used() -> None:
    records = corpus()
    limit = max(len(r.text) for r in records) - 1
    config = CdrConfig(instances=InstanceConfig(max_text_length=limit))
    used = {row.record.id for row in construct(records, config, Replays()).atomic}
    assert used
    assert all(len(r.text) <= limit for r in records if r.id in used)


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=40),
    st.sampled_from(sorted(BOUNDS)),
    st.sampled_from([0.2, 0.5, 0.8]),
)
def test_a_threshold_lies_within_the_values_up_to_rounding(
    values: list[float], name: str, rate: float
) -> None:
    found = calibrate(name, values, rate)
    assert min(values) - 1e-6 <= found.raw <= max(values) + 1e-6
    assert found.params is not None
    key, _ = BOUNDS[name]
    assert list(found.params) == [key]
    assert calibrate(name, [0.0], rate, "skip").params is None or not key.endswith("ratio")


@given(st.sets(st.sampled_from(sorted({m for d in MAPPERS.values() for m in d}))))
def test_execution_order_keeps_every_operator_once(names: set[str]) -> None:
    for domain in MAPPERS:
        assert sorted(execution_order(domain, names)) == sorted(names)
    assert (assign_domain(names, "web") is None) == (not names)


@given(st.integers(1, 12), st.integers(-1, 14), st.integers(0, 3), st.text(max_size=8))
def test_sampled_variants_are_distinct_and_ascending(
    pool: int, k: int, seed: int, name: str
) -> None:
    picked = sample_variants(pool, k, seed, "key", name)
    assert picked == sorted(set(picked))
    assert len(picked) == (pool if k <= 0 else min(k, pool))


def test_keys_depend_on_every_field() -> None:
    base = ("main", "web", "clean-only", None, ["a"], {})
    other = [("atomic", *base[1:]), (*base[:3], "front", *base[4:]), (*base[:4], ["b"], {})]
    assert len({prompt_key(*base), *(prompt_key(*o) for o in other)}) == 4


def test_folders_and_tables_are_read_alike(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [{"id": "a", "domain": "web", "text": "<p>x</p>"}, {"id": "b", "text": "y"}]
    (tmp_path / "j").mkdir()
    lines = "\n".join(map(json.dumps, rows)) + "\nnot json\n" + json.dumps({"id": "c"})
    (tmp_path / "j" / "rag.jsonl").write_text(lines)
    found = read_sources([tmp_path / "j"])
    assert [(r["id"], r["domain"]) for r in found.rows] == [("a", "web"), ("b", "rag")]
    assert len(found.problems) == 2
    (tmp_path / "p").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "p" / "x.parquet")
    assert [r["id"] for r in read_sources([tmp_path / "p"]).rows] == ["a", "b"]
    (tmp_path / "h").mkdir()
    table = pa.Table.from_pylist(rows)
    shard = str(tmp_path / "h" / "data-00000-of-00001.arrow")
    with pa.OSFile(shard, "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    (tmp_path / "h" / "dataset_info.json").write_text("{}")
    assert [r["id"] for r in read_sources([tmp_path / "h"]).rows] == ["a", "b"]
    (tmp_path / "t" / "sub").mkdir(parents=True)
    (tmp_path / "t" / "one.html").write_text("<p>one</p>")
    (tmp_path / "t" / "sub" / "two.tex").write_text("\\section{two}")
    texts = read_sources([tmp_path / "t"]).rows
    assert [(r["id"], r["domain"]) for r in texts] == [
        ("one.html", "web"),
        ("sub/two.tex", "latex"),
    ]


def test_a_missing_corpus_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="no such file"):
        read_sources([tmp_path / "nothing"])
