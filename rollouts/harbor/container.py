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
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from packaging.requirements import Requirement

from assay.task import TaskError
from rollouts.harbor import run_command
from rollouts.harbor.run_command import DONE, ORDER, STATE
from rollouts.sandbox.model import Config, Limits, SandboxError
from rollouts.sandbox.pool import Pool

# Where images put things. Each leads into the container; `tmp` has a file system of its own.
ROOTS = (
    *("app", "logs", "tests", "solution", "harbor", "workspace", "workdir", "data"),
    *("home", "testbed", "srv", "mnt", "input", "output", "inputs", "outputs", "installed-agent"),
)
KEPT = (*ROOTS, "tmp")
# a folder below /home cannot be made where the jail's Python lies there
HOME = "/tmp/user"
_FOLDERS = (HOME, "/logs/agent", "/logs/verifier", "/logs/artifacts")
_PROGRAM = Path(run_command.__file__).read_text(encoding="utf-8")
SPARE_S = 60.0  # beyond a command's own time, for unpacking and packing


def container_config(workers: int = 2, python: str = sys.executable) -> Config:
    """The settings of a pool that containers can use. `python`: the interpreter of the image."""
    return Config(workers=workers, stack=(), roots=ROOTS, python=python)


@dataclass(frozen=True)
class CommandResult:
    """What a command gave. `status` is 124 when its time ended it, 137 when the jail did; `why`
    then says the reason."""

    status: int
    stdout: str
    stderr: str
    why: str = ""


@dataclass
class Container:
    """The files of one environment: `state` is a tar of them.

    Bounds of each command: `seconds`, and MiB of memory and of files. `run` raises `SandboxError`
    when the jail fails or has no namespaces of its own, never for what a command does.
    """

    pool: Pool
    seconds: float = 600.0
    memory_mb: int = 4096
    storage_mb: int = 1024
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    cwd: str = "/app"
    state: bytes = b""

    def put(self, files: Mapping[str, tuple[bytes, int]], clear: tuple[str, ...] = ()) -> None:
        """Put files (content, mode) at absolute paths, in place of what stands there; the folders
        of `clear` are emptied first. Raises `TaskError` for a path outside of the container."""
        new = {name_inside(path): file for path, file in files.items()}
        emptied = {PurePosixPath(name_inside(path)) for path in clear}
        folders = {parent for name in new for parent in PurePosixPath(name).parents}
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for member, data in self._members():
                path = PurePosixPath(member.name)
                stands = {path, *path.parents}
                in_the_way = path in folders and not member.isdir()
                if not (in_the_way or stands & emptied or any(str(p) in new for p in stands)):
                    archive.addfile(member, io.BytesIO(data))
            for name, (data, mode) in new.items():
                member = tarfile.TarInfo(name)
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
        if self.state:
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
        self,
        command: str,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        seconds: float | None = None,
    ) -> CommandResult:
        """Run a shell command on the files; what it leaves is the new state."""
        report = await self.pool.report()
        if report.level != "full":
            raise SandboxError(
                f"the jail's level here is {report.level}, which has no file system of its own; "
                "Harbor tasks use absolute paths and need user namespaces (`assay doctor`)"
            )
        bound, place = min(seconds or self.seconds, self.seconds), cwd or self.cwd
        order = {
            "command": command,
            "cwd": place,
            "env": {"PWD": place, "HOME": HOME, **self.env, **(env or {})},
            "seconds": bound,
            "roots": KEPT,
            "folders": [*_FOLDERS, self.cwd],
        }
        files = {ORDER: json.dumps(order).encode(), **({STATE: self.state} if self.state else {})}
        result = await self.pool.run(_PROGRAM, files, (STATE, DONE), limits=self._limits(bound))
        if result.status == "sandbox_error":
            raise SandboxError(result.why)
        if DONE not in result.files or STATE not in result.files:
            late = result.status == "timeout"
            why = result.why or "the command ended the jail; its files are as before it"
            return CommandResult(124 if late else 137, result.stdout, result.stderr, why)
        self.state = result.files[STATE]
        status, late = _read_done(result.files[DONE])
        why = f"still running after {bound:g} s" if late else ""
        return CommandResult(status, result.stdout, result.stderr, why)

    def _limits(self, seconds: float) -> Limits:
        """The state lies there twice for a moment: as files and as a tar."""
        size = self.storage_mb
        return Limits(
            wall_s=seconds + SPARE_S,
            cpu_s=(seconds + SPARE_S) * 4,
            memory_mb=self.memory_mb,
            total_mb=self.memory_mb * 3 // 2,
            file_mb=size,
            work_mb=3 * size + 64,
            work_files=100_000,
            output_kb=1024,
            fetch_mb=size + 64,
            fetch_total_mb=size + 128,
        )


def _read_done(data: bytes) -> tuple[int, bool]:
    """(exit status, whether time ended it), written by a process that the command could reach."""
    try:
        done = json.loads(data)
        return int(done["status"]) & 0xFF, bool(done["late"])
    except (ValueError, TypeError, LookupError, RecursionError):
        return 137, False


def name_inside(path: str) -> str:
    """An absolute path as a name in the state. Raises `TaskError` for one outside of the
    container."""
    parts = [p for p in PurePosixPath(path).parts if p not in ("/", ".")]
    if not path.startswith("/") or not parts or parts[0] not in KEPT or ".." in parts:
        places = ", ".join(f"/{name}" for name in KEPT)
        raise TaskError(f"{path}: no place in the jail; it has {places} and what they hold")
    return "/".join(parts)


def tree(source: Path, target: str) -> dict[str, tuple[bytes, int]]:
    """A folder's files, or one file, at an absolute path: their content and mode. Links are
    followed inside of the folder only. Raises `TaskError`."""
    top, found = source.resolve(), dict[str, tuple[bytes, int]]()
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
