"""What `assay doctor` says of a GPU node's C library, driver and compiler."""

from __future__ import annotations

from pathlib import Path

import pytest

from train import doctor
from train.backends import prerequisites
from train.backends.prerequisites import driver_line, glibc_line, nvcc_line, read_driver

CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024"
OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs)\n"
    "GCC version:  gcc version 12.2.0"
)


def test_the_c_library() -> None:
    assert glibc_line("2.36") == "glibc 2.36: SGLang's wheels can be installed"
    assert "too old for SGLang's wheels, which need 2.34" in glibc_line("2.31")
    assert "too old" in glibc_line("2.4") and "too old" not in glibc_line("3.0")
    assert glibc_line("") == "no glibc: SGLang has no wheel for this system"


def test_the_driver() -> None:
    assert (read_driver(CLOSED), read_driver(OPEN)) == ("535.183.01", "580.95.05")
    assert read_driver("nothing of the kind") is None
    assert driver_line("580.95.05", "13.0") == "driver 580.95.05: runs torch's CUDA 13.0"
    assert "too old for torch's CUDA 13.0, which needs 580" in driver_line("535.183.01", "13.0")
    assert "runs torch's CUDA 12.8" in driver_line("535.183.01", "12.8")
    assert "not built for CUDA" in driver_line("535.183.01", None)


def test_the_compiler(tmp_path: Path) -> None:
    assert nvcc_line({"PATH": "", "CUDA_HOME": str(tmp_path)}).startswith("nvcc is not found")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvcc").touch(mode=0o755)
    for environ in ({"PATH": "", "CUDA_HOME": str(tmp_path)}, {"PATH": f"{tmp_path}/bin"}):
        assert nvcc_line(environ).startswith(f"nvcc at {tmp_path}/bin/nvcc")


def test_the_doctor_says_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Driver and compiler only where there is a driver."""
    monkeypatch.setattr(prerequisites, "DRIVER_FILE", tmp_path / "none")
    monkeypatch.setenv("PATH", "")
    said = [text for topic, text in doctor.report() if topic == "gpu"]
    assert any("glibc" in text for text in said) and not any("nvcc" in text for text in said)
    (tmp_path / "none").write_text(OPEN)
    said = [text for topic, text in doctor.report() if topic == "gpu"]
    assert any("driver 580.95.05" in text for text in said)
    assert any("nvcc" in text for text in said)
