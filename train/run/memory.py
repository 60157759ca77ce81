"""Whether memory is short, and giving back what a process no longer needs."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path

from assay.memory import PROC, available_memory, machine_memory
from rollouts.engines.engine import ModelError

SHORT = 8 << 30  # bytes; training a model of 135M parameters takes up to 6 GB
MORE = 1 << 29  # bytes that a loop's heap may grow by where memory is not short
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h


def total_memory(device: str) -> tuple[str, int]:
    """(name, bytes) of the device that an embedded run would use; 0 where it cannot be told."""
    if device != "cpu":
        try:
            said = subprocess.run(
                ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"],
                capture_output=True,
                text=True,
                check=True,
                timeout=10,
            ).stdout
            return "this GPU", int(said.split()[0]) << 20
        except (OSError, subprocess.SubprocessError, ValueError, IndexError):
            pass
    return "this machine", machine_memory(PROC, "MemTotal") or 0


def memory_is_short() -> bool:
    """Whether freed pages are better given back at once than kept for the next batch."""
    left = available_memory()
    return left is not None and left < SHORT


def require_memory(folder: Path, device: str, a_parameter: int = 4) -> None:
    """Raise `ModelError` in one sentence where a model of `a_parameter` bytes a parameter does not
    fit into what is left on the device."""
    weights = sum(p.stat().st_size for p in folder.glob("*.safetensors"))
    if not weights:
        raise ModelError(f"{folder} holds no *.safetensors weights; give a Hugging Face folder")
    need, on_gpu = weights // 2 * a_parameter, device == "cuda"
    free = available_memory()
    if on_gpu:
        import torch

        free = int(torch.cuda.mem_get_info()[0])
    if free is not None and need > free:
        spread = "spread it over GPUs with --backend (docs/clusters.md)"
        raise ModelError(
            f"{folder}: about {need / 1e9:.1f} GB of {'GPU ' if on_gpu else ''}memory needed, "
            f"{free / 1e9:.1f} GB available; use a smaller model, set model.lora_rank, or "
            f"{spread if on_gpu else 'take a machine with more memory'}"
        )


def choose_allocation() -> None:
    """Set how glibc keeps what tensors leave. To get a page from the system takes longer than much
    of what is then computed in it, so freed blocks stay in the heap, to be used again.

    Where memory is short, blocks of 2 MiB and more are mapped by themselves and returned when they
    are freed: in the heap, activations of changing shape leave gaps that add up.
    """
    if memory_is_short():
        _set_malloc({_M_MMAP_THRESHOLD: 2 << 20})
    else:
        _set_malloc({_M_MMAP_THRESHOLD: 32 << 20, _M_TRIM_THRESHOLD: 1 << 30})  # 32 MiB is its most


def _set_malloc(values: dict[int, int]) -> None:
    try:
        library = ctypes.CDLL(None)
        for name, value in values.items():
            library.mallopt(name, value)
    except (OSError, AttributeError):  # another C library
        return


def give_back_memory() -> None:
    """Return freed heap pages to the system."""
    try:
        ctypes.CDLL(None).malloc_trim(0)  # glibc only
    except (OSError, AttributeError):
        return


class Heap:
    """Gives back what a loop leaves in the heap, when that has grown.

    Freed blocks are kept for the next step. Those of changing sizes leave gaps, and what does not
    fit into them makes the heap larger step by step. What a step needs is not given back: pages
    that are asked for again cost more than many a computation in them.
    """

    def __init__(self) -> None:
        self.first: int | None = None  # resident after the first step

    def settle(self) -> None:
        """To be called at one place of the loop, where little is in use."""
        now = resident_memory()
        if self.first is None:
            self.first = now
        grown = now is not None and self.first is not None and now - self.first > MORE
        if grown or memory_is_short():
            give_back_memory()


def resident_memory(proc: Path = PROC) -> int | None:
    """Bytes of this process that are in memory; None where Linux does not say."""
    try:
        pages = int((proc / "self" / "statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")
