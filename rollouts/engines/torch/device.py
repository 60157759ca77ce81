# torch ships partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""Which device and which number format the embedded engine uses on this machine.

bfloat16 on a CPU is decided by the processor's instructions. Only where these do not tell are the
two formats timed, and then once: the answer is kept, so that a busy machine cannot change it.
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, cast

import torch

from assay.files import cache_folder
from rollouts.engines.torch.llama import ModelError

FASTER = 1.25  # bfloat16 is taken when its products are at least this much faster than float32's
ROWS, WIDTH, PAIRS = 128, 512, 15  # of the timed products
FORMAT = 1  # of what is kept of a measurement

# These hold a processor's instructions back, from torch and from its products.
LIMITS = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")


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
    return (
        "bfloat16" if device != "cpu" or _bfloat16_is_fast(torch.get_num_threads()) else "float32"
    )


@cache
def computes_bfloat16() -> bool:
    """Whether torch can multiply bfloat16 matrices on this CPU at all."""
    small = torch.ones(2, 2, dtype=torch.bfloat16)
    try:
        torch.mm(small, small)
    except RuntimeError:
        return False
    return True


def by_instructions(
    capabilities: Mapping[str, Any], onednn: bool | None, limits: Mapping[str, str]
) -> bool | None:
    """Whether bfloat16 is fast, by what the processor has; None where only a measurement can tell.

    `capabilities`: of `torch.cpu.get_capabilities` ({}: this torch does not say). `onednn`: what
    torch answers when asked for bfloat16 products, which counts emulation on AVX512 as a yes (None:
    it cannot be asked). `limits`: the variables of `LIMITS` that are set.
    """
    if onednn is False:
        return False
    if capabilities.get("architecture") != "x86_64" or limits:
        return None
    return any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16"))


@cache
def _bfloat16_is_fast(threads: int) -> bool:
    if not computes_bfloat16():
        return False
    limits = {name: os.environ[name] for name in LIMITS if os.environ.get(name)}
    capabilities = _capabilities()
    said = by_instructions(capabilities, _onednn(), limits)
    if said is not None:
        return said
    key = [FORMAT, torch.__version__, threads, limits, capabilities]
    return _kept_speed(key) >= FASTER


def _capabilities() -> dict[str, Any]:
    ask = getattr(torch.cpu, "get_capabilities", None)  # torch 2.11 and later
    return dict(sorted(cast("dict[str, Any]", ask()).items())) if ask else {}


def _onednn() -> bool | None:
    try:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())  # pyright: ignore[reportPrivateUsage]
    except (AttributeError, RuntimeError):  # this build of torch has no oneDNN
        return None


def _kept_speed(key: list[Any]) -> float:
    """`bfloat16_speed` of a machine with this key: what was measured first, by whichever process.

    Where nothing can be kept it is measured each time.
    """
    try:
        folder = cache_folder() / "bfloat16"
    except RuntimeError:  # no home
        return bfloat16_speed()
    path = folder / f"{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]}.json"
    kept = _read_speed(path)
    if kept is not None:
        return kept
    speed = bfloat16_speed()
    work = folder / f".{path.stem}-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        work.write_text(json.dumps({"speed": speed, "of": key}) + "\n", encoding="utf-8")
        if path.exists():  # damaged
            path.unlink()
        os.link(work, path)
    except OSError:  # no room, or another process was first
        pass
    with suppress(OSError):
        work.unlink()
    kept = _read_speed(path)
    return speed if kept is None else kept


def _read_speed(path: Path) -> float | None:
    """None where nothing that can be read is kept."""
    try:
        return float(json.loads(path.read_text(encoding="utf-8"))["speed"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def bfloat16_speed() -> float:
    """How many times faster this CPU multiplies bfloat16 matrices than float32 ones, with the
    threads that torch uses now. The formats take turns, so that what else runs slows both."""
    products = [_operands(dtype) for dtype in (torch.float32, torch.bfloat16)]
    times: list[list[float]] = [[], []]
    for pair in range(PAIRS + 1):
        for (a, b), taken in zip(products, times, strict=True):
            began = time.perf_counter()
            torch.mm(a, b)
            if pair:  # the first, which compiles kernels, is not counted
                taken.append(time.perf_counter() - began)
    full, half = map(statistics.median, times)
    return full / max(half, 1e-9)


def _operands(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.ones(ROWS, WIDTH, dtype=dtype), torch.ones(WIDTH, WIDTH, dtype=dtype)
