"""A GPU node out of files: commands for the PATH, distributions for Python's path."""

from __future__ import annotations

from pathlib import Path

# torch.cuda, as far as the doctor asks it
CUDA = """
from types import SimpleNamespace

def init():
    pass

def device_count():
    return 2

def get_device_properties(i):
    return SimpleNamespace(name="NVIDIA A100-SXM4-80GB", total_memory=81920 << 20)
"""
VERL = {
    "ray": "2.60.0",
    "verl": "0.9.1",
    "sglang": "0.5.12",
    "flash-attn": "2.8.3",
    "deepspeed": "0.19.8",
    "nvidia-nccl-cu13": "2.29.3",
}


def command(folder: Path, name: str, text: str) -> None:
    """A shell script that can be found on a PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def distribution(site: Path, name: str, version: str) -> Path:
    """What `importlib.metadata` finds of an installed package."""
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return folder


def gpu_node(folder: Path) -> tuple[Path, Path]:
    """(bin, site) of a node with two A100, nvcc, and a torch for CUDA 13.0 that opens both."""
    bin_, site = folder / "bin", folder / "site"
    command(bin_, "nvcc", "echo 'Cuda compilation tools, release 13.0, V13.0.48'")
    (site / "torch").mkdir(parents=True)
    (site / "torch" / "__init__.py").write_text("from torch import cuda, version\n")
    (site / "torch" / "version.py").write_text("__version__ = '2.13.0+cu130'\ncuda = '13.0'\n")
    (site / "torch" / "cuda.py").write_text(CUDA)
    distribution(site, "torch", "2.13.0+cu130")
    for name, version in VERL.items():
        distribution(site, name, version)
    return bin_, site
