"""What is read out of Dockerfiles, and what cannot be honoured."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.task import TaskError
from rollouts.harbor.image import Command, Copy, Image, read_image


def image(folder: Path, text: str) -> Image:
    (folder / "Dockerfile").write_text(text)
    return read_image(folder)


def test_a_python_image_is_read(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("scipy>=1 # for tests\n\n")
    made = image(
        tmp_path,
        "# a comment\nFROM python:3.11.4-slim@sha256:ab12\nARG PLACE=/app\nENV A=1 B='2 3'\n"
        "WORKDIR $PLACE\nRUN pip install --no-cache-dir numpy==1.26 \\\n    'pandas>=2'\n"
        "COPY requirements.txt .\nRUN pip install -r requirements.txt && mkdir -p /app/out\n"
        'COPY ["a b.txt", "c.txt", "/data/"]\nADD x y\nEXPOSE 80\nCMD ["bash"]\n',
    )
    assert made.problems == ()
    assert made.python == "3.11" and made.workdir == "/app"
    assert made.requirements == ("numpy==1.26", "pandas>=2", "scipy>=1")
    assert made.env == {"A": "1", "B": "2 3"}
    assert made.steps == (
        Copy(("requirements.txt",), "/app/"),
        Command("mkdir -p /app/out", "/app"),
        Copy(("a b.txt", "c.txt"), "/data/"),
        Copy(("x",), "/app/y"),
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("RUN apt-get update && apt-get install -y gcc", "no system packages"),
        ("RUN curl -O http://x/y", "no network"),
        ("RUN npm install", "file tools and Python only"),
        ("RUN pip install git+https://x/y", "only packages of an index"),
        ("RUN pip install --find-links=http://x numpy", "an option"),
        ("COPY --from=build /a /app/", "not a copy of the context's own files"),
        ("ADD https://x/y /app/", "not a copy of the context's own files"),
        ("COPY a /usr/lib/a", "the jail has"),
        ("USER nobody", "one user"),
        ('CMD ["nginx"]', "starts no service"),
        ("HEALTHCHECK CMD true", "no such step"),
        ("FROM python:3.11", "several build stages"),
        ("RUN <<EOF", "plain shell commands"),
        ("WORKDIR /opt/x", "WORKDIR /opt/x"),
    ],
)
def test_what_cannot_be_honoured_is_said(tmp_path: Path, line: str, said: str) -> None:
    made = image(tmp_path, f"FROM python:3.11\n{line}\n")
    assert any(said in problem for problem in made.problems), made.problems


def test_how_a_step_is_run_does_not_matter(tmp_path: Path) -> None:
    made = image(
        tmp_path,
        "FROM public.ecr.aws/docker/library/python:3.13-slim-bookworm@sha256:01f4\n"
        "RUN --network=host pip install --no-cache-dir pytest==8.4.1\n"
        "RUN --mount=type=cache,target=/root/.cache/pip --network=none pip install numpy\n",
    )
    assert made.problems == () and made.python == "3.13"
    assert made.requirements == ("pytest==8.4.1", "numpy")
    bound = image(tmp_path, "FROM python:3.11\nRUN --mount=type=secret,id=x cat /run/x\n")
    assert "plain shell commands" in bound.problems[0]


@pytest.mark.parametrize("base", ["ubuntu:24.04", "node:20", "python:latest", "x/python:3.11"])
def test_other_images_are_refused(tmp_path: Path, base: str) -> None:
    assert "Python images only" in image(tmp_path, f"FROM {base}\n").problems[0]


def test_no_dockerfile_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="needs a Dockerfile"):
        read_image(tmp_path)
