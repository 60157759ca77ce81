"""LoRA under verl: the exported model is the base with what the adapters learned."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import load_file, save_file  # noqa: E402

from train.backends.verl.export import META, read_adapters, save_merged  # noqa: E402
from train.model.folder import AdapterError  # noqa: E402

STEM = "base_model.model.model.layers.0.self_attn.q_proj"
TARGET = "model.layers.0.self_attn.q_proj.weight"


def pair(rank: int = 2, width: int = 6, out: int = 8) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(3)
    return {
        f"{STEM}.lora_A.weight": torch.randn(rank, width, generator=generator),
        f"{STEM}.lora_B.weight": torch.randn(out, rank, generator=generator),
    }


def checkpoint(folder: Path, adapters: dict[str, Any]) -> Path:
    """Shards as verl saves them on one rank."""
    folder.mkdir()
    (folder / "fsdp_config.json").write_text(json.dumps({"world_size": 1}))
    (folder / META).write_text(json.dumps({"r": 2, "lora_alpha": 8}))
    named = {name.replace(".weight", ".default.weight"): t for name, t in adapters.items()}
    named["base_model.model.model.norm.weight"] = torch.ones(6)
    torch.save(named, folder / "model_world_size_1_rank_0.pt")
    return folder


def test_a_checkpoint_and_another_base_model_are_told_apart(tmp_path: Path) -> None:
    actor = checkpoint(tmp_path / "actor", pair())
    assert read_adapters(actor).keys() == pair().keys()
    base = tmp_path / "base"
    base.mkdir()
    save_file({"model.norm.weight": torch.ones(6)}, base / "model.safetensors")
    with pytest.raises(AdapterError, match=r"lora_A.weight fits no weight of the base model"):
        save_merged(actor, base, tmp_path / "m")
    save_file({TARGET: torch.ones(8, 6)}, base / "model.safetensors")
    save_merged(actor, base, tmp_path / "m")
    a, b = pair().values()
    merged = load_file(tmp_path / "m" / "model.safetensors")
    assert torch.allclose(merged[TARGET], torch.ones(8, 6) + 4 * (b @ a))


RANK = """
import os, sys, torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
folder, other = sys.argv[1], os.fork()
rank = int(other == 0)
dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("fsdp",))
whole = torch.load(f"{folder}/whole.pt")
cut = {name: distribute_tensor(tensor, mesh, [Shard(0)]) for name, tensor in whole.items()}
torch.save(cut, f"{folder}/model_world_size_2_rank_{rank}.pt")
sys.exit(other and os.waitpid(other, 0)[1])
"""


def test_shards_of_two_ranks_are_put_together(tmp_path: Path) -> None:
    """Three rows on two ranks: one has two, the other one."""
    adapters = pair(rank=3)
    torch.save(adapters, tmp_path / "whole.pt")
    (tmp_path / "fsdp_config.json").write_text(json.dumps({"world_size": 2}))
    subprocess.run([sys.executable, "-c", RANK, str(tmp_path)], timeout=600, check=True)
    found = read_adapters(tmp_path)
    assert found.keys() == adapters.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in adapters.items())


@pytest.mark.slow
def test_rl_with_adapters_on_two_devices_resumes_and_exports(tmp_path: Path) -> None:
    """Shards of two ranks; the sampler has the trainer's weights at every step, and the last
    validation's greedy answers are the exported model's."""
    pytest.importorskip("verl", reason="the extra `cluster` is not installed")
    from tiny_model import CHAT_TEMPLATE
    from tool_model import tasks, write_model
    from verl_run import greedy, grpo, logged

    (tmp_path / "m").mkdir()
    write_model(tmp_path / "m", CHAT_TEMPLATE)
    tasks(4, tmp_path / "train.jsonl")
    tasks(3, tmp_path / "held.jsonl", tools=False)
    more = ["model.lora_rank=4", "rl.lr=2e-2", "cluster.gpus_per_node=2"]
    grpo(tmp_path, "rl.steps=1", *more)
    grpo(tmp_path, "rl.steps=2", *more)
    rows = logged(tmp_path)
    assert [row["training/global_step"] for row in rows] == [1, 2]
    assert all(row["training/rollout_probs_diff_max"] < 1e-4 for row in rows)
    assert rows[0]["actor/grad_norm"] > 0  # so high a rate may leave no reward to the next step
    before = load_file(tmp_path / "m" / "model.safetensors")
    after = load_file(tmp_path / "run" / "model" / "model.safetensors")
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {name for name in before if "proj" in name}
    lines = (tmp_path / "run" / "validation" / "2.jsonl").read_text().splitlines()
    answers = [json.loads(line)["output"] for line in lines]
    assert sorted(answers) == sorted(greedy(tmp_path / "run" / "model", tmp_path / "held.jsonl"))
