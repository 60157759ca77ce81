"""What a Dockerfile of a plain Python image asks for, and the Python of this machine that has it.

Nothing is built: FROM a Python image, COPY, WORKDIR, ENV and `pip install` of packages that are
there already are honoured. Any other step is a problem: its code, its line and a sentence.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePosixPath

from packaging.requirements import Requirement

from assay.task import TaskError
from rollouts.harbor.container import Container, name_inside

DOCKERFILE = "Dockerfile"
PYTHONS = "ASSAY_PYTHONS"  # more interpreters that may stand in for an image's, with colons
# the official image, also where a registry mirrors the official ones
_MIRROR = r"(?:docker\.io/|registry\.hub\.docker\.com/|mirror\.gcr\.io/|public\.ecr\.aws/docker/)"
_PYTHON = re.compile(rf"{_MIRROR}?(?:library/)?python:(\d+\.\d+)(?:[.\w-]*)(?:@sha256:\w+)?")
_NO_EFFECT = re.compile(
    r"(?:LABEL|EXPOSE|MAINTAINER|STOPSIGNAL|VOLUME)\b.*|USER (?:root|0)"
    r"|(?:CMD|ENTRYPOINT) \[?\s*\"?(?:/bin/|/usr/bin/)?(?:bash|sh|sleep|tail|python3)\b.*"
)
# options of RUN that say how a build step is run, not what it does
_HOW = re.compile(r"^(?:--(?:network=\w+|mount=type=(?:cache|tmpfs)\S*|security=\w+)\s+)+")
_PIP = re.compile(r"(?:python3? -m )?pip3? install\s|uv pip install\s")
_PIP_FLAGS = ("--no-cache-dir", "--system", "-q", "--quiet", "--upgrade", "-U", "--no-deps")
# an instruction with the lines that go on with it; comments and blank lines may stand between them
_INSTRUCTION = re.compile(r"(?m)^[ \t]*([^\s#]\S*)((?:.*\\[ \t]*\n(?:[ \t]*(?:#.*)?\n)*)*.*)$")
_CONTINUED = re.compile(r"\\[ \t]*\n(?:[ \t]*(?:#.*)?\n)*")
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::-([^}]*))?\}|(\w+))")


@dataclass
class Image:
    """What an image is made of; `copies` are (sources in `context`, absolute target)."""

    context: Path
    python: str = ""
    requirements: list[str] = field(default_factory=list[str])
    copies: list[tuple[list[str], str]] = field(default_factory=list[tuple[list[str], str]])
    env: dict[str, str] = field(default_factory=dict[str, str])
    workdir: str = "/"
    problems: list[str] = field(default_factory=list[str])


def read_image(context: Path) -> Image:
    """Read `context`/Dockerfile. Raises `TaskError` where there is none."""
    path = context / DOCKERFILE
    if not path.is_file():
        raise TaskError(f"{path}: no such file; the jail needs a Dockerfile")
    image = Image(context)
    for line, word, rest in instructions(path.read_text(encoding="utf-8", errors="replace")):
        try:
            _read(image, word, rest)
        except (_Refused, ValueError) as error:
            code, why = error.args if isinstance(error, _Refused) else ("syntax", str(error))
            image.problems.append(f"{code}: {DOCKERFILE} line {line}: {word} {rest[:60]}: {why}")
    if not image.python and not image.problems:
        image.problems.append(f"base_image: {DOCKERFILE}: it has no FROM")
    return image


class _Refused(Exception):
    """(code, sentence) of an instruction that the jail cannot honour."""


def instructions(text: str) -> Iterator[tuple[int, str, str]]:
    """(first line, instruction in capitals, its rest) of each instruction; no comments."""
    for found in _INSTRUCTION.finditer(f"{text}\n"):
        rest = _CONTINUED.sub(" ", found[2]).strip()
        yield text.count("\n", 0, found.start(1)) + 1, found[1].upper(), rest


def _read(image: Image, word: str, rest: str) -> None:
    filled = _VARIABLE.sub(lambda m: image.env.get(m[1] or m[3], m[2] or ""), rest)
    if word == "FROM":
        base = _PYTHON.fullmatch(filled.split()[0] if filled else "")
        if base is None or image.python:
            raise _Refused("base_image", "the jail stands in for one stage of a Python image only")
        image.python = base[1]
    elif word in ("COPY", "ADD"):
        _copy(image, filled)
    elif word == "WORKDIR":
        image.workdir = str(PurePosixPath(image.workdir) / filled.strip("\"'"))
        _offered(image.workdir)
    elif word == "ENV":
        words = shlex.split(filled)
        pairs = [w.partition("=") for w in words]
        spaced = bool(words) and "=" not in words[0]
        image.env |= {words[0]: " ".join(words[1:])} if spaced else {n: v for n, _, v in pairs}
    elif word == "RUN":
        for command in re.split(r"\s*(?:&&|;)\s*", _HOW.sub("", filled, count=1)):
            _pip_install(image, command)
    elif not _NO_EFFECT.fullmatch(f"{word} {rest}".strip()):
        raise _Refused("build_step", "the jail honours no such step and starts no service")


def _offered(path: str) -> None:
    try:
        name_inside(path)
    except TaskError as error:
        raise _Refused("place", str(error)) from None


def _copy(image: Image, rest: str) -> None:
    words: list[str] = json.loads(rest) if rest.startswith("[") else shlex.split(rest)
    words = [w for w in words if not w.startswith(("--chmod", "--chown"))]
    if len(words) < 2 or any(w.startswith("--") or "://" in w for w in words):
        raise _Refused("copy", "not a copy of the context's own files")
    *sources, target = words
    place = str(PurePosixPath(image.workdir) / target)
    _offered(place)
    folder = target.endswith("/") or target in (".", "./") or len(sources) > 1
    image.copies.append((sources, place + "/" * folder))


def _pip_install(image: Image, command: str) -> None:
    found = _PIP.match(command)
    if found is None:
        why = "no build step is run: no system packages, no network; only pip install is looked up"
        raise _Refused("build_step", why)
    words = iter(shlex.split(command[found.end() :]))
    for word in words:
        if word in ("-r", "--requirement"):
            path = image.context / PurePosixPath(next(words, "")).name
            if not path.is_file():
                raise _Refused("package", f"{path.name}: no such file in the build context")
            lines = [line.partition("#")[0].strip() for line in path.read_text("utf-8").split("\n")]
            image.requirements += filter(None, lines)
        elif "/" in word or word == "." or (word.startswith("-") and word not in _PIP_FLAGS):
            raise _Refused("package", f"{word}: only packages of an index are looked up")
        elif not word.startswith("-"):
            image.requirements.append(word)
    for wanted in image.requirements:
        Requirement(wanted)  # a ValueError says what cannot be read


def put_image(container: Container, image: Image) -> None:
    """Put the image's files into a container. Raises `TaskError` for a source that is not there."""
    container.cwd, container.env = "/app" if image.workdir == "/" else image.workdir, image.env
    top = image.context.resolve()
    for sources, target in image.copies:
        for name in sources:
            found = sorted(top.glob(name)) if set(name) & set("*?[") else [top / name]
            if not found or not all(s.exists() and s.resolve().is_relative_to(top) for s in found):
                raise TaskError(f"{image.context / name}: no such file in the build context")
            for source in found:
                inner = source.name if source.is_file() and target.endswith("/") else ""
                container.upload_tree(source, str(PurePosixPath(target, inner)))


# --- the Pythons of this machine ------------------------------------------------------------------

_ASK = (
    "import json,sys,importlib.metadata as m;"
    "print(json.dumps(['%d.%d' % sys.version_info[:2], {(d.metadata['Name'] or '').lower()"
    ".replace('_','-'): d.version for d in m.distributions()}]))"
)


@lru_cache(maxsize=32)
def installed(python: str) -> tuple[str, dict[str, str]]:
    """(version such as `3.11`, versions of the packages by name) of a Python. Raises `TaskError`
    for one that does not start."""
    words = [python, "-I", "-c", _ASK]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
        version, packages = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise TaskError(f"--python {python}: does not start as Python ({error})") from None
    return version, packages


def lacking(image: Image, python: str) -> list[str]:
    """What the image needs and this Python is not or has not, a sentence each."""
    version, packages = installed(python)
    found: list[str] = []
    if image.python and image.python != version:
        found.append(f"python_version: Python {image.python}; {python} is {version}")
    for wanted in image.requirements:
        need = Requirement(wanted)
        here = packages.get(need.name.lower().replace("_", "-"))
        if need.marker is not None and not need.marker.evaluate():
            continue
        if here is None or not need.specifier.contains(here, prereleases=True):
            why = "it is not installed" if here is None else f"here is {here}"
            found.append(f"package: pip install {wanted}: {why}; give --python with it installed")
    return found


def chosen_python(image: Image, more: Sequence[str] = ()) -> str:
    """The first Python that serves the image: this one, the given ones, those of `ASSAY_PYTHONS`.
    Raises `TaskError` with what the nearest one lacks."""
    named = [p for p in os.environ.get(PYTHONS, "").split(":") if p]
    nearest: list[str] | None = None
    for python in (sys.executable, *more, *named):
        lacks = lacking(image, python)
        if not lacks:
            return python
        nearest = lacks if nearest is None or len(lacks) < len(nearest) else nearest
    raise TaskError("; ".join(nearest or []))
