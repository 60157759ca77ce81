"""One update by verl's own training worker, configured as we configure it. Run in a process of its
own (verl reads its platform from the environment): `verl_worker.py JOB.pt OUT.pt`."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))
os.environ |= {"VERL_PLATFORM": "cpu", "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
os.environ |= {"MASTER_ADDR": "127.0.0.1", "WG_BACKEND": "ray"}

import torch  # noqa: E402


def build(config: Any) -> Any:
    """What `ActorRolloutRefWorker.init_model` builds for the actor, without Ray."""
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.config import TrainingWorkerConfig
    from verl.workers.engine_workers import TrainingWorker
    from verl.workers.utils.losses import ppo_loss

    part = config.actor_rollout_ref
    model, actor = omega_conf_to_dataclass(part.model), omega_conf_to_dataclass(part.actor)
    actor.model_config = model
    training = TrainingWorkerConfig(
        model_type="language_model",
        model_config=model,
        engine_config=actor.engine,
        optimizer_config=actor.optim,
        checkpoint_config=actor.checkpoint,
    )
    engine = training.engine_config
    engine.use_dynamic_bsz = part.actor.use_dynamic_bsz
    engine.max_token_len_per_gpu = part.actor.ppo_max_token_len_per_gpu
    engine.micro_batch_size_per_gpu = part.actor.ppo_micro_batch_size_per_gpu
    worker = TrainingWorker(training)
    worker.reset()
    worker.set_loss_fn(partial(ppo_loss, config=actor))
    return worker


def batch_of(job: dict[str, Any], config: Any) -> Any:
    """Padded rows as verl's rollout leaves them: prompts end, and answers begin, side by side."""
    from tensordict import TensorDict
    from verl.utils import tensordict_utils as tu
    from verl.workers.utils.padding import left_right_2_no_padding

    rows = job["rows"]
    wide_p = max(len(r["prompt"]) for r in rows)
    wide_r = max(len(r["response"]) for r in rows)
    made: dict[str, list[Any]] = {}
    for row in rows:
        p, r = len(row["prompt"]), len(row["response"])
        left, right = [0] * (wide_p - p), [0] * (wide_r - r)
        prompt, response = left + row["prompt"], row["response"] + right
        seen = [0] * len(left) + [1] * (p + r) + right
        for name, value in {
            "prompts": prompt,
            "responses": response,
            "input_ids": prompt + response,
            "attention_mask": seen,
            "position_ids": [max(0, sum(seen[: i + 1]) - 1) for i in range(len(seen))],
            "response_mask": row["mask"] + right,
            "old_log_probs": row["old"] + [0.0] * len(right),
            "advantages": [row["advantage"] * m for m in row["mask"]] + [0.0] * len(right),
        }.items():
            made.setdefault(name, []).append(value)
    data = TensorDict({k: torch.tensor(v) for k, v in made.items()}, batch_size=len(rows))
    data = left_right_2_no_padding(data)
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    size = actor.ppo_mini_batch_size * rollout.n
    said = {"calculate_entropy": False, "distillation_use_topk": False, "distillation_only": False}
    said |= {"global_batch_size": size, "mini_batch_size": size, "epochs": 1, "seed": 0}
    said |= {"dataloader_kwargs": {"shuffle": False}, "compute_loss": True}
    tu.assign_non_tensor(data, **said, temperature=rollout.temperature)
    return data


def main(job_path: str, out: str) -> None:
    from verl.utils import tensordict_utils as tu
    from verl_cpu import install

    from configs.loader import load
    from configs.schema import GrpoRunConfig
    from train.backends.deepspeed import free_port
    from train.backends.verl.settings import check, compose, overrides

    os.environ["MASTER_PORT"] = str(free_port())
    job = torch.load(job_path, weights_only=False)
    config = compose(overrides(load(GrpoRunConfig, None, job["settings"]), Path(out).parent))
    check(config)
    install()
    worker = build(config)
    output = worker.train_mini_batch(batch_of(job, config))
    state = {
        name: value.full_tensor() if hasattr(value, "full_tensor") else value
        for name, value in worker.engine.module.state_dict().items()
    }
    metrics = {k: v for k, v in tu.get(output, "metrics").items() if k in ("loss", "grad_norm")}
    torch.save({"state": state, "metrics": metrics}, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
