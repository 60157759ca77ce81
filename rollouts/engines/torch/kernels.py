# torch ships partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""Compiled kernels for what lies between the matrix products, on a CPU (c/kernels.c).

They are compiled by the machine's own C compiler when a process first needs them, in about two
seconds, and kept in the cache folder. Without a compiler or AVX-512, on a GPU, with
`ASSAY_KERNELS=off`, or where they do not compute what torch does, torch's own operations are used:
the same arithmetic, with more roundings. `ASSAY_KERNELS=on` takes them without AVX-512 too.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from rollouts.engines.torch.bindings import VECTOR, Kernels
from rollouts.engines.torch.compiler import Unavailable, library, processor

LARGEST = 256  # head
DEFINES = {torch.bfloat16: ("-DBF16=1",), torch.float32: ()}


def kernels_for(weight: Tensor, sizes: Sequence[int], head_dim: int) -> Kernels | None:
    """Kernels for weights like this one, of a model with these widths; None: use torch."""
    fits = all(size % VECTOR == 0 for size in sizes) and head_dim % (2 * VECTOR) == 0
    fits = fits and head_dim <= LARGEST
    if weight.device.type != "cpu" or not fits:
        return None
    found = compiled(weight.dtype)
    return found if isinstance(found, Kernels) else None


@cache
def compiled(dtype: torch.dtype) -> Kernels | str:
    """The kernels of a number format, or why there are none on this machine."""
    try:
        wish = os.environ.get("ASSAY_KERNELS", "").lower()
        if wish in ("off", "0", "no", "false"):
            raise Unavailable("switched off by ASSAY_KERNELS")
        if wish not in ("on", "1", "yes", "true") and "avx512f" not in processor().split():
            raise Unavailable("no AVX-512, without which no gain was measured (ASSAY_KERNELS=on)")
        if dtype not in DEFINES:
            raise Unavailable(f"none for {str(dtype).removeprefix('torch.')}")
        tiles = dtype == torch.bfloat16 and "amx_bf16" in processor().split()
        found = Kernels(library(DEFINES[dtype]), tiles)
        if not sound(found, dtype):
            raise Unavailable("what they compute differs from torch")
    except Unavailable as reason:
        return str(reason)
    return found


def sound(kernels: Kernels, dtype: torch.dtype) -> bool:
    """Whether a norm, a gate and a law over logits are torch's numbers: a compiler that is wrong
    shows here. The first need of the kernels may come within an optimiser's step, so no gradient is
    asked for. The tests compare every function (tests/support/kernels_agree.py)."""
    random = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(*shape, generator=random).to(dtype) for shape in ((3, 64), (64,)))
    near = 1e-5 if dtype == torch.float32 else 3e-2
    peaks, sums = kernels.weigh(x, 0.7)[1::2]
    pairs = (
        (kernels.silu_mul(x), F.silu(x[:, :32]) * x[:, 32:]),
        (peaks / 0.7 + sums.sum(-1).log(), (x.float() / 0.7).logsumexp(-1)),
        (kernels.add_norm(x, None, weight, 1e-5), F.rms_norm(x, (64,), weight, 1e-5)),
    )
    return all(torch.allclose(a.float(), b.float(), near, near) for a, b in pairs)
