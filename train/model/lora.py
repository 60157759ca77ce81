# torch and transformers ship partial types: what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportMissingImports=false, reportMissingTypeStubs=false
"""Low-rank adapters (Hu et al. 2021, arXiv 2106.09685) through peft. Needs the extra `lora`."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from configs.loader import ConfigError
from configs.machine import ModelConfig

PREFIX = "base_model.model."  # of peft's names


class AdapterError(ValueError):
    """A tensor of an adapter that cannot be added to a model: its name, and why not."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name} {why}")
        self.name = name


def with_adapters(module: Any, config: ModelConfig) -> Any:
    """The module with adapters on every linear layer of its blocks; only they are trained.

    No dropout: a step must not depend on how often it was tried. The first matrices are drawn from
    a seed of their own, so that a resumed run starts from the same module.
    """
    try:
        from peft import LoraConfig, get_peft_model
    except ModuleNotFoundError:
        raise ConfigError(
            f"model.lora_rank={config.lora_rank}: peft is not installed; install the extra `lora`"
        ) from None
    import torch

    settings = LoraConfig(
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,
        lora_dropout=0.0,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return get_peft_model(module, settings)


def merged_state(module: Any) -> dict[str, Tensor]:
    """Weights with the adapters added in, under the names of the model without them."""
    plain = copy.deepcopy(module).merge_and_unload()
    state = {k: v.detach().cpu().contiguous() for k, v in plain.state_dict().items()}
    if getattr(plain.config, "tie_word_embeddings", False):
        state.pop("lm_head.weight", None)
    return state


def add_adapters(
    weights: Mapping[str, Tensor], adapters: Mapping[str, Tensor], scale: float
) -> dict[str, Tensor]:
    """`weights` with scale · B A added where `adapters` has a pair (A, B), computed in float32 and
    rounded once to the weight's own format; all others are the same tensors.

    Names of `adapters` are peft's. Raises `AdapterError` for one that is no such pair.
    """
    made, left = dict(weights), dict(adapters)
    for name in [key for key in left if key.endswith(".lora_A.weight")]:
        stem = name.removesuffix(".lora_A.weight")
        target = f"{stem.removeprefix(PREFIX)}.weight"
        first, second = left.pop(name), left.pop(f"{stem}.lora_B.weight", None)
        if target not in made or second is None:
            raise AdapterError(name, "fits no weight of the base model")
        change = scale * (second.float() @ first.float())
        made[target] = (made[target].float() + change).to(made[target].dtype)
    if left:
        raise AdapterError(next(iter(left)), "is no low-rank adapter")
    return made
