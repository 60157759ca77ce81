"""A container without Docker: what a Dockerfile asks for, the files of one Harbor environment, and
commands that run on them in the jail.

No image is built: FROM a Python image, COPY of the context's files, WORKDIR, ENV and `pip install`
of packages that are there already are honoured. Any other step is refused: its code, the step and a
sentence.

Every command has a jail of its own, so nothing but files goes from one to the next: no process, no
open port. The state is a tar, which is unpacked inside only; here files are read out of it and put
into it.
"""

from __future__ import annotations

import io
import json
import re
import shlex
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any

from packaging.requirements import Requirement

from assay.task import TaskError
from rollouts.harbor import run_command
from rollouts.harbor.run_command import LATE, ORDER, STATE
from rollouts.sandbox.model import Config, Limits, Result, SandboxError
from rollouts.sandbox.pool import Pool

# Where images put things. Each leads into the container; `tmp` has a file system of its own.
ROOTS = (
    *("app", "logs", "tests", "solution", "harbor", "workspace", "workdir", "data"),
    *("home", "testbed", "srv", "mnt", "input", "output", "inputs", "outputs", "installed-agent"),
)
# a folder below /home cannot be made where the jail's Python lies there
HOME = "/tmp/user"
_FOLDERS = (HOME, "/logs/agent", "/logs/verifier", "/logs/artifacts")
_PROGRAM = Path(run_command.__file__).read_text(encoding="utf-8")
SPARE_S = 60.0  # beyond a command's own time, for unpacking and packing

Files = dict[str, tuple[bytes, int]]  # content and mode, by absolute path


def container_config(workers: int = 2, python: str = sys.executable) -> Config:
    """The settings of a pool for containers. Its level is `full`: Harbor tasks use absolute paths,
    and only there has the jail a file system of its own. `python`: the image's interpreter."""
    return Config(workers=workers, min_level="full", stack=(), roots=ROOTS, python=python)


@dataclass
class Container:
    """The files of one environment, at first those of its image: `state` is a tar of them."""

    pool: Pool
    image: Image
    state: bytes = bytes(tarfile.RECORDSIZE)  # of nothing

    def __post_init__(self) -> None:
        self.put(self.image.files)

    def put(self, files: Files, clear: tuple[str, ...] = ()) -> None:
        """Put files at absolute paths, in place of what stands there; the folders of `clear` are
        emptied first. Raises `TaskError` for a path outside of the container."""
        gone = {PurePosixPath(name_inside(path)) for path in (*files, *clear)}
        folders = {parent for path in gone for parent in path.parents}
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for member, data in self._members():
                path = PurePosixPath(member.name)
                if not gone & {path, *path.parents} and (member.isdir() or path not in folders):
                    archive.addfile(member, io.BytesIO(data))
            for path, (data, mode) in files.items():
                member = tarfile.TarInfo(name_inside(path))
                member.size, member.mode = len(data), mode
                archive.addfile(member, io.BytesIO(data))
        self.state = buffer.getvalue()

    def files(self, folder: str) -> dict[str, bytes]:
        """Regular files at and below an absolute path, by their path below it ("" for itself)."""
        top = name_inside(folder)
        return {
            member.name[len(top) + 1 :]: data
            for member, data in self._members()
            if member.isreg() and (member.name == top or member.name.startswith(f"{top}/"))
        }

    def _members(self) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
        """What the state holds: a command may have written it, so names lead nowhere here."""
        with tarfile.open(fileobj=io.BytesIO(self.state)) as archive:
            for member in archive:
                if ".." not in member.name.split("/") and not member.issparse():
                    file = member.isreg() or member.islnk()
                    found = archive.extractfile(member) if file else None
                    data = found.read() if found else b""
                    if member.islnk():  # a file of two names is two files
                        member.type, member.size = tarfile.REGTYPE, len(data)
                    yield member, data

    async def run(
        self, command: str, seconds: float, cwd: str = "", env: Mapping[str, str] | None = None
    ) -> Result:
        """Run a shell command on the files; what it leaves is the new state. `exit_code` is the
        command's own, 124 when its time ended it, 137 when the jail did; `why` says the reason of
        the two. Raises `SandboxError` when the jail fails, never for what a command does."""
        image = self.image
        place, size = cwd or image.workdir, image.storage_mb
        order = {
            "command": command,
            "cwd": place,
            "env": {"PWD": place, "HOME": HOME, **image.env, **(env or {})},
            "seconds": seconds,
            "roots": ROOTS,
            "folders": [*_FOLDERS, image.workdir],
        }
        # the state lies there twice for a moment: as files and as a tar
        limits = Limits(
            wall_s=seconds + SPARE_S,
            cpu_s=(seconds + SPARE_S) * 4,
            memory_mb=image.memory_mb,
            total_mb=image.memory_mb * 3 // 2,
            file_mb=size,
            work_mb=3 * size + 64,
            work_files=100_000,
            output_kb=1024,
            fetch_mb=size + 64,
            fetch_total_mb=size + 128,
        )
        files = {ORDER: json.dumps(order).encode(), STATE: self.state}
        ran = await self.pool.run(_PROGRAM, files, (STATE,), limits)
        if ran.status == "sandbox_error":
            raise SandboxError(ran.why)
        if STATE not in ran.files:
            why = ran.why or "the command ended the jail; its files are as before it"
            return replace(ran, exit_code=LATE if ran.status == "timeout" else 137, why=why)
        self.state = ran.files[STATE]
        late = ran.exit_code == LATE and ran.wall_s >= seconds
        return replace(ran, why=f"still running after {seconds:g} s" if late else "")


def name_inside(path: str) -> str:
    """An absolute path as a name in the state. Raises `TaskError` for one outside of the
    container."""
    parts = [p for p in PurePosixPath(path).parts if p not in ("/", ".")]
    if not path.startswith("/") or not parts or parts[0] not in (*ROOTS, "tmp") or ".." in parts:
        places = ", ".join(f"/{name}" for name in (*ROOTS, "tmp"))
        raise TaskError(f"{path}: no place in the jail; it has {places} and what they hold")
    return "/".join(parts)


def tree(source: Path, target: str) -> Files:
    """A folder's files, or one file, at an absolute path: their content and mode. Links are
    followed inside of the folder only. Raises `TaskError`."""
    top, found = source.resolve(), Files()
    for path in [top] if top.is_file() else sorted(top.rglob("*")):
        if path.is_file():
            if not path.resolve().is_relative_to(top):
                raise TaskError(f"{path}: leads out of {source}; put the file itself there")
            name = PurePosixPath(target, path.relative_to(top).as_posix())
            mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            found[str(name)] = path.read_bytes(), mode
    return found


# --- what an image is made of

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
    """What an environment is made of: its files, and for a command, which runs in `workdir`,
    MiB of memory and of files."""

    python: str = ""
    requirements: list[str] = field(default_factory=list[str])
    files: Files = field(default_factory=Files)
    env: dict[str, str] = field(default_factory=dict[str, str])
    workdir: str = "/"
    memory_mb: int = 4096
    storage_mb: int = 1024


def read_image(context: Path, asked: Mapping[str, Any]) -> Image:
    """The image that `context`/Dockerfile describes. `asked`: the table `environment` of task.toml.
    Raises `TaskError` naming the first step that the jail cannot honour."""
    if asked.get("docker_image"):
        raise TaskError("environment: environment.docker_image: the jail has none")
    for path in context.glob("*compose*.y*ml"):
        raise TaskError(f"services: {path.name}: the jail starts none")
    file, image = context / DOCKERFILE, Image()
    if not file.is_file():
        raise TaskError(f"base_image: no {file}; the jail pulls no images")
    text = file.read_text(encoding="utf-8", errors="replace")
    image.memory_mb = int(asked.get("memory_mb") or image.memory_mb)
    image.storage_mb = min(int(asked.get("storage_mb") or image.storage_mb), 4096)
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
    own = "/app" if image.workdir == "/" else image.workdir
    image.workdir = str(asked.get("workdir") or own)
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


_ASK = "import json, sys; print(json.dumps(['%d.%d' % sys.version_info[:2], sys.path]))"


def refuse_lacking(image: Image, python: str) -> None:
    """Raise `TaskError` for a Python of another version than the image's, or without a package that
    it installs."""
    try:
        words = [python, "-I", "-c", _ASK]
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise TaskError(f"{python}: does not start as Python ({error})") from None
    version, places = json.loads(done.stdout)
    if image.python != version:
        raise TaskError(f"python_version: Python {image.python}; {python} is {version}")
    for need in map(Requirement, image.requirements):
        here = next(iter(metadata.distributions(name=need.name, path=places)), None)
        if here is None or not need.specifier.contains(here.version, prereleases=True):
            why = f"here is {here.version}" if here else "it is not installed"
            raise TaskError(f"package: pip install {need}: {why} in {python}")
