# verl, Ray and DeepSpeed ship partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUntypedBaseClass=false
# pyright: reportUntypedFunctionDecorator=false
# pyright: reportMissingImports=false, reportMissingTypeStubs=false
"""verl's trainers with our advantage and our metrics, and the actor that runs one. Needs verl and
ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import transfer_queue as tq
from omegaconf import OmegaConf
from torch import Tensor
from verl.trainer.ppo.core_algos import register_adv_est
from verl.trainer.ppo.v1 import AgentLoopManagerTQ, PPOTrainer, get_trainer_cls

from train.backends.verl.data import reward_metrics
from train.backends.verl.export import STOP, last_step, prune
from train.backends.verl.settings import ADVANTAGE
from train.model.loss import group_advantages

POLL_S = 0.05  # verl asks every 2 s whether rollouts are done: a floor under every short step


# the numbers of train.model.loss.centre: verl's own `grpo` gives a group of one its raw reward as
# advantage, which happens whenever all siblings were lost to the infrastructure; here it is 0
@register_adv_est(ADVANTAGE)
def group_mean_advantage(
    token_level_rewards: Tensor,
    response_mask: Tensor,
    index: np.ndarray[Any, Any],
    config: Any = None,
    **unused: Any,
) -> tuple[Tensor, Tensor]:
    """(advantages, returns), both (B, T): reward minus the mean of the rows with the same index.

    `token_level_rewards` (B, T) holds each row's reward on one token; `index` (B,) names its group.
    With `norm_adv_by_std_in_grpo` also divided by the group's spread.
    """
    del unused
    by_spread = config is not None and config.get("norm_adv_by_std_in_grpo", False)
    out_B = group_advantages(token_level_rewards.sum(-1), index.tolist(), bool(by_spread))
    out_BT = out_B[:, None] * response_mask
    return out_BT, out_BT


class Ours(PPOTrainer):
    """One of verl's trainers that logs the reward's parts and tool counts of each step, and keeps
    the newest checkpoints of all starts."""

    def _save_checkpoint(self) -> None:
        super()._save_checkpoint()
        # verl's own `max_actor_ckpt_to_keep` would count those of this start alone
        prune(Path(self.config.trainer.default_local_dir), self.config.trainer.keep_newest)

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


class Runner:
    """The body of verl's driver actor: build, fit, close."""

    def run(self, config: Any) -> None:
        OmegaConf.resolve(config)
        tq.init(config.transfer_queue)
        trainer, status = None, 1
        try:
            kind = get_trainer_cls(config.trainer.v1.trainer_mode)
            trainer = type("Trainer", (Ours, kind), {})(config=config)
            trainer.init()
            manager = AgentLoopManagerTQ.create(
                config=config,
                llm_client=trainer.get_llm_client(),
                teacher_client=trainer.get_teacher_client(),
                reward_loop_worker_handles=trainer.get_reward_handles(),
            )
            trainer.fit(manager)
            status = 0
        finally:
            tracking = getattr(trainer, "logger", None)
            if tracking is not None:
                tracking.finish(exit_code=status)
            tq.close()
