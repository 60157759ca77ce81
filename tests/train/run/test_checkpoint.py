"""Checkpoints: whole or absent under SIGKILL, and exact."""

from __future__ import annotations

import os
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from configs.schema import SftRunConfig
from train.run.checkpoint import Checkpoints, restore_random


def store(folder: Path, keep: int = 2) -> Checkpoints:
    return Checkpoints(folder, SftRunConfig(), keep)


def groups(value: float) -> dict[str, dict[str, torch.Tensor]]:
    return {"optimiser": {"master.w": torch.full((4, 3), value), "step": torch.tensor(value)}}


def test_what_is_saved_comes_back_bit_for_bit_and_random_states_go_on(tmp_path: Path) -> None:
    def draw() -> tuple[float, float, float, float]:
        return random.gauss(0, 1), float(np.random.normal()), torch.rand(1).item(), random.random()

    torch.manual_seed(3)
    base = torch.randn(3, 4)
    model = {"a": base, "b": torch.randn(2, 2).to(torch.bfloat16), "tied": base}
    model |= {"row": base[1], "column": base[:, 2]}
    draw()
    store(tmp_path).write(7, {"model": model})
    wanted = [draw(), draw()]
    got = store(tmp_path).newest()
    assert got is not None and got.step == 7 and got.path.name == "step_000007"
    for name, tensor in model.items():
        assert torch.equal(got.tensors["model"][name], tensor)
        assert got.tensors["model"][name].dtype == tensor.dtype
    assert (tmp_path / "latest").read_text() == "step_000007\n"
    restore_random(got)
    assert [draw(), draw()] == wanted


@pytest.mark.parametrize("damage", ["gone", "cut", "flipped"])
@pytest.mark.parametrize("name", ["manifest.json", "optimiser.safetensors", "meta.json"])
def test_a_damaged_checkpoint_is_skipped_and_its_place_used_again(
    tmp_path: Path, name: str, damage: str
) -> None:
    assert store(tmp_path).newest() is None and store(tmp_path / "none").newest() is None
    for step in (0, 1, 2):
        store(tmp_path).write(step, groups(step))
    place = tmp_path / "step_000002" / name
    data = bytearray(place.read_bytes())
    data[-len(data) // 3] ^= 4
    place.write_bytes(data if damage == "flipped" else data[:10])
    if damage == "gone":
        place.unlink()
    got = store(tmp_path).newest()
    assert got is not None and got.step == 1
    store(tmp_path).write(2, groups(3.0))
    again = store(tmp_path).newest()
    assert again is not None and again.step == 2 and again.tensors["optimiser"]["step"] == 3.0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["latest", "step_000001", "step_000002"]


@pytest.mark.parametrize("at", [*range(0, 9, 2), 99])
def test_a_kill_while_one_is_written_over_leaves_the_old_or_the_new(
    tmp_path: Path, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the flushes to the disk and the renames, one after another."""
    for step in (1, 2):
        store(tmp_path).write(step, groups(1.0))
    left = [at]

    def dying(real: Any) -> Any:
        def call(*args: Any, **more: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            return real(*args, **more)

        return call

    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        for name in ("rename", "replace", "fsync"):
            patch.setattr(os, name, dying(getattr(os, name)))
        store(tmp_path).write(2, groups(2.0))
    got = store(tmp_path).newest()
    assert got is not None and got.step == 2
    assert float(got.tensors["optimiser"]["step"]) in ((1.0, 2.0) if at < 99 else (2.0,))
    store(tmp_path).write(2, groups(3.0))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["latest", "step_000001", "step_000002"]
