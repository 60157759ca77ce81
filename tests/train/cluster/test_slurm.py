"""Shards by arithmetic: every row once, merges that notice what is wrong; an evaluation in parts is
the evaluation: same rows, same tables, nothing asked twice."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from front import command, results
from hypothesis import given
from hypothesis import strategies as st
from sft_runs import toy_tasks

from assay.task import write_jsonl
from train.cluster.slurm import Cut, ShardError, engine_words, merge, rows_of, run_shard

evaluate, slurm = command("eval"), command("slurm")


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


def cut_of(folder: Path, rows: int = 7, shards: int = 3, name: str = "in.jsonl") -> Cut:
    source = folder / name
    write_jsonl(source, [{"id": f"t{i}"} for i in range(rows)])
    return Cut(source, folder / "shards", shards)


def fill(cut: Cut) -> None:
    for index in range(cut.shards):
        assert run_shard(cut, index, ["{in}", "{out}"], double) == 0


@pytest.mark.parametrize("name", ["in.jsonl", "in.jsonl.gz"])
@pytest.mark.parametrize(("rows", "shards"), [(7, 3), (2, 5), (0, 2)])
def test_merged_shards_are_what_one_run_writes(
    tmp_path: Path, rows: int, shards: int, name: str
) -> None:
    cut, plain = cut_of(tmp_path, rows, shards, name), cut_of(tmp_path, rows, shards)
    fill(cut)
    assert merge(cut, tmp_path / "all.jsonl") == 2 * rows
    double([str(plain.source), str(tmp_path / "whole.jsonl")])
    assert (tmp_path / "all.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


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
    files = {"x.csv": "../tables/x.csv", "y.csv": "/data/y.csv"}
    rows = [{"id": "a", "files": files, "no": "\ud800"}, {"id": "b", "text": "files"}]
    cut = Cut(tmp_path / "tasks" / "t.jsonl", tmp_path / "out", 1)
    write_jsonl(cut.source, [*rows, {"id": "c", "files": ["kept as it is"]}])

    def copy(words: list[str]) -> int:
        Path(words[1]).write_bytes(Path(words[0]).read_bytes())
        return 0

    run_shard(cut, 0, ["{in}", "{out}"], copy)
    given, found = (p.read_bytes().splitlines() for p in (cut.source, cut.output(0)))
    assert found[1:] == given[1:]
    moved = json.loads(found[0])["files"]
    assert moved == files | {"x.csv": str(tmp_path / "tables" / "x.csv")}


def test_a_merge_says_what_is_wrong(tmp_path: Path) -> None:
    cut, target = cut_of(tmp_path), tmp_path / "all.jsonl"
    fill(cut)
    output, record = cut.output(1), cut.record(1)
    for file, data, said in (
        (output, output.read_bytes() * 2, r"shard-00001.jsonl is not what its task wrote"),
        (output, None, "shard 1 of 3 is missing"),
        (record, b'{"input": "x", "ro', r"shard-00001\.json: damaged; remove it"),
        (record, b"[]", "damaged"),
    ):
        before = file.read_bytes()
        file.unlink() if data is None else file.write_bytes(data)
        with pytest.raises(ShardError, match=said):
            merge(cut, target)
        file.write_bytes(before)
    record.write_text("[]")
    assert run_shard(cut, 1, ["{in}", "{out}"], double) == 0  # a damaged one is made again
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


# --- parts of an evaluation ----------------------------------------------------------------------

PARTS = 3


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    return toy_tasks(tmp_path / "tasks.jsonl", 10)


def steady(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows without what was measured."""
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]


def part(out: Path, index: int, words: list[str]) -> int:
    return slurm(["part", f"out={out}", "--parts", str(PARTS), "--index", str(index), "--", *words])


def test_parts_together_are_the_whole(tasks: Path, tmp_path: Path, tiny_folder: Path) -> None:
    pytest.importorskip("torch")
    words = ["--model", str(tiny_folder), "--tasks", str(tasks)]
    words += ["sampling.max_new_tokens=4", "engine.threads=1"]
    out, whole = tmp_path / "out", tmp_path / "whole"
    assert [part(out, index, words) for index in range(PARTS)] == [0] * PARTS
    asked = [{row["task_id"] for row in results(out / f"part-{i}")["rows"]} for i in range(PARTS)]
    assert sorted(map(len, asked)) == [3, 3, 4] and len(set.union(*asked)) == 10
    assert slurm(["gather", f"out={out}", "--parts", str(PARTS)]) == 0
    assert evaluate([*words, "--out", str(whole)]) == 0
    one, other = results(out), results(whole)
    assert steady(one["rows"]) == steady(other["rows"])
    assert steady([one["tables"]["overall"]]) == steady([other["tables"]["overall"]])
    assert one["baselines"] == other["baselines"] and one["meta"]["asked"] == 10
    assert (out / "report.html").is_file()


def test_a_finished_part_is_not_run_again_and_a_missing_one_is_said(
    tasks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, out = ["--model", "gold", "--tasks", str(tasks)], tmp_path / "out"
    assert part(out, 0, words) == part(out, 0, words) == 0
    assert "part 0 is done already" in capsys.readouterr().out
    assert slurm(["gather", f"out={out}", "--parts", str(PARTS)]) == 2
    assert "not finished: part-1, part-2; submit the array again" in capsys.readouterr().err
    for index in (1, 2):  # of another seed
        assert part(out, index, [*words, "--seed", "1"]) == 0
    assert slurm(["gather", f"out={out}", "--parts", str(PARTS)]) == 2
    assert "was asked something else than" in capsys.readouterr().err
    assert part(out, 3, words) == 2


def test_gathering_says_what_is_wrong(
    tasks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--model", "gold", "--tasks", str(tasks)]
    for index in range(2):
        made = [*words, "--out", str(tmp_path / f"p{index}"), "--part", f"{index}/2"]
        assert evaluate(made) == 0
    parts = [str(tmp_path / "p0"), str(tmp_path / "p1")]

    other = tmp_path / "other.jsonl"
    other.write_text(tasks.read_text().replace("9 ax", "9 bx"))
    for more, why in (
        (["--gather", parts[0]], "5 answers are in no part, the first of task t1"),
        (["--gather", *parts, parts[0]], "is in another part too"),
        (["sampling.temperature=1", "--gather", *parts], "another temperature (was 0.0, is 1.0)"),
        (["--tasks", str(other), "--gather", *parts], "holds answers to other tasks: t9 had"),
        (["--gather", str(tmp_path)], "this part is not finished"),
    ):
        asked = words[:2] if "--tasks" in more else words
        assert evaluate([*asked, "--out", str(tmp_path / "all"), *more]) == 2
        assert why in capsys.readouterr().err


def test_a_server_is_used_where_one_is_installed_and_there_is_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--model", str(tmp_path)]
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("sys.modules", {**sys.modules})
    for name, gpus, wanted in (("none", "", ""), ("sglang", "0", "sglang"), ("vllm", "0", "vllm")):
        (tmp_path / f"{name}.py").touch()
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpus)
        assert engine_words(words) == ([f"server.kind={wanted}"] if wanted else [])
    assert engine_words([*words, "server.kind=embedded"]) == engine_words(["--model", "gold"]) == []
