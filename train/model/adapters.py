"""Saved low-rank adapters, added into the weights that they were trained on. Needs no peft."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

PREFIX = "base_model.model."  # of peft's names


class AdapterError(ValueError):
    """A tensor of an adapter that cannot be added to a model: its name, and why not."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name} {why}")
        self.name = name


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
