"""What verl 0.9.1 does in silence, and that it cannot happen here. Traps by the numbers of the
list in train/backends/verl/__init__.py; those that other files pin are named there."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path

import pytest
from places import ROOT

from configs.loader import load
from configs.schema import GrpoRunConfig
from train.memory import grpo_report

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
needs_verl = pytest.mark.skipif(
    importlib.util.find_spec("verl") is None, reason="the extra `cluster` is not installed"
)


def test_trap_14_a_truncated_policy_is_said_before_the_run(tiny_folder: Path) -> None:
    small = [f"model.path={tiny_folder}", "cluster.device=cpu", "cluster.gpus_per_node=1"]
    dare = [*small, "rl.preset=dare", "rl.max_length=2048", "rl.max_new_tokens=512"]
    for words, said in ((small, False), (dare, True)):
        assert ("truncated policy" in grpo_report(load(GrpoRunConfig, None, words))) is said


@needs_verl
def test_trap_16_entropy_is_also_logged_in_nats() -> None:
    import torch
    from verl.trainer.ppo.core_algos import agg_loss

    from train.backends.verl.trainer import entropy_nats

    rows, masks = [[1.0, 9.0, 2.0], [3.0]], [[1, 0, 1], [1]]
    nested = [
        torch.nested.as_nested_tensor([torch.tensor(r) for r in part], layout=torch.jagged)
        for part in (rows, masks)
    ]
    assert entropy_nats(*nested) == pytest.approx(2.0)
    padded = torch.tensor([[1.0, 9.0, 2.0], [3.0, 0.0, 0.0]])
    mask = torch.tensor([[1, 0, 1], [1, 0, 0]])
    verls = agg_loss(padded, mask, "seq-mean-token-sum-norm", loss_scale_factor=100)
    assert float(verls) == pytest.approx(2.0 * 3 / 2 / 100)  # 3 tokens, 2 rows, normaliser 100


def test_trap_19_nobody_is_sent_to_an_extra_that_cannot_be_resolved() -> None:
    extras = PROJECT["optional-dependencies"]
    assert not [need for needs in extras.values() for need in needs if "verl[" in need]
    lines = (ROOT / "slurm" / "gpu-overrides.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert pins == ["transformers==5.9.0"]
    assert "transformers>=5.9,<5.11" in extras["cluster"]  # what verl takes, the override too
