# torch ships partial types: what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false
"""Float32 weights copied down to bfloat16, so that small updates are not lost.

A checkpoint's weights are bfloat16 numbers. To the nearest such number, an update of less than half
their spacing changes none of them: with a weight of 0.1 and steps of 3e-5 nothing happens for eight
steps. Here each place of a tensor has a threshold of its own, evenly spread over the spacing, and a
weight goes up or down by it. So a small update changes as large a share of the weights as the
update is of the spacing, and the mean moves by the update. What is a bfloat16 number already
stays as it is, and the same float32 weights give the same bfloat16 weights.
This is stochastic rounding (Gupta et al. 2015, "Deep Learning with Limited Numerical Precision",
section 3) with the random numbers held fixed.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

STEP = 2654435761  # 2^32 over the golden ratio: multiples of it are evenly spread (Knuth 6.4)
CHUNK = 1 << 20  # places at a time: a GPU wants few large operations


def copy_down(master: Tensor, tensor: Tensor) -> None:
    """Write float32 `master` into `tensor`, of the same shape, in the latter's number format."""
    if tensor.dtype != torch.bfloat16 or not (master.is_contiguous() and tensor.is_contiguous()):
        tensor.copy_(master)
        return
    if tensor.device.type == "cpu":
        from rollouts.engines.torch.kernels import Kernels, compiled

        kernels = compiled(torch.bfloat16)
        if isinstance(kernels, Kernels):
            kernels.run("copy_down", master, tensor, master.numel())
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
