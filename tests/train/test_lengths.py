"""Lengths that are left to the data: the longest text, the model's context, memory, or as begun."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from sft_runs import toy_tasks

from configs.machine import EngineConfig, ModelConfig
from configs.schema import GrpoConfig, SftConfig
from train import lengths
from train.cli.training import sft
from train.lengths import Measured, Room, fit_rl, fit_sft, room_of, unfitted

SIZES = (40, 100, 300)
TEXT, EPISODE = Measured(200, 400, False), Measured(200, 0, True)


def test_sft_takes_the_longest_example_within_its_bounds(tmp_path: Path) -> None:
    for room, length, said in (
        (Room(), 300, "the longest of 3 examples"),
        (Room(context=128), 128, "the model's context is 128; 1 of 3"),
        (Room(context=128, memory=64), 64, "memory allows about 64"),
    ):
        made, why = fit_sft(SftConfig(), SIZES, room)
        assert made.max_length == length and said in why
    assert fit_sft(SftConfig(max_length=77), SIZES, Room(128)) == (SftConfig(max_length=77), "")
    kept = {"sft": {"max_length": 250}, "rl": {"max_new_tokens": 40, "max_length": 90}}
    (tmp_path / "run.json").write_text(json.dumps({"config": kept}))  # a run that has begun
    assert fit_sft(SftConfig(), SIZES, Room(128), str(tmp_path))[0].max_length == 250
    rl, _ = fit_rl(GrpoConfig(), TEXT, Room(), str(tmp_path))
    assert (rl.max_new_tokens, rl.max_length) == (40, 90)


@pytest.mark.parametrize(
    ("found", "room", "given", "fitted"),
    [
        (Measured(200, 30, False), Room(), (0, 0), (96, 296)),
        (TEXT, Room(), (0, 0), (600, 800)),
        (TEXT, Room(context=700), (0, 0), (350, 700)),
        (EPISODE, Room(context=4096), (0, 0), (1024, 4096)),
        (EPISODE, Room(), (0, 0), (1024, 200 + 5 * 1024 + 4 * 512)),
        (TEXT, Room(), (10, 0), (10, 210)),  # what is explicit holds, and the other follows
        (TEXT, Room(), (0, 300), (150, 300)),
    ],
)
def test_rl_has_room_for_gold_behind_the_longest_prompt(
    found: Measured, room: Room, given: tuple[int, int], fitted: tuple[int, int]
) -> None:
    asked = GrpoConfig(max_new_tokens=given[0], max_length=given[1])
    made, _ = fit_rl(asked, found, room)
    assert (made.max_new_tokens, made.max_length) == fitted


def test_room_knows_the_context_and_shrinks_with_memory(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = EngineConfig(device="cpu", dtype="float32")

    def room(free: int | None) -> Room:
        monkeypatch.setattr(lengths, "available_memory", lambda: free)
        return room_of(tiny_folder, engine, ModelConfig())

    found = [room(free).memory for free in (10_000_000_000, 100_000_000, 0)]
    assert found[0] > found[1] > found[2] == 64
    assert room(None) == Room(2048)
    assert room_of("owner/unknown-model", engine, ModelConfig()) == Room()
    assert unfitted(GrpoConfig(), str(tiny_folder)).max_length == 2048


SMALL = ["engine.dtype=float32", "engine.threads=1", "engine.device=cpu", "sft.batch_size=2"]


def test_defaults_train_on_any_length_and_find_the_validation_file(
    tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = toy_tasks(tmp_path / "train.jsonl", 2)
    toy_tasks(tmp_path / "validation.jsonl", 34)
    words = ["--tasks", str(data), "--model", str(tiny_folder), *SMALL]
    words += ["eval.max_new_tokens=2", "--out", str(tmp_path / "o")]
    assert sft([*words, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "(auto): the longest of 2 examples" in said and "validation.jsonl, 32 tasks" in said
    assert sft(words) == 0
    said = capsys.readouterr().out
    assert "validation 3/3" in said and "32 tasks" in said
    assert (tmp_path / "o" / "best" / "trained_on.bin").is_file()
