"""slurm/gpu*.lock: the versions of a GPU node, and whether they are still what is asked for."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from places import ROOT

LOCKS = {"gpu": "sglang", "gpu-vllm": "vllm"}  # and what serves verl's rollouts


def lock(name: str) -> Path:
    return ROOT / "slurm" / f"{name}.lock"


def locked(name: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lock(name).read_text("utf-8").splitlines():
        if not line.startswith(" "):
            package, _, rest = line.partition("==")
            assert package not in found and rest, line
            found[package] = rest.split()[0]
    return found


def command(name: str, out: Path) -> list[str]:
    """The Makefile's own, with another place for what it writes."""
    said = subprocess.run(
        ["make", "-n", "--no-print-directory", "lock-gpu"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    calls = [shlex.split(line) for line in said.stdout.replace("\\\n", " ").splitlines()]
    found = next(call for call in calls if call[-1] == f"slurm/{name}.lock")
    return [*found[:-1], str(out)]


@pytest.mark.parametrize("name", LOCKS)
def test_it_is_in_range_of_all_that_is_asked_for(name: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = list(project["dependencies"])
    extras = re.findall(r"--extra (\w+)", shlex.join(command(name, lock(name))))
    assert {"train", "sandbox", "client", "cluster", "deepspeed", "build"} <= set(extras)
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    asked = (ROOT / "slurm" / f"{name}.in").read_text("utf-8").splitlines()
    wanted += [line for line in asked if line and not line.startswith("#")]
    versions = locked(name)
    for line in wanted:
        need = Requirement(line)
        assert versions[canonicalize_name(need.name)] in need.specifier, line


@pytest.mark.parametrize("name", LOCKS)
def test_it_has_what_a_gpu_node_runs_and_names_no_index(name: str) -> None:
    versions = locked(name)
    assert versions["verl"] == "0.9.1" and versions["transformers"] == "5.9.0"
    assert {LOCKS[name], "torch", "nvidia-nccl-cu13", "ray", "transferqueue"} <= set(versions)
    text = lock(name).read_text("utf-8")
    assert "http:" not in text and "https:" not in text and "file:" not in text
    blocks = re.split(r"\n(?=\S)", text.strip())
    assert len(blocks) == len(versions) and all("--hash=sha256:" in block for block in blocks)
