"""What is read out of Dockerfiles, and what cannot be honoured."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.task import TaskError
from rollouts.harbor.dockerfile import Image, instructions, read_image


def image(folder: Path, text: str) -> Image:
    (folder / "Dockerfile").write_text(text)
    return read_image(folder)


def test_a_python_image_is_read(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("scipy>=1 # for tests\n\n")
    made = image(
        tmp_path,
        "# a comment\nFROM python:3.11.4-slim@sha256:ab12\nENV PLACE=/app\nENV A=1 B='2 3'\n"
        "WORKDIR $PLACE\nRUN pip install --no-cache-dir numpy==1.26 \\\n    'pandas>=2'\n"
        "COPY requirements.txt .\nRUN pip install -r requirements.txt\n"
        'COPY ["a b.txt", "c.txt", "/data/"]\nADD x y\nEXPOSE 80\nCMD ["bash"]\n',
    )
    assert made.problems == []
    assert made.python == "3.11" and made.workdir == "/app"
    assert made.requirements == ["numpy==1.26", "pandas>=2", "scipy>=1"]
    assert made.env == {"PLACE": "/app", "A": "1", "B": "2 3"}
    assert made.copies == [
        (["requirements.txt"], "/app/"),
        (["a b.txt", "c.txt"], "/data/"),
        (["x"], "/app/y"),
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("RUN apt-get update && apt-get install -y gcc", "no system packages"),
        ("RUN curl -O http://x/y", "no network"),
        ("RUN npm install", "no build step is run"),
        ("RUN pip install numpy && mkdir /app/x", "no build step is run"),
        ("ARG X=1", "no such step"),
        ("ENV A='1", "syntax: Dockerfile line 2: ENV"),
        ("RUN pip install git+https://x/y", "only packages of an index"),
        ("RUN pip install --find-links=http://x numpy", "only packages of an index"),
        ("COPY --from=build /a /app/", "not a copy of the context's own files"),
        ("ADD https://x/y /app/", "not a copy of the context's own files"),
        ("COPY a /usr/lib/a", "no place in the jail"),
        ("USER nobody", "no such step"),
        ('CMD ["nginx"]', "starts no service"),
        ("HEALTHCHECK CMD true", "no such step"),
        ("FROM python:3.11", "one stage of a Python image"),
        ("RUN <<EOF", "no build step is run"),
        ("WORKDIR /opt/x", "WORKDIR /opt/x"),
    ],
)
def test_what_cannot_be_honoured_is_said(tmp_path: Path, line: str, said: str) -> None:
    made = image(tmp_path, f"FROM python:3.11\n{line}\n")
    (problem,) = made.problems
    assert said in problem and f"Dockerfile line 2: {line.split()[0]}" in problem


def test_lines_are_counted_over_comments_and_continued_lines() -> None:
    text = "# one\nFROM a\n\nRUN b \\\n  # two\n\n  c \\\n  d\nCOPY e f\nRUN g \\\n# three"
    found = [(line, word, " ".join(rest.split())) for line, word, rest in instructions(text)]
    assert found == [(2, "FROM", "a"), (4, "RUN", "b c d"), (9, "COPY", "e f"), (10, "RUN", "g")]


def test_how_a_step_is_run_does_not_matter(tmp_path: Path) -> None:
    made = image(
        tmp_path,
        "FROM public.ecr.aws/docker/library/python:3.13-slim-bookworm@sha256:01f4\n"
        "RUN --network=host pip install --no-cache-dir pytest==8.4.1\n"
        "RUN --mount=type=cache,target=/root/.cache/pip --network=none pip install numpy\n",
    )
    assert made.problems == [] and made.python == "3.13"
    assert made.requirements == ["pytest==8.4.1", "numpy"]
    bound = image(tmp_path, "FROM python:3.11\nRUN --mount=type=secret,id=x cat /run/x\n")
    assert "no build step is run" in bound.problems[0]


@pytest.mark.parametrize("base", ["ubuntu:24.04", "node:20", "python:latest", "x/python:3.11"])
def test_other_images_are_refused(tmp_path: Path, base: str) -> None:
    assert "base_image: Dockerfile line 1" in image(tmp_path, f"FROM {base}\n").problems[0]


def test_no_dockerfile_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="needs a Dockerfile"):
        read_image(tmp_path)
