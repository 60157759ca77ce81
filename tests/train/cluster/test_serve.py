"""An evaluation in parts is the evaluation: same rows, same tables, nothing asked twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from front import command

from assay.task import Task, TaskError, write_jsonl
from configs.loader import ConfigError
from train.cluster.slurm import engine_words, gather, run_part

evaluate, slurm = command("eval"), command("slurm")
PARTS = 3


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    made = []
    for i in range(10):
        gold = {"input_text": f"ax{i}", "status": "KEEP", "text": f"a{i}"}
        prompt = [{"role": "user", "content": f"{i} ax"}]
        made.append(Task(f"t{i}", "refinement", f"toy{i % 2}", "heldout", prompt, gold))
    path = tmp_path / "tasks.jsonl"
    write_jsonl(path, [task.to_json() for task in made])
    return path


def results(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "results.json").read_text())


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


def test_parts_that_do_not_belong_together_are_refused(tasks: Path, tmp_path: Path) -> None:
    words = ["--model", "gold", "--tasks", str(tasks)]
    for index in range(2):
        asked = [*words, "--seed", str(index)]
        assert run_part(tmp_path / "a", index, 2, asked, lambda w: evaluate(w[1:])) == 0
    with pytest.raises(TaskError, match=r"part-1 was asked something else than .*part-0"):
        gather(tmp_path / "a", 2, evaluate)
    with pytest.raises(ConfigError, match="--index 2: wanted 0 to 1"):
        run_part(tmp_path / "a", 2, 2, words, evaluate)


def test_gathering_says_what_is_wrong(
    tasks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--model", "gold", "--tasks", str(tasks)]
    for index in range(2):
        made = [*words, "--out", str(tmp_path / f"p{index}"), "--part", f"{index}/2"]
        assert evaluate(made) == 0
    parts = [str(tmp_path / "p0"), str(tmp_path / "p1")]

    def said(*more: str) -> str:
        asked = words[:2] if "--tasks" in more else words
        assert evaluate([*asked, "--out", str(tmp_path / "all"), *more]) == 2
        return capsys.readouterr().err

    assert "5 answers are in no part, the first of task t1" in said("--gather", parts[0])
    assert "is in another part too" in said("--gather", *parts, parts[0])
    assert "another temperature (was 0.0, is 1.0)" in said(
        "sampling.temperature=1", "--gather", *parts
    )
    other = tmp_path / "other.jsonl"
    other.write_text(tasks.read_text().replace("9 ax", "9 bx"))
    assert "holds answers to other tasks: t9 had" in said("--tasks", str(other), "--gather", *parts)
    assert "this part is not finished" in said("--gather", str(tmp_path))
    assert "wanted I/N, with I from 0 to N-1" in said("--part", "2/2")
    assert "no task is left for it" in said("--part", "11/12")


def test_a_server_is_used_where_one_is_installed_and_there_is_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--model", str(tmp_path)]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert engine_words(words) == []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    (tmp_path / "sglang.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("sys.modules", {**__import__("sys").modules})
    assert engine_words(words) == ["server.kind=sglang"]
    (tmp_path / "vllm.py").touch()
    assert engine_words([f"--model={tmp_path}"]) == ["server.kind=vllm"]
    assert engine_words([*words, "server.kind=embedded"]) == []
    assert engine_words(["--model", "gold"]) == []
