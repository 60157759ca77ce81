"""A container without Docker: the files of one Harbor environment, and commands that run on them
in the jail.

Every command has a jail of its own, so nothing but files goes from one to the next: no process, no
open port. The state is a tar, which is unpacked inside only; here files are read out of it and put
into it.
"""

from __future__ import annotations

import io
import json
import sys
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

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
