# torch ships partial types: what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false
"""Gradients that are the same bits each time, on a GPU too."""

from __future__ import annotations

import os

import torch
from torch import Tensor

CUBLAS = "CUBLAS_WORKSPACE_CONFIG"  # torch asks for it before it calls matrix products exact


def backward(loss: Tensor) -> None:
    """`loss.backward()`. On a GPU torch's default adds up what several positions give to one weight
    in any order, and sums of floats depend on the order: here it takes the algorithms that do not.

    Raises `RuntimeError` where an operation of the model has none.
    """
    if loss.device.type == "cpu":
        loss.backward()
        return
    os.environ.setdefault(CUBLAS, ":4096:8")
    before, fills = torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic
    filled = fills.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    fills.fill_uninitialized_memory = False  # it would write NaN into every new tensor
    try:
        loss.backward()
    finally:
        torch.use_deterministic_algorithms(before)
        fills.fill_uninitialized_memory = filled
