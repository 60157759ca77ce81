# verl, Ray and DeepSpeed ship partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownVariableType=false, reportUntypedFunctionDecorator=false
# pyright: reportMissingImports=false, reportMissingTypeStubs=false
# (the extra `cluster` is not there where the rest is checked)
"""The advantage estimator of both presets, registered with verl. Needs verl.

The numbers of `train.model.loss.centre`. verl's own `grpo` gives a group of one its raw reward
as advantage, which happens whenever all siblings were lost to the infrastructure; here it is 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor
from verl.trainer.ppo.core_algos import register_adv_est

from train.backends.verl.overrides import ADVANTAGE
from train.model.loss import group_advantages


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
