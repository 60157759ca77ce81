"""Checkpoints: whole or absent under SIGKILL, exact, and closed to a changed run."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from places import ROOT

from configs.loader import locked
from configs.schema import SftRunConfig
from train.run import checkpoint
from train.run.checkpoint import CheckpointError, Checkpoints, restore_random


@dataclass(frozen=True)
class Config:
    lr: float = locked(1e-5)
    out: str = "here"


def store(folder: Path, keep: int = 2) -> Checkpoints:
    return Checkpoints(folder, Config(), keep)


def groups(value: float) -> dict[str, dict[str, torch.Tensor]]:
    return {
        "model": {"w": torch.full((4, 3), value, dtype=torch.bfloat16)},
        "optimiser": {"master.w": torch.full((4, 3), value), "step": torch.tensor(value)},
    }


def test_what_is_saved_comes_back_bit_for_bit(tmp_path: Path) -> None:
    torch.manual_seed(3)
    base = torch.randn(3, 4)
    model = {"a": base, "b": torch.randn(2, 2).to(torch.bfloat16), "tied": base}
    model |= {"row": base[1], "column": base[:, 2]}
    store(tmp_path).write(7, {"model": model})
    got = store(tmp_path).newest()
    assert got is not None and got.step == 7 and got.path.name == "step_000007"
    for name, tensor in model.items():
        assert torch.equal(got.tensors["model"][name], tensor)
        assert got.tensors["model"][name].dtype == tensor.dtype
    assert (tmp_path / "latest").read_text() == "step_000007\n"


def test_random_states_continue_where_they_stood(tmp_path: Path) -> None:
    def draw() -> tuple[float, float, float, float]:
        return random.gauss(0, 1), float(np.random.normal()), torch.rand(1).item(), random.random()

    draw()
    store(tmp_path).write(1, {})
    wanted = [draw(), draw()]
    got = store(tmp_path).newest()
    assert got is not None
    restore_random(got)
    assert [draw(), draw()] == wanted


DAMAGE = {
    "no manifest": ("manifest.json", None),
    "no file": ("optimiser.safetensors", None),
    "short file": ("optimiser.safetensors", lambda data: data[:10]),
    "bad manifest": ("manifest.json", lambda data: b"["),
    **{
        f"a flipped bit of {name}": (
            name,
            lambda data: (
                data[: -len(data) // 3]
                + bytes([data[-len(data) // 3] ^ 4])
                + data[-len(data) // 3 + 1 :]
            ),
        )
        for name in ("optimiser.safetensors", "meta.json", "manifest.json")
    },
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_skipped_and_its_place_used_again(
    tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert store(tmp_path).newest() is None and store(tmp_path / "none").newest() is None
    for step in (0, 1, 2):
        store(tmp_path).write(step, groups(step))
    name, change = DAMAGE[damage]
    place = tmp_path / "step_000002" / name
    if change is None:
        place.unlink()
    else:
        place.write_bytes(change(place.read_bytes()))
    got = store(tmp_path).newest()
    assert got is not None and got.step == 1
    assert not damage.startswith("a flipped") or "step_000002: damaged" in capsys.readouterr().err
    store(tmp_path).write(2, groups(3.0))
    again = store(tmp_path).newest()
    assert again is not None and again.step == 2 and again.tensors["model"]["w"][0, 0] == 3.0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["latest", "step_000001", "step_000002"]


def test_a_changed_locked_field_is_refused_by_name(tmp_path: Path) -> None:
    store(tmp_path).write(1, {})
    with pytest.raises(
        CheckpointError, match=r"lr was 1e-05 and is 0\.002; put the old value back"
    ):
        Checkpoints(tmp_path, Config(lr=2e-3)).newest()
    assert Checkpoints(tmp_path, Config(out="elsewhere")).newest() is not None


def test_too_little_disk_is_said_before_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "tensor_bytes", lambda tensors: 10**18)
    with pytest.raises(CheckpointError, match="the checkpoint of step 3 needs 1000000000"):
        store(tmp_path).write(3, groups(1.0))
    assert list(tmp_path.iterdir()) == []


WRITER = """
import sys, itertools
from pathlib import Path
import torch
from configs.schema import SftRunConfig
from train.run.checkpoint import Checkpoints
store = Checkpoints(Path(sys.argv[1]), SftRunConfig())
torch.set_num_threads(1)
last = store.newest()
print("ready", flush=True)
for step in itertools.count(last.step + 1 if last else 1):
    value = float(step % 1000)
    w, m = torch.full((400, 500), value), torch.full((300_000,), value)
    store.write(step, {"model": {"w": w}, "optimiser": {"m": m}})
"""


@pytest.mark.parametrize(
    "delays", [(0.11, 0.023), pytest.param((0.301, 0.057, 0.17, 0.09), marks=pytest.mark.slow)]
)
def test_sigkill_in_the_middle_never_loses_a_finished_checkpoint(
    tmp_path: Path, delays: tuple[float, ...]
) -> None:
    source, before = tmp_path / "writer.py", 0
    source.write_text(WRITER)
    folder = tmp_path / "run"
    root = str(ROOT)
    for delay in delays:
        child = subprocess.Popen(
            [sys.executable, str(source), str(folder)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": root},
        )
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        deadline = time.monotonic() + 20
        while not (folder / "latest").exists() and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(delay)
        pointed = int((folder / "latest").read_text().strip().removeprefix("step_"))
        child.send_signal(signal.SIGKILL)
        child.wait()
        got = Checkpoints(folder, SftRunConfig()).newest()
        assert got is not None and got.step >= pointed > 0 and got.step >= before
        before = got.step
        for named in got.tensors.items():
            if named[0] != "random":
                assert all(bool((t == float(got.step % 1000)).all()) for t in named[1].values())
        assert got.meta["step"] == got.step


def test_after_a_kill_latest_names_the_newest_and_nothing_is_left(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        store(tmp_path, 3).write(step, groups(1.0))
    (tmp_path / "latest").write_text("step_000002\n")
    (tmp_path / ".tmp-latest").write_text("step_000003\n")
    (tmp_path / ".tmp-000004-7").mkdir()
    (tmp_path / "step_000001" / "meta.json").unlink()
    got = store(tmp_path).newest()
    assert got is not None
    store(tmp_path, 3).tidy(got)
    assert (tmp_path / "latest").read_text() == "step_000003\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "latest",
        "step_000002",
        "step_000003",
    ]
