# torch and transformers ship partial types: what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false
"""Gradients that are the same bits each time; AdamW on float32 masters of lower-precision weights,
with a schedule and gradient clipping."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor

from rollouts.engines.torch import kernels

STEP = 2654435761  # 2^32 over the golden ratio: multiples of it are evenly spread (Knuth 6.4)
CHUNK = 1 << 20  # places at a time: a GPU wants few large operations


def copy_down(master: Tensor, tensor: Tensor) -> None:
    """Write float32 `master` into `tensor`, of the same shape, in the latter's number format."""
    if tensor.dtype != torch.bfloat16 or not (master.is_contiguous() and tensor.is_contiguous()):
        tensor.copy_(master)
        return
    if tensor.device.type == "cpu":
        found = kernels.compiled(torch.bfloat16)
        if isinstance(found, kernels.Kernels):
            found.run("copy_down", master, tensor, master.numel())
            return
    flat, out = master.view(-1), tensor.view(-1)
    for start in range(0, len(flat), CHUNK):
        part = flat[start : start + CHUNK]
        by = _thresholds(part.device, start) if start else _first(part.device)
        bits = part.view(torch.int32) + by[: len(part)]
        upper = bits.view(torch.int16)[1::2]  # a bfloat16 number is the upper half of a float32
        out[start : start + CHUNK].view(torch.int16).copy_(upper)


def _thresholds(device: torch.device, start: int) -> Tensor:
    """(CHUNK,) what the places from `start` on add to a number before its lower half is cut off."""
    return ((_multiples(device) + _signed(start * STEP)) >> 16).bitwise_and_(0xFFFF)


@cache
def _first(device: torch.device) -> Tensor:
    return _thresholds(device, 0)


@cache
def _multiples(device: torch.device) -> Tensor:
    """(CHUNK,) i · STEP modulo 2^32."""
    wide = torch.arange(CHUNK, device=device, dtype=torch.int64) * STEP % (1 << 32)
    return torch.where(wide < 1 << 31, wide, wide - (1 << 32)).to(torch.int32)


def _signed(number: int) -> int:
    """A number modulo 2^32, as int32 has it."""
    return (number + (1 << 31)) % (1 << 32) - (1 << 31)


CUBLAS = "CUBLAS_WORKSPACE_CONFIG"  # torch asks for it before it calls matrix products exact


def backward(loss: Tensor) -> None:
    """`loss.backward()`, on a GPU by torch's deterministic algorithms. By default torch adds up a
    weight's gradient there in any order, and sums of floats depend on the order.

    Raises `RuntimeError` where an operation of the model has none.
    """
    if loss.device.type == "cpu":
        loss.backward()
        return
    os.environ.setdefault(CUBLAS, ":4096:8")
    before, fills = (
        torch.are_deterministic_algorithms_enabled(),
        cast(Any, torch.utils.deterministic),
    )
    filled = fills.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    fills.fill_uninitialized_memory = False  # it would write NaN into every new tensor
    try:
        loss.backward()
    finally:
        torch.use_deterministic_algorithms(before)
        fills.fill_uninitialized_memory = filled


def learning_rate(step: int, total: int, peak: float, warmup: int, schedule: str) -> float:
    """Rate for step `step` (from 0) of `total`: linear warm-up, then `schedule`.

    `constant`, or `linear` or `cosine` down to 0 after the last step.
    """
    if step < warmup:
        return peak * (step + 1) / warmup
    if schedule == "constant":
        return peak
    done = (step - warmup) / max(total - warmup, 1)
    if schedule == "linear":
        return peak * max(1.0 - done, 0.0)
    return peak * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))


def decay_groups(tensors: Sequence[Tensor], weight_decay: float) -> list[dict[str, Any]]:
    """AdamW's parameter groups: no weight decay on what has one dimension (norms and biases)."""
    if not weight_decay:
        return [{"params": list(tensors), "weight_decay": 0.0}]
    # a tensor that DeepSpeed has cut up tells its shape in `ds_shape`
    wide = [len(getattr(t, "ds_shape", t.shape)) > 1 for t in tensors]
    return [
        {
            "params": [t for t, is_wide in zip(tensors, wide, strict=True) if is_wide == decays],
            "weight_decay": weight_decay if decays else 0.0,
        }
        for decays in (True, False)
        if decays in wide
    ]


class MasterAdamW:
    """AdamW whose moments and weights are float32 while the model computes in its own type.

    A step of 1e-5 is lost when added to a bf16 weight of 0.05 (spacing 2.4e-4), so the sum is
    kept in float32 and copied down after each step. Gradients of micro-batches add up in float32.
    A model that computes in float32 is its own master: there is no second copy.

    rounding: to the `nearest` number of the working type, or `spread` (train/model/optim.py).
    """

    def __init__(
        self,
        named: Sequence[tuple[str, Tensor]],
        betas: tuple[float, float] = (0.9, 0.999),
        weight_decay: float = 0.0,
        rounding: str = "spread",
        eps: float = 1e-8,
    ) -> None:
        self.rounding = rounding
        self.working = list(named)
        self.masters = [
            t if t.dtype == torch.float32 else t.detach().float().requires_grad_(True)
            for _, t in named
        ]
        self._empty = True  # nothing collected since the last step
        self.adam = torch.optim.AdamW(
            decay_groups(self.masters, weight_decay), lr=0.0, betas=betas, eps=eps, fused=True
        )

    def collect(self) -> None:
        """Add the working weights' gradients to the masters' and clear them."""
        for (_, tensor), master in zip(self.working, self.masters, strict=True):
            if tensor is master or tensor.grad is None:
                continue
            if master.grad is None:
                master.grad = tensor.grad.float()
            else:
                master.grad.add_(tensor.grad)
            tensor.grad = None
        self._empty = False

    @torch.no_grad()
    def step(self, lr: float, max_norm: float) -> float:
        """Clip to `max_norm` (0 = off), update, copy down; returns the norm before clipping."""
        if self._empty:  # no group had an advantage: nothing to learn from this batch
            return 0.0
        self._empty = True
        for master in self.masters:
            if master.grad is None:  # its moments decay all the same
                master.grad = torch.zeros_like(master)
        norm = torch.nn.utils.get_total_norm([m.grad for m in self.masters if m.grad is not None])
        # a batch with a non-finite gradient is skipped; the log shows it
        if bool(torch.isfinite(norm)):
            if 0 < max_norm < float(norm):
                torch.nn.utils.clip_grads_with_norm_(self.masters, max_norm, norm)
            for group in self.adam.param_groups:
                group["lr"] = lr
            self.adam.step()
            for (_, tensor), master in zip(self.working, self.masters, strict=True):
                self._copy_down(master, tensor)
        self.adam.zero_grad(set_to_none=True)  # sampling has the memory until the next gradients
        return float(norm)

    def _copy_down(self, master: Tensor, tensor: Tensor) -> None:
        if tensor is master:
            return
        if self.rounding == "spread":
            copy_down(master, tensor)
        else:
            tensor.copy_(master)

    def state(self) -> dict[str, Tensor]:
        """Masters, both moments and the step count, by weight name."""
        out: dict[str, Tensor] = {}
        for (name, _), master in zip(self.working, self.masters, strict=True):
            out["master." + name] = master.detach()
            for key, value in self.adam.state.get(master, {}).items():
                out[f"{key}.{name}"] = torch.as_tensor(value)
        return out

    @torch.no_grad()
    def load(self, state: dict[str, Tensor]) -> None:
        """Restore what `state` gave, bit for bit, and the working weights with it."""
        for (name, tensor), master in zip(self.working, self.masters, strict=True):
            master.copy_(state["master." + name])
            self._copy_down(master, tensor)
            kept = {
                k: state[f"{k}.{name}"]
                for k in ("step", "exp_avg", "exp_avg_sq")
                if f"{k}.{name}" in state
            }
            if kept:
                self.adam.state[master] = {
                    k: v.to(master.device, copy=True) for k, v in kept.items()
                }
