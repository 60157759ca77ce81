# verl, Ray and DeepSpeed ship partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUntypedBaseClass=false
# pyright: reportMissingImports=false, reportMissingTypeStubs=false
"""verl's trainers with our metrics, and the actor that runs one. Needs verl and ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import transfer_queue as tq
from omegaconf import OmegaConf
from verl.trainer.ppo.v1 import AgentLoopManagerTQ
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync
from verl.trainer.ppo.v1.trainer_separate_async import PPOTrainerSeparateAsync
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

import train.backends.verl.advantage  # noqa: F401  # pyright: ignore[reportUnusedImport] (registers our estimator)
from train.backends.verl.data import reward_metrics
from train.backends.verl.export import STOP, last_step, prune

POLL_S = 0.05  # verl asks every 2 s whether rollouts are done: a floor under every short step


class Ours(PPOTrainer):
    """One of verl's trainers that logs the reward's parts and tool counts of each step, and keeps
    the newest checkpoints of all starts."""

    keep = 0  # checkpoints; 0: all

    def _save_checkpoint(self) -> None:
        super()._save_checkpoint()
        prune(Path(self.config.trainer.default_local_dir), self.keep)

    def _build_replay_buffer(self) -> Any:
        buffer: Any = super()._build_replay_buffer()
        if hasattr(buffer, "poll_interval"):
            buffer.poll_interval = POLL_S
        return buffer

    def on_step_end(self) -> None:
        """Save and end after this step when the driver was asked to stop."""
        super().on_step_end()
        if not (Path(self.config.trainer.default_local_dir) / STOP).exists():
            return
        if last_step(Path(self.config.trainer.default_local_dir)) != self.global_steps:
            self._save_checkpoint()
        self.config.trainer.total_epochs = 0  # verl asks before every step

    def _compute_metrics(
        self, batch: Any, metrics: Any, timing_raw: Any, global_steps: int, epoch: int
    ) -> None:
        super()._compute_metrics(batch, metrics, timing_raw, global_steps, epoch)
        pairs = zip(batch.keys, batch.tags, strict=True)
        keys = [key for key, tag in pairs if not tag.get("is_padding", False)]
        data = tq.kv_batch_get(
            keys=keys,
            partition_id=batch.partition_id,
            select_fields=["extra_fields", "entropy", "response_mask"],
        )
        rows = list(data["extra_fields"])
        metrics.update(reward_metrics([row["reward_extra_info"] for row in rows]))
        # verl scales its own `actor/entropy` like the loss
        metrics["actor/entropy_nats"] = entropy_nats(data["entropy"], data["response_mask"])
        metrics["rollout/left_out"] = float(len(batch.keys) - len(keys))


def entropy_nats(entropy: Any, mask: Any) -> float:
    """Mean entropy in nats of the tokens the model sampled; both nested (rows, tokens)."""
    values, chosen = entropy.values().float(), mask.values().bool()
    return float(values[chosen].mean()) if bool(chosen.any()) else 0.0


class Sync(Ours, PPOTrainerSync):
    """Rollouts, then the update, by turns on the same GPUs."""


class ColocateAsync(Ours, PPOTrainerColocateAsync):
    """The same GPUs; unfinished rollouts of the next step are broken off for an update and go on
    after it."""


class SeparateAsync(Ours, PPOTrainerSeparateAsync):
    """Rollouts on GPUs of their own, while others train."""


TRAINERS: dict[str, type[Ours]] = {
    "sync": Sync,
    "colocate_async": ColocateAsync,
    "separate_async": SeparateAsync,
}


class Runner:
    """The body of verl's driver actor: build, fit, close."""

    def run(self, config: Any) -> None:
        config.transfer_queue.enable = True
        OmegaConf.resolve(config)
        tq.init(config.transfer_queue)
        trainer: Any = None
        done = False
        try:
            # verl would count those of this start alone
            keep, config.trainer.max_actor_ckpt_to_keep = (
                int(config.trainer.max_actor_ckpt_to_keep or 0),
                None,
            )
            trainer = TRAINERS[config.trainer.v1.trainer_mode](config=config)
            trainer.keep = keep
            trainer.init()
            manager = AgentLoopManagerTQ.create(
                config=config,
                llm_client=trainer.get_llm_client(),
                teacher_client=trainer.get_teacher_client(),
                reward_loop_worker_handles=trainer.get_reward_handles(),
            )
            trainer.fit(manager)
            done = True
        finally:
            tracking = getattr(trainer, "logger", None)
            if tracking is not None:
                tracking.finish(exit_code=0 if done else 1)
            tq.close()
