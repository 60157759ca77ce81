"""What any machine has: Python, packages, memory, disk, Slurm, and whether the sandbox works."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.record import installed
from assay.workers import usable_cores
from train.doctor.finding import Finding
from train.model.source import default_cache
from train.run.record import PACKAGES, cpu_name

# package: what it would add
OPTIONAL = {
    "wandb": "log.wandb=offline|online",
    "tensorboard": "log.tensorboard=true",
    "verl": "assay grpo --backend verl",
    "sglang": "the SGLang rollout engine",
    "deepspeed": "assay sft --backend deepspeed",
    "ray": "several machines",
    "pyarrow": "parquet files",
}


def findings(environ: Mapping[str, str] = os.environ) -> list[Finding]:
    """All lines of this file but the sandbox's; never raises on an odd machine."""
    lines = [Finding("python", f"{platform.python_version()} at {sys.executable}")]
    lines += [
        Finding("package", f"{name} {v}")
        for name, v in installed(PACKAGES).items()
        if name != "python"
    ]
    lines += [
        Finding("cpu", f"{cpu_name()}, {usable_cores()} cores usable"),
        Finding("memory", memory_text()),
        Finding("kernels", kernels_text()),
    ]
    for label, folder in (("here", Path.cwd()), ("model cache", default_cache())):
        place = next(p for p in (folder, *folder.parents) if p.exists())
        free = shutil.disk_usage(place).free / 1e9
        lines.append(Finding("disk", f"{free:.1f} GB free, {label}: {folder}"))
    lines.append(Finding("slurm", _slurm(environ)))
    for name, use in OPTIONAL.items():
        there = importlib.util.find_spec(name) is not None
        state = "is there" if there else "is not installed"
        lines.append(Finding("optional", f"{name} {state}: {use}", there))
    return lines


def memory_bytes(
    proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")
) -> tuple[float, float, float] | None:
    """(total, available, the container's own limit) in bytes; None where it cannot be told."""
    try:
        text = (proc / "meminfo").read_text(encoding="ascii")
        found = dict(line.split(":", 1) for line in text.splitlines() if line)
        total, free = (int(found[k].split()[0]) * 1e3 for k in ("MemTotal", "MemAvailable"))
    except (OSError, KeyError, ValueError):
        return None
    try:
        bound = float(int((cgroup / "memory.max").read_text(encoding="ascii")))
    except (OSError, ValueError):  # no such file, or the word "max"
        bound = total
    return total, free, min(total, bound)


def memory_text() -> str:
    found = memory_bytes()
    if found is None:
        return "unknown"
    total, free, bound = found
    text = f"{free / 1e9:.1f} of {total / 1e9:.1f} GB available"
    return f"{text}, limited to {bound / 1e9:.1f} GB here" if bound < total else text


def kernels_text() -> str:
    """What computes between the matrix products of the embedded engine, on a CPU."""
    try:
        import torch

        from rollouts.engines.torch.kernels import compiled
    except (ImportError, OSError) as error:  # not installed, or without a library of its own
        return f"none: torch does not load ({error})"
    found = compiled(torch.float32)
    return f"torch's own, slower: {found}" if isinstance(found, str) else "compiled"


def _slurm(environ: Mapping[str, str]) -> str:
    if "SLURM_JOB_ID" in environ:
        return f"inside job {environ['SLURM_JOB_ID']}"
    return "sbatch is there" if shutil.which("sbatch") else "not here"


def module(name: str) -> Any:
    """The module, or None when this installation does not have it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            return None
        raise


def sandbox() -> dict[str, Any]:
    """What the sandbox can enforce here, by doing it (rollouts/sandbox/pool.py)."""
    try:
        pool = module("rollouts.sandbox.pool")
        if pool is None:
            return {"level": "none", "missing": {"sandbox": "not part of this installation"}}
        found: dict[str, Any] = pool.machine_report()
    except (OSError, AttributeError, KeyError) as error:  # not Linux, or a processor without tables
        why = f"{type(error).__name__}: {error}"
        return {"level": "none", "missing": {"sandbox": f"needs Linux ({why})"}}
    return found


def sandbox_lines(found: Mapping[str, Any]) -> list[Finding]:
    lines = [Finding("sandbox", f"{layer}: {state}") for layer, state in found.items()]
    lines[0] = Finding("sandbox", lines[0].text, found.get("level") != "none")
    return lines
