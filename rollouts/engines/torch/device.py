# torch ships partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""Which device and which number format the embedded engine uses on this machine."""

from __future__ import annotations

import time
from functools import cache

import torch

from rollouts.engines.torch.llama import ModelError

FASTER = 1.25  # bfloat16 is taken when its products are at least this much faster than float32's
ROWS, WIDTH, REPEATS = 256, 512, 5  # of the timed product


def choose_device(wanted: str) -> str:
    """The device, "cpu" or "cuda"; "auto" is the GPU where torch sees one.

    Raises `ModelError` when "cuda" is wanted and torch sees no GPU.
    """
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ModelError("device cuda: torch sees no GPU; choose auto or cpu")
    return "cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu"


def choose_dtype(wanted: str, device: str) -> str:
    """The number format, "bfloat16" or "float32": what is wanted, or what is fast on `device`.

    A CPU without bfloat16 instructions computes it tens of times slower than float32.
    """
    if wanted != "auto":
        return wanted
    fast = device != "cpu" or (bfloat16_speed() or 0.0) >= FASTER
    return "bfloat16" if fast else "float32"


@cache
def bfloat16_speed() -> float | None:
    """How many times faster this CPU multiplies bfloat16 matrices than float32 ones.

    0 without instructions for it, None where torch cannot compute it at all. torch says whether
    the processor has the instructions, but counts emulation on AVX512 among them: so one small
    product is timed too (some milliseconds, with the threads torch uses now).
    """
    try:
        if not torch.ops.mkldnn._is_mkldnn_bf16_supported():  # pyright: ignore[reportPrivateUsage]
            small = torch.ones(2, 2, dtype=torch.bfloat16)
            torch.mm(small, small)
            return 0.0
    except AttributeError:  # this build of torch has no oneDNN to ask
        pass
    except RuntimeError:
        return None
    try:
        return _product_s(torch.float32) / _product_s(torch.bfloat16)
    except RuntimeError:
        return None


def _product_s(dtype: torch.dtype) -> float:
    """The shortest time of a few products; the first, which compiles kernels, is not counted."""
    a, b = torch.ones(ROWS, WIDTH, dtype=dtype), torch.ones(WIDTH, WIDTH, dtype=dtype)
    torch.mm(a, b)
    times: list[float] = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        torch.mm(a, b)
        times.append(time.perf_counter() - began)
    return max(min(times), 1e-9)
