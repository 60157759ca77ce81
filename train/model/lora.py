# torch and transformers ship partial types: what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportMissingImports=false, reportMissingTypeStubs=false
"""Low-rank adapters (Hu et al. 2021, arXiv 2106.09685) through peft. Needs the extra `lora`."""

from __future__ import annotations

import copy
from typing import Any

from configs.loader import ConfigError
from configs.machine import ModelConfig


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


def merged(module: Any) -> Any:
    """A copy of the model with the adapters added in, and without them."""
    return copy.deepcopy(module).merge_and_unload()
