"""Setup without installing anything."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from places import ROOT

from train import install


def test_setup_needs_nothing_but_the_standard_library() -> None:
    words = [sys.executable, "-S", "-I", str(ROOT / "train" / "install.py"), "--help"]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert "--extras" in said


# lock file: what it holds beside what is asked for
LOCKS: dict[str, set[str]] = {
    "requirements.lock": set(),
    "slurm/gpu.lock": {"sglang", "torch", "nvidia-nccl-cu13", "ray", "transferqueue"},
    "slurm/gpu-vllm.lock": {"vllm", "torch", "nvidia-nccl-cu13", "ray", "transferqueue"},
}


def locked(name: str) -> dict[str, list[str]]:
    """The versions of each package: one, or one for each Python. Every one has a hash."""
    found: dict[str, list[str]] = {}
    for block in re.split(r"\n(?=\S)", (ROOT / name).read_text("utf-8").strip()):
        package, _, rest = block.partition("==")
        assert rest and "--hash=sha256:" in block, block
        found.setdefault(package, []).append(rest.split()[0])
    return found


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_file_holds_a_version_in_range_of_every_requirement(name: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted, extras = list(project["dependencies"]), install.DEFAULT.split(",")
    if name.startswith("slurm"):
        make = (ROOT / "Makefile").read_text("utf-8")
        extras = make.partition("EXTRAS_GPU := ")[2].partition("\n")[0].split()
        asked = (ROOT / name).with_suffix(".in").read_text("utf-8").splitlines()
        wanted += [line for line in asked if line and not line.startswith("#")]
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    versions = locked(name)
    for need in map(Requirement, wanted):
        if need.name == "torch" and not LOCKS[name]:
            assert install.TORCH in need.specifier  # the machine's own
        else:
            have = versions[canonicalize_name(need.name)]
            assert all(version in need.specifier for version in have), need
    assert "://" not in (ROOT / name).read_text("utf-8")  # no index, no file of this machine
    assert len(versions) > 60 and LOCKS[name] <= set(versions)
    on_gpus = [p for p in versions if p.startswith(("torch", "nvidia", "cuda", "triton"))]
    assert bool(on_gpus) == bool(LOCKS[name])
    if on_gpus:
        assert (versions["verl"], versions["transformers"]) == (["0.9.1"], ["5.9.0"])
