"""Safetensors files: damage and full disks are said with the file's name."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

pytest.importorskip("safetensors")
import torch

from rollouts.engines.engine import ModelError
from rollouts.engines.torch.load import read_weights, write_weights


@pytest.mark.parametrize("keep", [0, 5, 60, -3])
def test_a_file_that_is_cut_off_is_named(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "model.safetensors"
    write_weights(path, {"a": torch.ones(100)})
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ModelError, match=r"model\.safetensors: damaged"):
        read_weights(path)


FULL = """
import resource, signal, sys, torch
from pathlib import Path
from rollouts.engines.torch.load import write_weights
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
try:
    write_weights(Path(sys.argv[1]), {"a": torch.ones(100000)})
except OSError as error:
    print(error.errno, error.filename)
"""


def test_a_disk_that_is_full_is_an_error_of_the_system(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(path)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout == f"{errno.EFBIG} {path}\n", done.stderr
