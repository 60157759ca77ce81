"""`assay select` over files of any size: the same choice, held on disk."""

from __future__ import annotations

import gzip
import json
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from front import command
from picked import select

from assay.console import Progress
from data_gen.selection import store as module
from data_gen.selection.store import Store
from data_gen.selection.strategies import PICK, Rules

main = command("select")
pq = pytest.importorskip("pyarrow.parquet")
TRACKS = ("class-IF", "class-MM", "time-CF", "own")


def rollout(rng: random.Random, number: int, tasks: int, **more: Any) -> dict[str, Any]:
    task = rng.randrange(tasks)
    return {
        "task_id": f"t{task}",
        "sample": number,
        "outcome": rng.choice((None, 0.0, 0.4, 0.9, 1.0, 1.0)),
        "reward": 0.5,
        "track": TRACKS[task % len(TRACKS)],
        "family": "table" if task % 2 else "answer",
        "licence": ("CC0", "CC-BY-4.0", "MIT")[task % 3],
        "tokens": rng.randrange(100),
        "wall_s": rng.randrange(5) / 4,
        "tool_calls": [{}] * rng.randrange(3),
        "tools": [],
        "messages": [
            {"role": "user", "content": f"question {task}\u2028"},
            {"role": "assistant", "content": f"answer {rng.randrange(4)}"},
        ],
        "ids": list(range(rng.randrange(9))),
        "loss_mask": [1],
        **more,
    }


def rollouts(count: int, tasks: int = 20, seed: int = 0) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [rollout(rng, number, tasks) for number in range(count)]


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    elif path.suffix == ".zst":
        zstandard = pytest.importorskip("zstandard")
        path.write_bytes(zstandard.ZstdCompressor().compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    return str(path)


def selected(folder: Path, *words: str) -> list[dict[str, Any]]:
    out = folder / "s.parquet"
    assert main([*words, "--out", str(out)]) == 0
    return pq.read_table(out).to_pylist()


def names(rows: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(row["task_id"], row["sample"]) for row in rows]


@pytest.mark.parametrize("strategy", sorted(PICK))
def test_the_index_chooses_what_the_strategy_chooses_of_rows_in_memory(
    strategy: str, tmp_path: Path
) -> None:
    rows = rollouts(400)
    source = write(tmp_path / "r.jsonl", rows)
    wanted = [(str(r["task_id"]), int(r["sample"])) for r in select(rows, strategy, Rules()).rows]
    found = selected(tmp_path, "--rollouts", source, "--strategy", strategy)
    assert wanted and names(found) == wanted
    by_name = {(row["task_id"], row["sample"]): row for row in rows}
    for row in found:
        given = by_name[row["task_id"], row["sample"]]
        assert row["messages"] == given["messages"] and row["ids"] == given["ids"]


def test_compressed_inputs_and_patterns_give_the_same_bytes(tmp_path: Path) -> None:
    rows = rollouts(300)
    parts = [rows[:100], rows[100:200], rows[200:]]
    words = ("--strategy", "av")
    plain = [write(tmp_path / f"part-{i}.jsonl", part) for i, part in enumerate(parts)]
    selected(tmp_path, "--rollouts", *plain, *words)
    bytes_of = (tmp_path / "s.parquet").read_bytes()
    selected(tmp_path, "--rollouts", str(tmp_path / "part-*.jsonl"), *words)
    assert (tmp_path / "s.parquet").read_bytes() == bytes_of
    packed = [write(tmp_path / f"p{i}.jsonl.gz", part) for i, part in enumerate(parts[:2])]
    packed.append(write(tmp_path / "p2.jsonl.zst", parts[2]))
    selected(tmp_path, "--rollouts", *packed, *words)
    assert (tmp_path / "s.parquet").read_bytes() == bytes_of


def test_a_url_is_read_and_its_hash_is_in_the_manifest(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    rows = rollouts(40)
    source = write(tmp_path / "r.jsonl", rows)
    selected(tmp_path, "--rollouts", source, "--strategy", "av")
    manifest = (tmp_path / "s.parquet.manifest.json").read_bytes()
    with fsspec.open("memory://select/r.jsonl", "wb") as file:
        file.write(Path(source).read_bytes())
    selected(tmp_path, "--rollouts", "memory://select/r.jsonl", "--strategy", "av")
    assert (tmp_path / "s.parquet.manifest.json").read_bytes() == manifest


def test_licences_and_caps(tmp_path: Path) -> None:
    source = write(tmp_path / "r.jsonl", rollouts(600))
    words = ("--rollouts", source, "--strategy", "av")
    everything = selected(tmp_path, *words)
    licences = {r["task_id"]: int(r["task_id"][1:]) % 3 for r in everything}
    some = selected(tmp_path, *words, "--licence", "cc-by*", "--licence", "MIT")
    assert {licences[r["task_id"]] for r in some} == {1, 2}
    two = selected(tmp_path, *words, "--per-task", "2")
    counts = {n: sum(r["task_id"] == n for r in two) for n in licences}
    assert set(counts.values()) == {2}
    for name in counts:  # graded tracks keep their best
        own = [r for r in everything if r["task_id"] == name]
        if own[0]["track"] == "class-MM":
            best = sorted((r["outcome"] for r in own), reverse=True)[:2]
            kept = [r["outcome"] for r in two if r["task_id"] == name]
            assert sorted(kept, reverse=True) == best
    few = selected(tmp_path, *words, "--per-track", "7")
    tracks = [r["track"] for r in few]
    assert {t: tracks.count(t) for t in tracks} == dict.fromkeys(TRACKS, 7)
    assert names(few) == [n for n in names(everything) if n in set(names(few))]
    manifest = json.loads((tmp_path / "s.parquet.manifest.json").read_text())
    assert manifest["kept"]["rows"] == 28 and manifest["per_track"] == 7
    over = manifest["dropped"]["over the cap of its track"]
    assert over == len(everything) - 28


def test_a_cap_of_a_track_does_not_depend_on_the_order_of_rollouts(tmp_path: Path) -> None:
    rows = rollouts(200)
    turned = write(tmp_path / "turned.jsonl", rows[::-1])
    source = write(tmp_path / "r.jsonl", rows)
    words = ("--strategy", "av", "--per-track", "5")
    assert selected(tmp_path, "--rollouts", source, *words) == selected(
        tmp_path, "--rollouts", turned, *words
    )


def test_of_rollouts_that_say_the_same_one_is_kept(tmp_path: Path) -> None:
    rows = rollouts(300, tasks=6)
    rows.append(rows[0] | {"task_id": "zz", "sample": 0, "outcome": 1.0})
    words = ("--rollouts", write(tmp_path / "r.jsonl", rows), "--strategy", "av")
    found = selected(tmp_path, *words, "--deduplicate")
    said = [json.dumps(row["messages"]) for row in found]
    assert len(said) == len(set(said)) == len({json.dumps(r["messages"]) for r in rows[:-1]})
    manifest = json.loads((tmp_path / "s.parquet.manifest.json").read_text())
    assert manifest["dropped"]["says what another one says"] > 100
    assert sum(manifest["dropped"].values()) + manifest["kept"]["rows"] == len(rows)


def test_a_large_set_is_written_in_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "r.jsonl", rollouts(300))
    words = ("--rollouts", source, "--strategy", "av")
    whole = selected(tmp_path, *words)
    assert pq.ParquetFile(tmp_path / "s.parquet").num_row_groups == 1
    schema = pq.read_schema(tmp_path / "s.parquet")
    monkeypatch.setattr(module, "GROUP_ROWS", 10)
    assert selected(tmp_path, *words) == whole
    assert pq.ParquetFile(tmp_path / "s.parquet").num_row_groups > 5
    assert pq.read_schema(tmp_path / "s.parquet").equals(schema)


def held_by_a_store(folder: Path, count: int) -> int:
    rows = rollouts(count, tasks=count)
    for row in rows:
        row["messages"][0]["content"] = "x" * 2000
    source = write(folder / f"{count}.jsonl", rows)
    store = Store()
    tracemalloc.start()
    try:
        with Progress("", "rows") as bar:
            store.read([source], bar)
            for group in store.groups():
                store.keep(group[0])
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_rollouts(tmp_path: Path) -> None:
    few, many = (held_by_a_store(tmp_path, count) for count in (400, 4000))
    assert many < 1.5 * few + 200_000


def test_caps_below_nothing_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write(tmp_path / "r.jsonl", rollouts(10))
    words = ["--rollouts", source, "--strategy", "av", "--out", str(tmp_path / "s.parquet")]
    assert main([*words, "--per-task", "-1"]) == 2
    assert "per_task=-1: wanted 0 (no cap) or more" in capsys.readouterr().err
