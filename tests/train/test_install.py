"""Setup without installing anything."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from places import ROOT

from train import install
from train.install import SetupError


def executable(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def test_an_old_python_gets_a_sentence_or_a_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 1))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match=r"Python 3.9 is too old; .*PYTHON=/path/to/python3.11"):
        install.find_python()
    executable(tmp_path, "python3.12", "exit 0")
    assert install.find_python() == str(tmp_path / "python3.12")


def test_a_gpu_counts_only_when_its_driver_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert install.has_gpu() is False
    for script, found in (
        ("echo 'GPU 0: NVIDIA X'", True),
        ("echo 'no devices'", False),
        ("exit 9", False),
    ):
        executable(tmp_path, "nvidia-smi", script)
        assert install.has_gpu() is found, script


def test_a_full_disk_is_said_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install, "ROOT", tmp_path)
    monkeypatch.setattr(install, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(install, "NEED_GB", {"cpu": 1e9, "cuda": 1e9})
    (tmp_path / "pyproject.toml").write_text("")
    with pytest.raises(SetupError, match=r"GB free in .* setup needs 1000000000 GB"):
        install.setup("train,test")
    assert not (tmp_path / ".venv").exists()


def test_setup_needs_nothing_but_the_standard_library() -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-I", str(ROOT / "train" / "install.py"), "--help"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and "--extras" in done.stdout, done.stderr


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
        assert {"train", "sandbox", "client", "cluster", "deepspeed", "build"} <= set(extras)
        asked = (ROOT / name).with_suffix(".in").read_text("utf-8").splitlines()
        wanted += [line for line in asked if line and not line.startswith("#")]
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    versions = locked(name)
    for need in map(Requirement, wanted):
        if need.name == "torch" and not LOCKS[name]:
            assert install.TORCH in need.specifier  # the machine's own
            continue
        have = versions[canonicalize_name(need.name)]
        assert all(version in need.specifier for version in have), need


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_file_names_no_index_and_packages_of_gpus_where_they_belong(name: str) -> None:
    text, versions = (ROOT / name).read_text("utf-8"), locked(name)
    assert "http:" not in text and "https:" not in text and "file:" not in text
    assert len(versions) > 60 and LOCKS[name] <= set(versions)
    on_gpus = [p for p in versions if p.startswith(("torch", "nvidia", "cuda", "triton"))]
    assert bool(on_gpus) == bool(LOCKS[name])
    if on_gpus:
        assert (versions["verl"], versions["transformers"]) == (["0.9.1"], ["5.9.0"])
