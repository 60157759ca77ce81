"""Shards by arithmetic: every row once, merges that notice what is wrong, items of a list."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.task import write_jsonl
from train.cluster.slurm import Cut, ShardError, merge, rows_of, run_shard


@given(st.integers(0, 400), st.integers(1, 40), st.integers(1, 20))
def test_every_row_is_in_exactly_one_shard(total: int, shards: int, align: int) -> None:
    pieces = [rows_of(total, shards, align, i) for i in range(shards)]
    assert [row for piece in pieces for row in piece] == list(range(total))
    assert all(piece.start % align == 0 for piece in pieces if piece)
    blocks = [-(-len(piece) // align) for piece in pieces]
    assert max(blocks) - min(blocks) <= 1


def double(words: list[str]) -> int:
    """A command that writes two rows for every row it reads."""
    rows = [json.loads(line) for line in Path(words[0]).read_text().splitlines()]
    write_jsonl(words[1], [{"task_id": row["id"], "sample": j} for row in rows for j in (0, 1)])
    return 0


def cut_of(folder: Path, rows: int = 7, shards: int = 3) -> Cut:
    source = folder / "in.jsonl"
    write_jsonl(source, [{"id": f"t{i}"} for i in range(rows)])
    return Cut(source, folder / "shards", shards)


def fill(cut: Cut) -> None:
    for index in range(cut.shards):
        assert run_shard(cut, index, ["{in}", "{out}"], double) == 0


@pytest.mark.parametrize(("rows", "shards"), [(7, 3), (2, 5), (0, 2)])
def test_merged_shards_are_what_one_run_writes(tmp_path: Path, rows: int, shards: int) -> None:
    cut = cut_of(tmp_path, rows, shards)
    fill(cut)
    assert merge(cut, tmp_path / "all.jsonl") == 2 * rows
    double([str(cut.source), str(tmp_path / "whole.jsonl")])
    assert (tmp_path / "all.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_a_packed_input_has_the_shards_of_a_plain_one(tmp_path: Path) -> None:
    cut = cut_of(tmp_path)
    fill(cut)
    packed = Cut(tmp_path / "in.jsonl.gz", tmp_path / "other", cut.shards)
    write_jsonl(packed.source, [{"id": f"t{i}"} for i in range(7)])
    fill(packed)
    for index in range(cut.shards):
        assert cut.output(index).read_bytes() == packed.output(index).read_bytes()


def test_a_finished_shard_is_not_run_again(tmp_path: Path) -> None:
    cut = cut_of(tmp_path)
    fill(cut)

    def never(words: list[str]) -> int:
        raise AssertionError("ran again")

    assert run_shard(cut, 1, ["{in}", "{out}"], never) == 0
    with pytest.raises(ShardError, match="another command"):
        run_shard(cut, 1, ["{in}", "{out}", "--n"], never)
    cut.output(1).write_text("torn")  # a torn file is made again
    assert run_shard(cut, 1, ["{in}", "{out}"], double) == 0
    assert merge(cut, tmp_path / "all.jsonl") == 14


def test_a_stopped_shard_goes_on_from_what_it_wrote(tmp_path: Path) -> None:
    cut = cut_of(tmp_path)

    def half(words: list[str]) -> int:
        Path(words[1]).write_text("half\n")
        return 138  # a signal: no shard

    def rest(words: list[str]) -> int:
        assert Path(words[1]).read_text() == "half\n"
        return double(words)

    assert run_shard(cut, 0, ["{in}", "{out}"], half) == 138
    assert not cut.output(0).exists()
    assert run_shard(cut, 0, ["{in}", "{out}"], rest) == 0
    assert run_shard(cut, 1, ["{in}", "{out}"], half) == 138
    write_jsonl(cut.source, [{"id": f"t{i}"} for i in range(8)])  # another input: begun anew
    assert run_shard(cut, 1, ["{in}", "{out}"], double) == 0


def test_files_of_tasks_lead_to_the_same_place_from_a_shard(tmp_path: Path) -> None:
    source = tmp_path / "tasks" / "t.jsonl"
    write_jsonl(
        source,
        [
            {
                "id": "a",
                "files": {"x.csv": "../tables/x.csv", "y.csv": "/data/y.csv"},
                "no": "\ud800",
            },
            {"id": "b", "text": "files"},
            {"id": "c", "files": ["kept as it is"]},
        ],
    )
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "x.csv").write_text("1")
    seen: list[dict[str, object]] = []

    def look(words: list[str]) -> int:
        lines = Path(words[0]).read_bytes().splitlines(keepends=True)
        assert lines[1:] == source.read_bytes().splitlines(keepends=True)[1:]
        seen.append(json.loads(lines[0]))
        assert (Path(words[0]).parent / seen[0]["files"]["x.csv"]).read_text() == "1"  # type: ignore
        return 0 if Path(words[1]).write_bytes(b"".join(lines)) else 1

    run_shard(Cut(source, tmp_path / "out", 1), 0, ["{in}", "{out}"], look)
    assert seen[0]["files"] == {"x.csv": str(tmp_path / "tables" / "x.csv"), "y.csv": "/data/y.csv"}
    assert merge(Cut(source, tmp_path / "out", 1), tmp_path / "all.jsonl") == 3


def test_a_merge_says_what_is_wrong(tmp_path: Path) -> None:
    cut = cut_of(tmp_path)
    fill(cut)
    target = tmp_path / "all.jsonl"
    whole = cut.output(1).read_bytes()
    cut.output(1).write_bytes(whole + whole)
    with pytest.raises(ShardError, match=r"shard-00001.jsonl is not what its task wrote"):
        merge(cut, target)
    cut.output(1).unlink()
    with pytest.raises(ShardError, match="shard 1 of 3 is missing"):
        merge(cut, target)
    cut.output(1).write_bytes(whole)
    write_jsonl(cut.source, [{"id": f"t{i}"} for i in range(8)])
    with pytest.raises(ShardError, match="made from another input"):
        merge(cut, target)
    assert not target.exists()


def test_a_command_that_loses_or_repeats_a_row_is_found_out(tmp_path: Path) -> None:
    cut = cut_of(tmp_path)

    def losing(words: list[str]) -> int:
        lines = Path(words[0]).read_text().splitlines(keepends=True)
        Path(words[1]).write_text("".join(lines[:-1] + lines[:1]))
        return 0

    for index in range(3):
        run_shard(cut, index, ["{in}", "{out}"], losing)
    with pytest.raises(ShardError, match="row 2 is t0, wanted t1: one is missing or there twice"):
        merge(cut, tmp_path / "all.jsonl")


def test_a_shard_has_one_process(tmp_path: Path) -> None:
    cut = cut_of(tmp_path)

    def meets_another(words: list[str]) -> int:
        with pytest.raises(OSError, match="another process writes to it"):
            run_shard(cut, 0, ["{in}", "{out}"], double)
        return double(words)

    assert run_shard(cut, 0, ["{in}", "{out}"], meets_another) == 0
    assert sorted(path.name for path in cut.folder.iterdir()) == [
        "shard-00000.json",
        "shard-00000.jsonl",
    ]


@pytest.mark.parametrize("text", ['{"input": "x", "ro', "[]", "\0\0"])
def test_a_damaged_record_is_said(tmp_path: Path, text: str) -> None:
    cut = cut_of(tmp_path)
    fill(cut)
    cut.record(1).write_text(text)
    with pytest.raises(ShardError, match=r"shard-00001\.json: damaged; remove it"):
        merge(cut, tmp_path / "all.jsonl")
    assert run_shard(cut, 1, ["{in}", "{out}"], double) == 0
    assert merge(cut, tmp_path / "all.jsonl") == 14
