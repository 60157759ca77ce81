"""What is read out of Dockerfiles, and what cannot be honoured."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from places import tables

from assay.task import TaskError
from rollouts.harbor.container import Image, read_image, refuse_lacking

CASES = tables("rollouts")


def image(folder: Path, text: str) -> Image:
    (folder / "Dockerfile").write_text(text)
    return read_image(folder)


def test_a_python_image_is_read(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name in ("x", "a b.txt", "c.txt", "data/run.sh"):
        (tmp_path / name).write_text(name)
    (tmp_path / "data/run.sh").chmod(0o755)
    made = image(
        tmp_path,
        "# a comment\nFROM python:3.11.4-slim@sha256:ab12\nENV PLACE=/app\nENV A=1 B='2 3'\n"
        "WORKDIR $PLACE\nRUN pip install --no-cache-dir numpy==1.26 \\\n  # more\n    'pandas>=2'\n"
        'COPY x .\nCOPY ["a b.txt", "c.txt", "/data/"]\nADD x y\nCOPY data/ ${PLACE}/in\n'
        'EXPOSE 80\nUSER root\nCMD ["bash"]\n',
    )
    assert made.python == "3.11" and made.cwd == "/app"
    assert made.requirements == ["numpy==1.26", "pandas>=2"]
    assert made.env == {"PLACE": "/app", "A": "1", "B": "2 3"}
    assert made.files == {
        "/app/x": (b"x", 0o644),
        "/data/a b.txt": (b"a b.txt", 0o644),
        "/data/c.txt": (b"c.txt", 0o644),
        "/app/y": (b"x", 0o644),
        "/app/in/run.sh": (b"data/run.sh", 0o755),
    }


@pytest.mark.parametrize(
    "line",
    CASES["steps of a Dockerfile that are refused"],
)
def test_what_cannot_be_honoured_is_said(tmp_path: Path, line: str) -> None:
    with pytest.raises(TaskError) as found:
        image(tmp_path, f"FROM python:3.11\n{line}\n")
    assert str(found.value).startswith(f"build_step: Dockerfile: {line}: ")


@pytest.mark.parametrize(
    "text",
    CASES["images that are refused"],
)
def test_other_images_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(TaskError, match="base_image: Dockerfile: "):
        image(tmp_path, text)


def test_no_dockerfile_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"base_image: no .*Dockerfile"):
        read_image(tmp_path)


def test_a_python_must_be_the_images_and_have_its_packages() -> None:
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    refuse_lacking(Image(here, ["pytest>=1", "PyYAML"]), sys.executable)
    with pytest.raises(TaskError, match=r"python_version: Python 2\.0"):
        refuse_lacking(Image("2.0"), sys.executable)
    with pytest.raises(TaskError, match="no-such-thing==1: it is not installed"):
        refuse_lacking(Image(here, ["no-such-thing==1"]), sys.executable)
    with pytest.raises(TaskError, match=r"package: pip install pytest<1: here is"):
        refuse_lacking(Image(here, ["pytest<1"]), sys.executable)
