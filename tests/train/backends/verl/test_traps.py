"""What verl 0.9.1 does in silence, and that it cannot happen here. Traps by the numbers of the
list in train/backends/verl/__init__.py; those that other files pin are named there."""

from __future__ import annotations

import asyncio
import importlib.util
import tomllib
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

from configs.loader import load
from configs.schema import GrpoRunConfig
from train.memory import grpo_report

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
needs_verl = pytest.mark.skipif(
    importlib.util.find_spec("verl") is None, reason="the extra `cluster` is not installed"
)


@needs_verl
def test_trap_06_a_reward_that_raises_is_why_ours_never_does() -> None:
    """verl's worker passes the exception on, and its trainer then leaves the group out."""
    import numpy as np
    import torch
    from transformers import AutoTokenizer  # noqa: F401  (verl's manager wants it imported)
    from verl import DataProto
    from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager

    from rewards.adapters import verl_compute_score

    ids = torch.tensor([[1]])
    data = DataProto.from_dict(
        {"prompts": ids, "responses": ids, "attention_mask": torch.ones_like(ids)},
        {
            "data_source": np.array(["x"], object),
            "extra_info": np.array([{}], object),
            "reward_model": np.array([{"ground_truth": "not a task"}], object),
        },
    )

    class Tokenizer:
        def decode(self, ids: Any, **more: Any) -> str:
            return "x"

    async def ask(score: Any) -> Any:
        return await NaiveRewardManager({}, Tokenizer(), score).run_single(data)

    def raising(**unused: Any) -> float:
        raise ValueError("x")

    with pytest.raises(ValueError):
        asyncio.run(ask(raising))
    found = asyncio.run(ask(verl_compute_score))
    assert found["reward_extra_info"] == {"score": 0.0, "acc": 0.0, "valid": 0.0}


@needs_verl
def test_trap_14_log_probabilities_are_the_full_distributions(tiny_folder: Path) -> None:
    """Of the CPU device's server as of SGLang: before top-p and top-k, after the temperature."""
    import torch
    from verl_cpu_rollout import Server

    from rollouts.prompts import ChatTokenizer

    prompt = ChatTokenizer(tiny_folder).prompt([{"role": "user", "content": "a b"}])
    server = Server(str(tiny_folder), 4096)
    asked = {"max_new_tokens": 12, "temperature": 0.7, "top_k": 2, "top_p": 0.9, "seed": 5}
    out = asyncio.run(server.generate("r", prompt, asked))
    with torch.no_grad():
        logits = server.module(torch.tensor([[*prompt, *out.token_ids]])).logits[0].float()
    full = (logits[len(prompt) - 1 : -1] / 0.7).log_softmax(-1)
    chosen = full[range(len(out.token_ids)), out.token_ids]
    assert torch.allclose(chosen, torch.tensor(out.log_probs), atol=1e-5)
    among_two = full.topk(2).values.logsumexp(-1)
    assert (chosen < among_two - 1).any()  # the truncated policy's would be far larger


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
