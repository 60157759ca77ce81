# verl, Ray and DeepSpeed ship partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownVariableType=false, reportUntypedFunctionDecorator=false
# pyright: reportMissingImports=false, reportMissingTypeStubs=false
# (the extra `cluster` is not there where the rest is checked)
"""The advantage estimator of both presets, registered with verl. Needs verl.

The same numbers as `train.model.loss.centre`. verl's own `grpo` gives a group of one its raw reward
as advantage, which happens whenever all siblings were lost to the infrastructure; here it is 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from verl.trainer.ppo.core_algos import register_adv_est

from train.backends.verl.overrides import ADVANTAGE


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
    rewards_B = token_level_rewards.sum(-1)
    out_B = torch.zeros_like(rewards_B)
    for name in dict.fromkeys(index.tolist()):
        mine = torch.tensor([i for i, other in enumerate(index) if other == name])
        group = rewards_B[mine]
        if len(group) < 2:
            continue
        out_B[mine] = group - group.mean()
        if config is not None and config.get("norm_adv_by_std_in_grpo", False):
            out_B[mine] /= group.std() + 1e-6
    out_BT = out_B[:, None] * response_mask
    return out_BT, out_BT
