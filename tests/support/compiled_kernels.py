"""The compiled kernels for tests, also on processors where they are not used."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import pytest


@lru_cache
def here(dtype: Any, tiles: bool = False, defines: tuple[str, ...] = ()) -> Any:
    """`Kernels` of a number format; skips the test where they cannot be compiled."""
    from rollouts.engines.torch import kernels
    from rollouts.engines.torch.kernels import Kernels

    try:
        quick = (*defines, "-O1") if defines else ()  # a part of the time of a compiler
        return Kernels(kernels.library((*kernels.DEFINES[dtype], *quick)), tiles)
    except kernels.Unavailable as reason:
        pytest.skip(f"no compiled kernels: {reason}")


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """torch's threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def amx() -> Any:
    """The kernels of bfloat16 where the processor multiplies by AMX; else the test is skipped."""
    import torch

    found = here(torch.bfloat16)
    if not found.multiplies:
        pytest.skip("this processor has no AMX")
    return found
