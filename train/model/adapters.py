# peft, torch and safetensors ship partial types: what is unknown there cannot be known here.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportMissingImports=false
"""Saved low-rank adapters of peft, added into the weights that they were trained on.

Plain LoRA is added here, without peft and in float32. Whatever else an adapter's configuration
asks for (DoRA, PiSSA, embeddings, whole modules) peft itself computes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rollouts.engines.engine import ModelError
from rollouts.engines.torch.load import load_transformers, read_state, read_weights
from train.model.policy import save_folder, save_module

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."  # of peft's names
Scale = Callable[[str, int], float]  # of a module's name and its rank

# Settings of LoraConfig that plain LoRA has, or that say nothing of a trained adapter. Another one
# that is set means something else.
PLAIN = frozenset(
    """
    peft_type base_model_name_or_path r lora_alpha rank_pattern alpha_pattern use_rslora
    target_modules exclude_modules layers_to_transform layers_pattern task_type lora_dropout
    revision inference_mode auto_mapping peft_version megatron_core runtime_config
    qalora_group_size eva_config init_lora_weights ensure_weight_tying
    """.split()  # noqa: SIM905
)
# First values of the adapters; the others change the base model's weights too.
FIRST = (True, False, None, "gaussian", "orthogonal", "eva")
NEUTRAL: tuple[Any, ...] = (None, False, "none", {}, [])


class AdapterError(ValueError):
    """A tensor of an adapter that cannot be added to a model: its name, and why not."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name} {why}")
        self.name = name


def add_adapters(
    weights: Mapping[str, Tensor], adapters: Mapping[str, Tensor], scale: float | Scale
) -> dict[str, Tensor]:
    """`weights` with scale · B A added where `adapters` has a pair (A, B), computed in float32 and
    rounded once to the weight's own format; all others are the same tensors.

    Names of `adapters` are peft's. Raises `AdapterError` for one that is no such pair.
    """
    made, left = dict(weights), dict(adapters)
    for name in [key for key in left if key.endswith(".lora_A.weight")]:
        stem = name.removesuffix(".lora_A.weight")
        module = stem.removeprefix(PREFIX)
        target = f"{module}.weight"
        first, second = left.pop(name), left.pop(f"{stem}.lora_B.weight", None)
        if target not in made or second is None:
            raise AdapterError(name, "fits no weight of the base model")
        if made[target].shape != (len(second), first.shape[1]):
            raise AdapterError(name, f"does not fit {target} of shape {(*made[target].shape,)}")
        factor = scale(module, len(first)) if callable(scale) else scale
        change = factor * (second.float() @ first.float())
        made[target] = (made[target].float() + change).to(made[target].dtype)
    if left:
        raise AdapterError(next(iter(left)), "is no low-rank adapter")
    return made


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter, and not a whole model beside a stray file of one."""
    whole = any(folder.glob("*.safetensors")) and not (folder / WEIGHTS).is_file()
    return (folder / CONFIG).is_file() and not whole


def read_config(folder: Path) -> dict[str, Any]:
    """The configuration of a LoRA adapter. Raises `ModelError` for another kind, or a part of
    one."""
    found: Any = None
    try:
        found = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        needed = ("base_model_name_or_path", "r", "lora_alpha")
        right = found.get("peft_type", "LORA") == "LORA" and all(found[name] for name in needed)
    except (ValueError, KeyError, AttributeError):
        right = False
    if not right or not (folder / WEIGHTS).is_file():
        raise ModelError(
            f"{folder}: wanted a LoRA adapter with {CONFIG} (base_model_name_or_path, r, "
            f"lora_alpha) and {WEIGHTS}"
        )
    return found


def scale_of(config: Mapping[str, Any]) -> Scale:
    """alpha / rank of each module, as peft has it: the first pattern that fits its name counts."""
    alphas: Mapping[str, float] = config.get("alpha_pattern") or {}

    def scale(module: str, rank: int) -> float:
        fits = (a for key, a in alphas.items() if re.match(rf"(.*\.)?({key})$", module))
        alpha = float(next(fits, config["lora_alpha"]))
        return alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)

    return scale


def not_plain(config: Mapping[str, Any]) -> list[str]:
    """What an adapter has beside plain LoRA, as `setting=value`."""
    more = [k for k, v in config.items() if k not in PLAIN and v not in NEUTRAL]
    if config.get("init_lora_weights", True) not in FIRST:
        more.append("init_lora_weights")
    return [f"{name}={config[name]}" for name in sorted(more)]


def save_merged(adapter: Path, base: Path, folder: Path) -> None:
    """Write the base model with an adapter added in, beside the base model's tokenizer. Raises
    `ModelError`."""
    config, tensors = read_config(adapter), read_weights(adapter / WEIGHTS)
    special = not_plain(config)
    try:
        if special:
            raise AdapterError(", ".join(special), "is more than plain LoRA")
        save_folder(base, folder, add_adapters(read_state(base), tensors, scale_of(config)))
    except AdapterError as error:
        _merge_by_peft(adapter, base, folder, tensors, error)


def _merge_by_peft(
    adapter: Path, base: Path, folder: Path, tensors: Mapping[str, Tensor], why: AdapterError
) -> None:
    """peft's own sum, in float32."""
    try:
        from peft import PeftModel, get_peft_model_state_dict
    except ModuleNotFoundError:
        raise ModelError(
            f"{adapter}: {why} (base model {base}); install the extra `lora`, with which peft "
            "adds it, or merge the adapter into its base model and give that folder"
        ) from None
    module = load_transformers(base, "float32")
    try:
        model: Any = PeftModel.from_pretrained(module, str(adapter))
        known = get_peft_model_state_dict(model)
        wanted = _laws(model)
        merged = model.merge_and_unload()
    except (ValueError, RuntimeError, TypeError, LookupError, AttributeError) as error:
        said = " ".join(str(error).split())[:300]
        raise ModelError(
            f"{adapter}: peft cannot add it to the base model {base} ({said})"
        ) from None
    if strange := sorted(name for name in tensors if "lora_" in name and name not in known):
        raise ModelError(
            f"{adapter}: {strange[0]} fits no weight of the base model {base}; it has to be the "
            "one that the adapter was trained on"
        )
    if not torch.allclose(_laws(merged), wanted, atol=1e-3):
        raise ModelError(
            f"{adapter}: merged into the base model {base} it computes something else, as adapters "
            "on tied weights do; train it on an untied model, or serve it unmerged"
        )
    save_module(base, folder, merged)


@torch.no_grad()
def _laws(module: Any) -> Tensor:
    """Log-probabilities (1, 16, V) of any text."""
    ids = torch.arange(3, 19, device=module.device)[None]
    return module(ids % module.config.get_text_config().vocab_size).logits.log_softmax(-1)
