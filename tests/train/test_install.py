"""Setup without installing anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
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


def locked() -> dict[str, list[str]]:
    """Versions by package of the lock file; a package may have one for each Python."""
    found: dict[str, list[str]] = {}
    for line in install.LOCK.read_text("utf-8").splitlines():
        if "==" in line and not line.startswith(" "):
            name, _, rest = line.partition("==")
            found.setdefault(name, []).append(rest.split()[0])
    return found


def test_the_lock_file_holds_a_version_in_range_of_every_requirement() -> None:
    import tomllib

    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = list(project["dependencies"])
    for extra in install.DEFAULT.split(","):
        wanted += project["optional-dependencies"][extra]
    versions = locked()
    for line in wanted:
        need = Requirement(line)
        if need.name == "torch":
            assert install.TORCH in need.specifier
            continue
        have = versions[canonicalize_name(need.name)]
        assert all(version in need.specifier for version in have), line


def test_the_lock_file_holds_hashes_and_no_gpu_packages() -> None:
    text = install.LOCK.read_text("utf-8")
    blocks = [block for block in text.split("\n") if "==" in block and not block.startswith(" ")]
    assert len(blocks) > 60 and all(block.endswith("\\") for block in blocks)
    assert not {name for name in locked() if name.startswith(("torch", "nvidia", "cuda", "triton"))}
    assert "http:" not in text and "https:" not in text
