"""What a Dockerfile asks for, read as far as the jail can give it.

The jail has the system's files, a Python of the machine and the packages installed beside it. It
has no package manager and no network, so an image is honoured when its base is a Python image, its
pip installs are there already, and what else it does works with files alone. Everything that is not
is listed with a reason, and the image is then not run at all.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from assay.task import TaskError
from rollouts.harbor.box import KEPT, Box, listed, offered

DOCKERFILE = "Dockerfile"
# the official image, also where a registry mirrors the official ones
_MIRROR = r"(?:docker\.io/|registry\.hub\.docker\.com/|mirror\.gcr\.io/|public\.ecr\.aws/docker/)"
_PYTHON = re.compile(rf"^{_MIRROR}?(?:library/)?python:(\d+\.\d+)(?:[.\w-]*)(?:@sha256:\w+)?$")
# options of RUN that say how a build step is run, not what it does
_HOW = re.compile(r"^(?:--(?:network=\w+|mount=type=(?:cache|tmpfs)\S*|security=\w+)\s+)+")
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::-([^}]*))?\}|(\w+))")
# what these programs do, they do with files alone
_FILE_TOOLS = (
    *("mkdir", "cp", "mv", "touch", "chmod", "ln", "echo", "printf", "cat", "rm", "true", "sed"),
    *("python", "python3", "test", "[", "cd", "install"),
)
_IGNORED = ("LABEL", "EXPOSE", "MAINTAINER", "STOPSIGNAL", "VOLUME")
_PIP = re.compile(r"^(?:python3? -m )?pip3? install\b|^uv pip install\b")
_PIP_FLAGS = ("--no-cache-dir", "--system", "-q", "--quiet", "--upgrade", "-U", "--no-deps")


@dataclass(frozen=True)
class Copy:
    """Files of the build context, put at an absolute path."""

    sources: tuple[str, ...]
    target: str


@dataclass(frozen=True)
class Command:
    """A shell command of the build, which works with files alone."""

    text: str
    cwd: str


@dataclass(frozen=True)
class Image:
    """What an image is made of. `problems`: what the jail cannot honour, a sentence each."""

    python: str = ""
    requirements: tuple[str, ...] = ()
    steps: tuple[Copy | Command, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    workdir: str = "/"
    problems: tuple[str, ...] = ()


@dataclass
class _Reading:
    """The state of reading one Dockerfile from top to bottom."""

    context: Path
    python: str = ""
    requirements: list[str] = field(default_factory=list[str])
    steps: list[Copy | Command] = field(default_factory=list[Copy | Command])
    env: dict[str, str] = field(default_factory=dict[str, str])
    arguments: dict[str, str] = field(default_factory=dict[str, str])
    workdir: str = "/"
    problems: list[str] = field(default_factory=list[str])
    stages: int = 0


def read_image(context: Path) -> Image:
    """Read `context`/Dockerfile. Raises `TaskError` where there is none."""
    path = context / DOCKERFILE
    if not path.is_file():
        raise TaskError(f"{path}: no such file; the jail needs a Dockerfile")
    state = _Reading(context)
    for word, rest in instructions(path.read_text(encoding="utf-8", errors="replace")):
        _read(state, word, rest)
    if not state.stages:
        state.problems.append("the Dockerfile has no FROM")
    if state.workdir != "/" and not offered(state.workdir):
        state.problems.append(f"WORKDIR {state.workdir}: the jail has {listed(KEPT)}")
    return Image(
        state.python,
        tuple(state.requirements),
        tuple(state.steps),
        state.env,
        state.workdir,
        tuple(dict.fromkeys(state.problems)),
    )


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """(instruction in capitals, its rest) of each logical line; comments are left out."""
    logical = ""
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("#") or (not stripped and not logical):
            continue
        if stripped.endswith("\\"):
            logical += stripped[:-1] + " "
            continue
        logical += stripped
        if logical.strip():
            word, _, rest = logical.strip().partition(" ")
            yield word.upper(), rest.strip()
        logical = ""
    if logical.strip():
        word, _, rest = logical.strip().partition(" ")
        yield word.upper(), rest.strip()


def _filled(state: _Reading, text: str) -> str:
    known = {**state.arguments, **state.env}
    return _VARIABLE.sub(lambda m: known.get(m[1] or m[3], m[2] or ""), text)


def _read(state: _Reading, word: str, rest: str) -> None:
    if word == "FROM":
        _from(state, _filled(state, rest))
    elif word in ("COPY", "ADD"):
        _copy(state, word, _filled(state, rest))
    elif word == "RUN":
        _run(state, rest)
    elif word == "WORKDIR":
        place = _filled(state, rest).strip("\"'")
        state.workdir = str(PurePosixPath(state.workdir) / place)
    elif word == "ENV":
        state.env.update(_pairs(state, rest))
    elif word == "ARG":
        name, _, value = rest.partition("=")
        state.arguments.setdefault(name, _filled(state, value).strip("\"'"))
    elif word == "USER" and rest not in ("root", "0"):
        state.problems.append(f"USER {rest}: the jail has one user")
    elif word in ("CMD", "ENTRYPOINT"):
        _start(state, word, rest)
    elif word not in (*_IGNORED, "USER", "SHELL") or (word == "SHELL" and "bash" not in rest):
        state.problems.append(f"{word}: the jail starts no service and knows no such step")


def _from(state: _Reading, rest: str) -> None:
    state.stages += 1
    base = next((w for w in rest.split() if not w.startswith("--")), "")
    if state.stages > 1:
        state.problems.append("several build stages")
    found = _PYTHON.match(base)
    if found is None:
        state.problems.append(f"base image {base}: the jail stands in for Python images only")
    else:
        state.python = found[1]


def _copy(state: _Reading, word: str, rest: str) -> None:
    if rest.startswith("["):
        try:
            words: list[str] = [str(w) for w in json.loads(rest)]
        except ValueError:
            words = []
    else:
        words = [w for w in shlex.split(rest) if not w.startswith(("--chmod", "--chown"))]
    odd = next((w for w in words if w.startswith("--") or "://" in w), "")
    if odd or len(words) < 2:
        state.problems.append(f"{word} {rest}: not a copy of the context's own files")
        return
    target = words[-1]
    folder = target.endswith("/") or target in (".", "./") or len(words) > 2
    place = str(PurePosixPath(state.workdir) / target) + ("/" if folder else "")
    if not offered(place.rstrip("/") or "/"):
        state.problems.append(f"{word} to {place}: the jail has {listed(KEPT)}")
        return
    state.steps.append(Copy(tuple(words[:-1]), place))


def _run(state: _Reading, rest: str) -> None:
    rest = _HOW.sub("", rest)
    if rest.startswith(("[", "--", "<<")):
        state.problems.append(f"RUN {rest[:60]}: only plain shell commands are read")
        return
    for part in re.split(r"\s*&&\s*|\s*;\s*", rest):
        text = part.strip()
        if _PIP.match(text):
            _pip(state, _filled(state, text))
            continue
        first = text.split()[0] if text.split() else "true"
        if first not in _FILE_TOOLS:
            state.problems.append(f"RUN {text[:60]}: {_why(first)}")
        else:
            state.steps.append(Command(text, state.workdir))


def _why(program: str) -> str:
    if program in ("apt", "apt-get", "apk", "dnf", "yum"):
        return "the jail installs no system packages"
    if program in ("curl", "wget", "git"):
        return "the jail has no network"
    return "the jail's builds run file tools and Python only"


def _pip(state: _Reading, text: str) -> None:
    words = shlex.split(text)
    words = words[words.index("install") + 1 :]
    at = 0
    while at < len(words):
        word = words[at]
        if word in ("-r", "--requirement") and at + 1 < len(words):
            at += 1
            state.requirements.extend(_listed_in(state, words[at]))
        elif word.startswith("-") and word not in _PIP_FLAGS:
            state.problems.append(f"pip install {word}: an option that the jail cannot honour")
        elif "/" in word or word == ".":
            state.problems.append(f"pip install {word}: only packages of an index are looked up")
        elif not word.startswith("-"):
            state.requirements.append(word)
        at += 1


def _listed_in(state: _Reading, name: str) -> list[str]:
    """The lines of a requirements file, found in the context by the name of its copy."""
    path = state.context / PurePosixPath(name).name
    if not path.is_file():
        state.problems.append(f"pip install -r {name}: no such file in the build context")
        return []
    lines = (line.partition("#")[0].strip() for line in path.read_text("utf-8").splitlines())
    return [line for line in lines if line]


def _pairs(state: _Reading, rest: str) -> dict[str, str]:
    words = shlex.split(rest)
    if words and "=" not in words[0]:
        return {words[0]: _filled(state, " ".join(words[1:]))}
    return {n: _filled(state, v) for n, _, v in (w.partition("=") for w in words)}


def _start(state: _Reading, word: str, rest: str) -> None:
    """What a container starts with: a shell or a sleep changes nothing, else it is a service."""
    said = rest.strip("[]").replace('"', "").replace(",", " ").split()
    if said and PurePosixPath(said[0]).name not in ("bash", "sh", "sleep", "tail", "python3"):
        state.problems.append(f"{word} {rest[:60]}: the jail starts no service")


async def build(box: Box, image: Image, context: Path) -> None:
    """Put the image's files into the box. Raises `TaskError` for a source that is not there, and
    for a build command that fails."""
    box.cwd, box.env = image.workdir if image.workdir != "/" else "/app", image.env
    for made in image.steps:
        if isinstance(made, Copy):
            _put(box, made, context)
            continue
        ran = await box.run(made.text, cwd=made.cwd if made.cwd != "/" else "/app")
        if ran.status:
            said = (ran.stderr or ran.stdout or ran.why).strip()[-300:]
            raise TaskError(f"{context}: RUN {made.text[:60]} ended with {ran.status}: {said}")


def _put(box: Box, copy: Copy, context: Path) -> None:
    for name in copy.sources:
        found = sorted(context.glob(name)) if any(c in name for c in "*?[") else [context / name]
        for source in found:
            if not source.exists() or not source.resolve().is_relative_to(context.resolve()):
                raise TaskError(f"{source}: no such file in the build context")
            into = copy.target.rstrip("/")
            if source.is_file() and copy.target.endswith("/"):
                into = f"{into}/{source.name}"
            box.upload_tree(source, into)
        if not found:
            raise TaskError(f"{context / name}: no such file in the build context")


def row(image: Image) -> dict[str, Any]:
    """What a listing says of an image."""
    return {"python": image.python, "requirements": list(image.requirements)}
