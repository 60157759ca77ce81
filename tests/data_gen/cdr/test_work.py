"""The same bytes however a build is cut up: by workers, shards, parts, and kills on the way."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from front import command
from places import ROOT, SHARED
from vectors import needs_full_vectors, vectors

from benchmarks.cdr_corpus import documents
from data_gen.cdr.cli import MAPS, STAGES
from data_gen.cdr.rows import sha256
from rewards.gold import RECIPE_PARAMS, Step, execute

pytest.importorskip("duckdb", reason="needs the extra `build`")
main = command("tasks")
SMALL = (
    *("instances.min_keep=1", "instances.min_drop=1", "instances.min_groups=1"),
    *("instances.per_variant=2", "instances.per_operator=2", "instances.groups_per_family=2"),
    *("mining.min_support=2", "mining.min_recipe_support=2", "mining.max_families=2"),
    *("mining.max_recipes_per_family=2", "library.max_filters_per_recipe=1"),
    *("compose.per_domain=1", "compose.min_support=3", "instruct.all_prompts=true"),
)
KILLED = """
import os, signal, sys
from pathlib import Path
import assay

real, moved, last = Path.replace, 0, int(sys.argv[1])

def replace(self, target):
    global moved
    moved += 1
    if moved == last:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(self, target)

Path.replace = replace
assay.main(sys.argv[2:])
"""


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


def in_stages(corpus: Path, out: Path, shards: int, part: int) -> None:
    for stage in STAGES:
        for shard in range(shards if stage in MAPS else 1):
            cut = ["--shards", str(shards), "--shard", str(shard), "--part", str(part)]
            assert main(words(corpus, out, "--stage", stage, *cut)) == 0


def test_workers_shards_and_parts_do_not_change_a_byte(
    corpus: Path, whole: dict[str, bytes], tmp_path: Path
) -> None:
    elsewhere = shutil.copytree(corpus, tmp_path / "elsewhere" / corpus.name)
    assert main(words(elsewhere, tmp_path / "two", "--workers", "2", "--part", "24")) == 0
    in_stages(corpus, tmp_path / "shards", 3, 9)
    assert files(tmp_path / "shards") == whole
    moved = files(tmp_path / "two")  # whose record names the corpus as the command did
    assert moved | {"provenance.json": b""} == whole | {"provenance.json": b""}
    assert not any(str(corpus.parent).encode() in data for data in moved.values())


def test_a_build_that_is_killed_twice_goes_on_to_the_same_bytes(
    corpus: Path, whole: dict[str, bytes], tmp_path: Path
) -> None:
    given = words(corpus, tmp_path, "--part", "24")
    for last in ("16", "22"):
        code = [sys.executable, "-c", KILLED, last, "tasks", *given]
        killed = subprocess.run(code, cwd=ROOT, capture_output=True)
        assert killed.returncode == -signal.SIGKILL
        assert any(tmp_path.rglob("facts-*/*.parquet"))
    assert main(given) == 0
    assert files(tmp_path) == whole


def test_what_a_stage_left_is_not_made_again(corpus: Path, tmp_path: Path) -> None:
    given = words(corpus, tmp_path, "--part", "24", "--stage")
    assert main([*given, "facts"]) == 0
    (path, *_) = sorted((tmp_path / ".work").rglob("facts-*/*.parquet"))
    before = path.stat().st_mtime_ns
    (tmp_path / ".work" / "facts-00000" / "done").unlink()
    for other in sorted((tmp_path / ".work").rglob("facts-*/*.parquet"))[1:]:
        other.unlink()
    assert main([*given, "facts"]) == 0
    assert path.stat().st_mtime_ns == before


def test_corpora_that_number_their_rows_alike_are_both_used(tmp_path: Path) -> None:
    made = [json.dumps(row | {"id": n % 25}) for n, row in enumerate(documents(50))]
    for folder, rows in (("a", made[:25]), ("b", [made[3], *made[25:], made[30]])):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "docs.jsonl").write_text("\n".join(rows), encoding="utf-8")
    given = [str(tmp_path / folder / "docs.jsonl") for folder in "ab"]
    given = ["cdr", "--corpus", given[0], "--corpus", given[1], *SMALL, "--workers", "1"]
    given += ["tracks=false"]
    found: list[dict[str, bytes]] = []
    for part in ("1000", "7"):
        assert main([*given, "--out", str(tmp_path / part), "--part", part]) == 0
        found.append(files(tmp_path / part))
    assert found[0] == found[1]
    refused = [json.loads(line) for line in found[0]["refused.jsonl"].splitlines()]
    twice = [row["why"][0] for row in refused if "twice" in row["why"][0]]
    assert twice.count("id '3' occurs twice") == 1  # the same document again
    used = [json.loads(line) for line in found[0]["pipeline.jsonl"].splitlines()]
    names = {row["doc_id"] for row in used if row["kind"] == "pipeline_activation"}
    assert {"0", "docs.jsonl 2#0", "docs.jsonl 2#24"} <= names


def test_a_file_of_the_work_folder_that_is_cut_off_is_named(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = words(corpus, tmp_path, "--stage")
    assert main([*given, "facts"]) == 0
    (path,) = (tmp_path / ".work").rglob("*.packed")
    path.write_bytes(path.read_bytes()[:2000])
    capsys.readouterr()
    assert main([*given, "library"]) == 2
    assert "00000.packed: is cut off or damaged; remove it" in capsys.readouterr().err


def test_stages_out_of_turn_and_other_builds_are_refused(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = words(corpus, tmp_path)
    shards = ["--shards", "2", "--stage"]
    assert main([*given, *shards, "facts"]) == 0
    capsys.readouterr()
    for more, said in (
        ([*shards, "library"], "run it: --stage facts --shard 1"),
        ([*shards, "traces"], "run --stage library"),
        (["--shards", "2"], "--shards needs --stage"),
        ([*shards, "facts", "--shard", "2"], "--shard 2: wanted 0 to 1"),
        (["--shards", "3", "--stage", "facts"], "an unfinished build with other --shards"),
        ([*shards, "facts", "instruct.seed=4"], "an unfinished build with other settings"),
    ):
        assert main([*given, *more]) == 2
        assert said in capsys.readouterr().err
    assert main(["cdr", "--corpus", str(corpus / "all.jsonl"), *given[3:], *shards, "facts"]) == 0
    capsys.readouterr()


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
    groups = [r["order_group_instance_id"] for r in made if r["track"] == "order_sensitivity"]
    assert set(Counter(groups).values()) == {3}
    pairs = [row for row in rows if row["kind"] == "pipeline_order_m"]
    assert pairs
    for pair in pairs:
        run = execute(texts[pair["doc_id"]], [Step(n) for n in pair["swapped_operator_sequence"]])
        assert sha256(run.text) == pair["swapped_sha256"] != pair["canonical_sha256"]


def test_a_build_without_tracks_writes_the_construction_alone(
    corpus: Path, whole: dict[str, bytes], tmp_path: Path
) -> None:
    """And one in a single command does not go on from another one."""
    assert main(words(corpus, tmp_path, "--stage", "facts", "instances.min_active=3")) == 0
    assert main(words(corpus, tmp_path, "tracks=false")) == 0
    found = files(tmp_path)
    assert found["pipeline.jsonl"] == whole["pipeline.jsonl"]
    assert set(found) == {"pipeline.jsonl", "config.yaml", "refused.jsonl", "provenance.json"}


@pytest.mark.slow
@needs_full_vectors
def test_the_reference_pipeline_is_reproduced_in_shards(tmp_path: Path) -> None:
    reference = str(ROOT / "configs" / "cdr_reference.yaml")
    corpora = str(SHARED / "cdr" / "corpora")
    for stage in STAGES:
        for shard in range(3 if stage in MAPS else 1):
            given = ["--corpus", corpora, "--out", str(tmp_path), "--config", reference]
            cut = ["--shards", "3", "--shard", str(shard), "--stage", stage, "--workers", "2"]
            assert main(["cdr", *given, *cut]) == 0
    got = [json.loads(line) for line in (tmp_path / "pipeline.jsonl").open(encoding="utf-8")]
    for number, (mine, theirs) in enumerate(zip(got, vectors("pipeline_expected"), strict=True)):
        assert mine == theirs, f"row {number}"
