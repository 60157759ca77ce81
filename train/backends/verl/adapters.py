# torch ships partial types: what is unknown there cannot be known here.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""The adapters of a verl checkpoint, added into the base model's weights.

verl's own merger puts adapters aside and saves the base model without them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import Tensor

from configs.loader import ConfigError
from train.model.adapters import AdapterError, add_adapters
from train.model.policy import save_folder

META = "lora_train_meta.json"  # verl writes it beside the shards of a model with adapters


def has_adapters(actor: Path) -> bool:
    return (actor / META).is_file()


def save_merged(actor: Path, base: Path, target: Path) -> None:
    """Write `base` with the adapters in the shards of `actor` added in, in the base's own format.

    Raises `ConfigError` for a base model without safetensors files, and for adapters that do not
    belong to it.
    """
    from safetensors.torch import load_file

    weights: dict[str, Tensor] = {}
    for path in sorted(base.glob("*.safetensors")):
        weights |= load_file(path)
    if not weights:
        raise ConfigError(
            f"{base} has no safetensors files, and {actor} holds adapters alone; put the base "
            "model that the run started from (model.path) back there"
        )
    about = json.loads((actor / META).read_text(encoding="utf-8"))
    try:
        merged = add_adapters(weights, read_adapters(actor), about["lora_alpha"] / about["r"])
    except AdapterError as error:
        raise ConfigError(
            f"{actor}: {error}; the base model is {base}: it has to be the one that the run "
            "started from"
        ) from None
    save_folder(base, target, merged)


def read_adapters(actor: Path) -> dict[str, Tensor]:
    """Adapters under peft's names, each put together from the shards of all ranks."""
    import torch

    count = int(json.loads((actor / "fsdp_config.json").read_text(encoding="utf-8"))["world_size"])
    shards: list[dict[str, Any]] = []
    for rank in range(count):
        path = actor / f"model_world_size_{count}_rank_{rank}.pt"
        # a whole pickle: verl saves distributed tensors, with the mesh they lie on
        shards.append(torch.load(path, map_location="cpu", weights_only=False))
    return {
        name.replace(".default.weight", ".weight"): _whole([shard[name] for shard in shards])
        for name in shards[0]
        if "lora_" in name
    }


def _whole(parts: list[Any]) -> Tensor:
    """One tensor of the parts that the ranks hold. With `fsdp_size` below the number of devices
    groups of ranks hold the same parts; the first group is enough."""
    import torch
    from torch.distributed.tensor import DTensor, Shard

    first = parts[0]
    if not isinstance(first, DTensor):
        return first
    placement = first.placements[-1]
    if not isinstance(placement, Shard):
        return first._local_tensor  # pyright: ignore[reportPrivateUsage]
    group = parts[: first.device_mesh.mesh.shape[-1]]
    return torch.cat([part._local_tensor for part in group], dim=placement.dim)
