"""Lengths that are left to the data: the longest text, the model's context, memory, or as begun."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from assay.task import Task, write_jsonl
from configs.machine import EngineConfig, ModelConfig
from configs.schema import GrpoConfig, SftConfig
from train.cli.training import sft
from train.lengths import Measured, Room, fit_rl, fit_sft, room_of, unfitted
from train.run.data import training_tasks

SIZES = (40, 100, 300)


def test_sft_takes_the_longest_example_within_its_bounds() -> None:
    made, said = fit_sft(SftConfig(), SIZES, Room())
    assert made.max_length == 300 and "the longest of 3 examples" in said
    made, said = fit_sft(SftConfig(), SIZES, Room(context=128))
    assert made.max_length == 128 and "the model's context is 128; 1 of 3" in said
    made, said = fit_sft(SftConfig(), SIZES, Room(context=128, memory=64))
    assert made.max_length == 64 and "memory allows about 64" in said
    assert fit_sft(SftConfig(max_length=77), SIZES, Room(128)) == (SftConfig(max_length=77), "")


def test_a_run_that_has_begun_keeps_its_lengths(tmp_path: Path) -> None:
    kept = {"sft": {"max_length": 250}, "rl": {"max_new_tokens": 40, "max_length": 90}}
    (tmp_path / "run.json").write_text(json.dumps({"config": kept}))
    made, said = fit_sft(SftConfig(), SIZES, Room(128), str(tmp_path))
    assert made.max_length == 250 and "as this run began" in said
    rl, _ = fit_rl(GrpoConfig(), Measured(500, 300, False), Room(), str(tmp_path))
    assert (rl.max_new_tokens, rl.max_length) == (40, 90)


@pytest.mark.parametrize(
    ("found", "room", "new", "length"),
    [
        (Measured(200, 30, False), Room(), 96, 296),
        (Measured(200, 400, False), Room(), 600, 800),
        (Measured(200, 0, False), Room(), 512, 712),
        (Measured(200, 400, False), Room(context=700), 350, 700),
        (Measured(200, 0, True), Room(context=4096), 1024, 4096),
        (Measured(200, 0, True), Room(), 1024, 200 + 5 * 1024 + 4 * 512),
    ],
)
def test_rl_has_room_for_gold_behind_the_longest_prompt(
    found: Measured, room: Room, new: int, length: int
) -> None:
    made, said = fit_rl(GrpoConfig(), found, room)
    assert (made.max_new_tokens, made.max_length) == (new, length)
    assert f"rl.max_new_tokens={new} rl.max_length={length} (auto)" in said


def test_what_is_explicit_holds_and_the_other_follows() -> None:
    found = Measured(200, 400, False)
    both = GrpoConfig(max_new_tokens=10, max_length=50)
    assert fit_rl(both, found, Room()) == (both, "")
    made, _ = fit_rl(GrpoConfig(max_new_tokens=10), found, Room())
    assert (made.max_new_tokens, made.max_length) == (10, 210)
    made, _ = fit_rl(GrpoConfig(max_length=300), found, Room())
    assert (made.max_new_tokens, made.max_length) == (150, 300)


def test_room_knows_the_context_and_shrinks_with_memory(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from train import lengths

    engine = EngineConfig(device="cpu", dtype="float32")
    found: list[int] = []
    for free in (10_000_000_000, 100_000_000, 0):
        monkeypatch.setattr(lengths, "available_memory", lambda free=free: free)
        room = room_of(tiny_folder, engine, ModelConfig())
        assert room.context == 2048
        found.append(room.memory)
    assert found[0] > found[1] > found[2] == 64
    monkeypatch.setattr(lengths, "available_memory", lambda: None)
    assert room_of(tiny_folder, engine, ModelConfig()).memory == 0
    assert room_of("owner/unknown-model", engine, ModelConfig()) == Room()
    assert unfitted(GrpoConfig(), str(tiny_folder)).max_length == 2048


def write_tasks(path: Path, split: str, count: int) -> None:
    tasks = [
        Task(
            f"{split}{i}",
            "refinement",
            "x",
            split,
            [{"role": "user", "content": f"{split} {i} " * 20}],
            {"input_text": f"{split} {i}", "status": "KEEP", "text": "t " * 20},
        )
        for i in range(count)
    ]
    write_jsonl(path, (t.to_json() for t in tasks))


SMALL = ["engine.dtype=float32", "engine.threads=1", "engine.device=cpu", "sft.batch_size=2"]


def test_defaults_train_on_any_length_and_find_the_validation_file(
    tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tasks(tmp_path / "train.jsonl", "train", 2)
    write_tasks(tmp_path / "validation.jsonl", "validation", 34)
    words = ["--tasks", str(tmp_path / "train.jsonl"), "--model", str(tiny_folder), *SMALL]
    words += ["eval.max_new_tokens=2", "--out", str(tmp_path / "o")]
    assert sft([*words, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "(auto): the longest of 2 examples" in said and "validation.jsonl, 32 tasks" in said
    assert sft(words) == 0
    said = capsys.readouterr().out
    assert "validation 3/3" in said and "32 tasks" in said
    assert (tmp_path / "o" / "best" / "trained_on.bin").is_file()
    assert sft([*words, "validation=null", "--out", str(tmp_path / "p")]) == 0
    assert "validation" not in capsys.readouterr().out
    assert len(training_tasks(str(tmp_path / "validation.jsonl"))) == 34
