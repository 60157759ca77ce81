"""What a Dockerfile of a plain Python image asks for, and whether a Python of this machine has it.

Nothing is built: FROM a Python image, COPY of the context's files, WORKDIR, ENV and `pip install`
of packages that are there already are honoured. Any other step is refused: its code, the step and a
sentence.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from packaging.requirements import Requirement

from assay.task import TaskError
from rollouts.harbor.container import name_inside, tree

DOCKERFILE = "Dockerfile"
_PYTHON = re.compile(
    r"(?:docker\.io/|public\.ecr\.aws/docker/)?(?:library/)?python:(\d+\.\d+)[.\w-]*(?:@sha256:\w+)?"
)
_NO_EFFECT = re.compile(
    r"(LABEL|EXPOSE|MAINTAINER)\b|USER (root|0)$"
    r"|(CMD|ENTRYPOINT) \[?\"?(/bin/)?(bash|sh|sleep|python3)\b"
)
_PIP = re.compile(r"(?:python3? -m )?pip3? install\s+((?:--no-cache-dir\s+|-q\s+|--upgrade\s+)*)")
_CONTINUED = re.compile(r"\\[ \t]*\n(?:[ \t]*(?:#.*)?\n)*")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


@dataclass
class Image:
    """What an image is made of; `files` are (content, mode) by absolute path."""

    python: str = ""
    requirements: list[str] = field(default_factory=list[str])
    files: dict[str, tuple[bytes, int]] = field(default_factory=dict[str, tuple[bytes, int]])
    env: dict[str, str] = field(default_factory=dict[str, str])
    workdir: str = "/"

    @property
    def cwd(self) -> str:
        """Where commands run."""
        return "/app" if self.workdir == "/" else self.workdir


def read_image(context: Path) -> Image:
    """What `context`/Dockerfile makes. Raises `TaskError` naming the first step that cannot be
    honoured."""
    try:
        text = (context / DOCKERFILE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        raise TaskError(
            f"base_image: no {context / DOCKERFILE}; the jail pulls no images"
        ) from None
    image = Image()
    for line in map(str.strip, _CONTINUED.sub(" ", text).split("\n")):
        word, _, rest = line.partition(" ")
        if word and not word.startswith("#"):
            try:
                _step(image, context, word.upper(), rest.strip())
            except (TaskError, ValueError) as error:
                code = "base_image" if word.upper() == "FROM" else "build_step"
                raise TaskError(f"{code}: {DOCKERFILE}: {line[:80]}: {error}") from None
    if not image.python:
        raise TaskError(f"base_image: {DOCKERFILE}: it has no FROM")
    return image


def _step(image: Image, context: Path, word: str, rest: str) -> None:
    """Do one step. Raises `TaskError` or ValueError for one that cannot be honoured."""
    filled = _VARIABLE.sub(lambda found: image.env.get(found[1] or found[2], ""), rest)
    if "${" in filled:
        raise TaskError("variables with defaults are not read")
    if word == "FROM" and not image.python and (base := _PYTHON.fullmatch(filled)):
        image.python = base[1]
    elif word in ("COPY", "ADD"):
        *sources, target = json.loads(filled) if filled.startswith("[") else shlex.split(filled)
        for source in sources:
            _copy(image, context, source, target, len(sources) > 1 or target[-1:] in ("/", "."))
    elif word == "WORKDIR":
        image.workdir = str(PurePosixPath(image.workdir) / filled)
        name_inside(image.workdir)
    elif word == "ENV":
        pairs = [word.partition("=") for word in shlex.split(filled)]
        if not all(equals for _, equals, _ in pairs):
            raise TaskError("wanted NAME=VALUE")
        image.env |= {name: value for name, _, value in pairs}
    elif word == "RUN" and (pip := _PIP.match(filled)):
        for wanted in shlex.split(filled[pip.end() :]):
            Requirement(wanted)  # a ValueError says what cannot be read
            image.requirements.append(wanted)
    elif not _NO_EFFECT.match(f"{word} {rest}"):
        raise TaskError("the jail builds no image: no other base, command, stage or service")


def _copy(image: Image, context: Path, source: str, target: str, folder: bool) -> None:
    found = (context / source).resolve()
    if source.startswith("--") or not found.exists() or not found.is_relative_to(context.resolve()):
        raise TaskError(f"{source}: not a file of the build context")
    place = PurePosixPath(image.workdir, target, found.name if folder and found.is_file() else "")
    name_inside(str(place))
    image.files |= tree(found, str(place))


_ASK = """
import sys, importlib.metadata
print("%d.%d" % sys.version_info[:2])
for name in sys.argv[1:]:
    try:
        print(importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        print()
"""


def refuse_lacking(image: Image, python: str) -> None:
    """Raise `TaskError` for a Python of another version than the image's, or without a package that
    it installs."""
    needs = [Requirement(wanted) for wanted in image.requirements]
    words = [python, "-I", "-c", _ASK, *(need.name for need in needs)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise TaskError(f"{python}: does not start as Python ({error})") from None
    version, *here = done.stdout.splitlines()
    if image.python != version:
        raise TaskError(f"python_version: Python {image.python}; {python} is {version}")
    for need, found in zip(needs, here, strict=True):
        if not found or not need.specifier.contains(found, prereleases=True):
            why = f"here is {found}" if found else "it is not installed"
            raise TaskError(f"package: pip install {need}: {why} in {python}")
