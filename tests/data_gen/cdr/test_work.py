"""The construction: the same bytes however a build is cut up (workers, shards, parts, kills on the
way), and the reference's own results where they are at hand."""

from __future__ import annotations

import json
import re
import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import front
import pytest
from faulty import Fault, command
from places import ROOT, SHARED
from vectors import needs_full_vectors, vectors

from benchmarks.cdr_corpus import documents
from configs.cdr import MiningConfig
from data_gen.cdr.cli import MAPS, STAGES
from data_gen.cdr.recipes import mine_counts
from data_gen.cdr.rows import sha256
from data_gen.cdr.units import calibrated, percentile, quantile_of, round_threshold
from rewards.cdr.release_files import sample_variants, stable_id
from rewards.gold import RECIPE_PARAMS, Step, execute

pytest.importorskip("duckdb", reason="needs the extra `build`")
main = front.command("tasks")
REFERENCE = str(ROOT / "configs" / "cdr_reference.yaml")
SMALL = (
    *("instances.min_keep=1", "instances.min_drop=1", "instances.min_groups=1"),
    *("instances.per_variant=2", "instances.per_operator=2", "instances.groups_per_family=2"),
    *("mining.min_support=2", "mining.min_recipe_support=2", "mining.max_families=2"),
    *("mining.max_recipes_per_family=2", "library.max_filters_per_recipe=1"),
    *("compose.per_domain=1", "compose.min_support=3", "instruct.all_prompts=true"),
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100 documents; some rows are torn, without text, too long, or there twice."""
    rows = [json.dumps(row) for row in documents(100)]
    rows[30:30] = ["{torn", '{"id": "empty"}', "", rows[3]]
    rows.append(json.dumps({"id": "long", "domain": "web", "text": "word " * 3000}))
    rows.append(rows[2])
    rows += [json.dumps({"id": f"again-{n}", "text": "nothing to do"}) for n in (1, 1, 2)]
    path = tmp_path_factory.mktemp("corpus") / "docs" / "all.jsonl"
    path.parent.mkdir()
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path.parent


def words(corpus: Path, out: Path, *more: str) -> list[str]:
    given = [] if "--workers" in more else ["--workers", "1"]
    return ["cdr", "--corpus", str(corpus), "--out", str(out), *SMALL, *given, *more]


def files(out: Path) -> dict[str, bytes]:
    """What a build wrote; the record of it without the checkout's state, which may change."""
    found = {p.relative_to(out).as_posix(): p.read_bytes() for p in out.rglob("*") if p.is_file()}
    if record := found.get("provenance.json"):
        found["provenance.json"] = re.sub(rb'"(dirty|revision)": .*', b"", record)
    return found


@pytest.fixture(scope="module")
def whole(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("whole")
    assert main(words(corpus, out)) == 0
    found = files(out)
    assert len(found) == 5 + 5 + 4 + 6 and all(found[f"{s}.jsonl"] for s in ("train", "heldout"))
    return found


def in_three_shards(*given: str) -> None:
    for stage in STAGES:
        for shard in range(3 if stage in MAPS else 1):
            cut = ["--shards", "3", "--shard", str(shard), "--stage", stage]
            assert main([*given, *cut]) == 0


def test_workers_shards_and_parts_do_not_change_a_byte(
    corpus: Path, whole: dict[str, bytes], tmp_path: Path
) -> None:
    elsewhere = shutil.copytree(corpus, tmp_path / "elsewhere" / corpus.name)
    assert main(words(elsewhere, tmp_path / "two", "--workers", "2", "--part", "24")) == 0
    in_three_shards(*words(corpus, tmp_path / "shards", "--part", "9"))
    assert files(tmp_path / "shards") == whole
    moved = files(tmp_path / "two")  # whose record names the corpus as the command did
    assert moved | {"provenance.json": b""} == whole | {"provenance.json": b""}
    assert not any(str(corpus.parent).encode() in data for data in moved.values())


def test_a_build_that_is_killed_twice_goes_on_to_the_same_bytes(
    corpus: Path, whole: dict[str, bytes], tmp_path: Path
) -> None:
    out, made = tmp_path / "out", list[dict[Path, int]]()
    given = words(corpus, out, "--part", "24")
    for at in (30, 60):  # changes of files
        killed = command(["tasks", *given], tmp_path, Fault(signal.SIGKILL, at))
        assert killed.status == -signal.SIGKILL
        made.append({p: p.stat().st_mtime_ns for p in out.rglob("facts-*/*.parquet")})
    assert made[0] and made[0].items() <= made[1].items()  # no part is made again
    assert main(given) == 0
    assert files(out) == whole


def test_corpora_that_number_their_rows_alike_are_both_used(tmp_path: Path) -> None:
    made = [json.dumps(row | {"id": n % 25}) for n, row in enumerate(documents(50))]
    for folder, rows in (("a", made[:25]), ("b", [made[3], *made[25:], made[30]])):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "docs.jsonl").write_text("\n".join(rows), encoding="utf-8")
    given = words(tmp_path / "a" / "docs.jsonl", tmp_path / "out", "--part", "7", "tracks=false")
    assert main([*given, "--corpus", str(tmp_path / "b" / "docs.jsonl")]) == 0
    refused = [json.loads(line) for line in (tmp_path / "out" / "refused.jsonl").open()]
    twice = [row["why"][0] for row in refused if "twice" in row["why"][0]]
    assert twice.count("id '3' occurs twice") == 1  # the same document again
    used = [json.loads(line) for line in (tmp_path / "out" / "pipeline.jsonl").open()]
    names = {row["doc_id"] for row in used if row["kind"] == "pipeline_activation"}
    assert {"0", "docs.jsonl 2#0", "docs.jsonl 2#24"} <= names


def test_stages_out_of_turn_and_other_builds_are_refused(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = words(corpus, tmp_path)
    shards = ["--shards", "2", "--stage"]
    assert main([*given, *shards, "facts"]) == 0
    capsys.readouterr()
    for more, said in (
        ([*shards, "library"], "run it: --stage facts --shard 1"),
        ([*shards, "traces"], "--stage library"),
        (["--shards", "3", "--stage", "facts"], "--shards"),
        ([*shards, "facts", "instruct.seed=4"], "other settings"),
    ):
        assert main([*given, *more]) == 2
        assert said in capsys.readouterr().err
    assert main([*given, *shards, "facts", "--shard", "1"]) == 0
    packed = next((tmp_path / ".work").rglob("*.packed"))
    packed.write_bytes(packed.read_bytes()[:2000])
    assert main([*given, *shards, "library"]) == 2
    assert "00000.packed: is cut off or damaged" in capsys.readouterr().err


def test_recipes_re_execute_to_their_texts(whole: dict[str, bytes]) -> None:
    texts = {row["id"]: row["text"] for row in documents(100)}
    rows = [json.loads(line) for line in whole["pipeline.jsonl"].splitlines()]
    made = [row for row in rows if row["kind"] == "pipeline_instance"]
    assert {row["track"] for row in made} == {"atomic", "main", "order_sensitivity"}
    for row in made:
        params = {**RECIPE_PARAMS, **row["filter_params_by_name"]}
        steps = [Step(name, dict(params.get(name, {}))) for name in row["operator_sequence"]]
        run = execute(texts[row["doc_id"]], steps)
        assert (run.status, sha256(run.text)) == (row["status"], row["text_sha256"])
    for pair in (row for row in rows if row["kind"] == "pipeline_order_m"):
        run = execute(texts[pair["doc_id"]], [Step(n) for n in pair["swapped_operator_sequence"]])
        assert sha256(run.text) == pair["swapped_sha256"] != pair["canonical_sha256"]


# --- against the reference's own results, where they are at hand


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


def test_threshold_vectors() -> None:
    for row in vectors("thresholds"):
        if row["kind"] == "threshold":
            value = percentile(row["values"], row["q"])
            got = {"percentile": value, "formatted": round_threshold(value, row["param_key"])}
        else:
            name, rate = row["operator"], row["target_drop_rate"]
            raw = percentile(row["values"], quantile_of(name, rate))
            made = calibrated(name, raw, rate, row["zero_policy"])
            got = {"params": made.params, "meta": made.meta}
        assert got == row["expected"]
    assert (percentile([0.3], 0.5), round_threshold(1e-6, "max_ratio")) == (0.3, 0.0001)


def alone(rows: Any) -> list[dict[str, Any]]:
    """Rows of a domain that no other domain decides on. Which documents become instances and what
    filters keep is chosen over all of them."""
    return [r for r in rows if r["domain"] == "privacy" and r["kind"] != "pipeline_instance"]


@needs_full_vectors
def test_a_domain_of_the_reference_pipeline_is_reproduced_row_by_row(tmp_path: Path) -> None:
    corpus = SHARED / "cdr" / "corpora" / "privacy.jsonl.gz"
    given = ["--corpus", str(corpus), "--config", REFERENCE]
    assert main(["cdr", *given, "--out", str(tmp_path), "--workers", "1"]) == 0
    lines = (tmp_path / "pipeline.jsonl").open(encoding="utf-8")
    got = alone(map(json.loads, lines))
    assert len({row["kind"] for row in got}) == 4
    assert got == alone(vectors("pipeline_expected"))


@pytest.mark.slow
@needs_full_vectors
def test_the_reference_pipeline_is_reproduced_in_shards(tmp_path: Path) -> None:
    given = ["--corpus", str(SHARED / "cdr" / "corpora"), "--config", REFERENCE]
    in_three_shards("cdr", *given, "--out", str(tmp_path), "--workers", "2")
    got = [json.loads(line) for line in (tmp_path / "pipeline.jsonl").open(encoding="utf-8")]
    for number, (mine, theirs) in enumerate(zip(got, vectors("pipeline_expected"), strict=True)):
        assert mine == theirs, f"row {number}"
