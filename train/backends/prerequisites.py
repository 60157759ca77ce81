"""What a GPU node must have that pip does not bring: the C library, the driver, a CUDA compiler.

SGLang 0.5.12 has wheels for glibc 2.34 and newer only, torch is built for a CUDA that asks for a
driver of its time, and flashinfer compiles kernels when SGLang's server starts.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

GLIBC = (2, 34)
DRIVERS = {"13": 580, "12": 525, "11": 450}  # oldest that runs a CUDA of that number
DRIVER_FILE = Path("/proc/driver/nvidia/version")


def findings() -> list[str]:
    """One sentence each; those of a GPU only where there is one."""
    told = [glibc_line(platform.libc_ver()[1])]
    version = driver_version()
    if version is None:
        return told
    return [*told, driver_line(version, _cuda()), nvcc_line(os.environ)]


def glibc_line(version: str) -> str:
    if not re.fullmatch(r"\d+\.\d+.*", version):
        return "no glibc: SGLang has no wheel for this system"
    have = tuple(int(part) for part in version.split(".")[:2])
    if have >= GLIBC:
        return f"glibc {version}: SGLang's wheels can be installed"
    return (
        f"glibc {version} is too old for SGLang's wheels, which need 2.34 (not RHEL 8, not Ubuntu "
        "20.04); use a container for `--backend verl`"
    )


def driver_version() -> str | None:
    """Of the NVIDIA driver, or None where there is none."""
    try:
        return read_driver(DRIVER_FILE.read_text(encoding="utf-8"))
    except OSError:
        pass
    if shutil.which("nvidia-smi") is None:
        return None
    done = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    return done.stdout.split("\n")[0].strip() or None if done.returncode == 0 else None


def read_driver(text: str) -> str | None:
    """The version in the kernel's own file, of the closed or the open module."""
    found = re.search(r"Kernel Module(?: +for +\S+)? +(\d+(?:\.\d+)+)", text)
    return found.group(1) if found else None


def driver_line(version: str, cuda: str | None) -> str:
    """`cuda`: what torch was built for, or None."""
    if cuda is None:
        return f"driver {version}; torch here is not built for CUDA"
    least = DRIVERS.get(cuda.split(".")[0])
    if least is None or int(version.split(".")[0]) >= least:
        return f"driver {version}: runs torch's CUDA {cuda}"
    return (
        f"driver {version} is too old for torch's CUDA {cuda}, which needs {least} or newer; "
        "update it, or install a torch for an older CUDA"
    )


def nvcc_line(environ: Mapping[str, str]) -> str:
    home = environ.get("CUDA_HOME") or environ.get("CUDA_PATH") or "/usr/local/cuda"
    found = shutil.which("nvcc", path=environ.get("PATH")) or shutil.which(f"{home}/bin/nvcc")
    if found:
        return f"nvcc at {found}: flashinfer can compile when SGLang starts"
    return (
        "nvcc is not found: flashinfer compiles when SGLang starts, and flash-attn when it is "
        "installed; load the site's CUDA module or set CUDA_HOME"
    )


def _cuda() -> str | None:
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    return torch.version.cuda
