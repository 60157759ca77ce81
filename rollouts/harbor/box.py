"""A box: the files of one Harbor environment, and commands that run on them in the jail.

Every command has a jail of its own, so nothing but files goes from one to the next: no process, no
open port. The state is a tar that is unpacked inside only; here single files are read out of it.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from assay.task import TaskError
from rollouts.harbor import step
from rollouts.sandbox.model import Config, Limits, SandboxError
from rollouts.sandbox.pool import Pool

# Where images put things. Each leads into the box; `tmp` has a file system of its own.
ROOTS = (
    *("app", "logs", "tests", "solution", "harbor", "workspace", "workdir", "data"),
    *("home", "testbed", "srv", "mnt", "input", "output", "inputs", "outputs", "installed-agent"),
)
KEPT = (*ROOTS, "tmp")
HOMES = ("/home/user", "/tmp/user")  # the first that can be made is $HOME
_FOLDERS = ("/logs/agent", "/logs/verifier", "/logs/artifacts")
_STEP = Path(step.__file__).read_text(encoding="utf-8")
SPARE_S = 60.0  # beyond a command's own time, for unpacking and packing


def box_config(python: str = "", workers: int = 2) -> Config:
    """The settings of a pool that boxes can use. `python`: the interpreter of the image."""
    base = Config(workers=workers, stack=(), roots=ROOTS, queue=100_000)
    return replace(base, python=python) if python else base


@dataclass(frozen=True)
class Ran:
    """What a command gave. `status` is 124 when its time ended it, 137 when the jail did; `why`
    then says the reason."""

    status: int
    stdout: str
    stderr: str
    why: str = ""


@dataclass(frozen=True)
class BoxLimits:
    """Bounds of each command: seconds, and MiB of memory and of files."""

    seconds: float = 600.0
    memory_mb: int = 4096
    storage_mb: int = 1024


@dataclass
class Box:
    """The files of one environment. Uploads wait until the next command.

    `run` raises `SandboxError` when the jail fails or has no namespaces of its own, never for what
    a command does.
    """

    pool: Pool
    limits: BoxLimits = field(default_factory=BoxLimits)
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    cwd: str = "/app"
    state: bytes = b""
    _uploads: list[bytes] = field(default_factory=list[bytes])
    _clear: list[str] = field(default_factory=list[str])

    def upload(self, files: Mapping[str, bytes], modes: Mapping[str, int] | None = None) -> None:
        """Put files at absolute paths. Raises `TaskError` for a path outside of the box."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for path, data in files.items():
                member = tarfile.TarInfo(_inner(path))
                member.size, member.mode = len(data), (modes or {}).get(path, 0o644)
                archive.addfile(member, io.BytesIO(data))
        self._uploads.append(buffer.getvalue())

    def upload_tree(self, source: Path, target: str) -> None:
        """Put a folder's files, or one file, at an absolute path. Links are followed inside of the
        folder only. Raises `TaskError`."""
        files: dict[str, bytes] = {}
        modes: dict[str, int] = {}
        top = source.resolve()
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            if not path.is_file():
                continue
            if top.is_dir() and not path.resolve().is_relative_to(top):
                raise TaskError(f"{path}: leads out of {source}; put the file itself there")
            name = target if top.is_file() else f"{target}/{path.relative_to(top).as_posix()}"
            files[name] = path.read_bytes()
            modes[name] = 0o755 if path.stat().st_mode & 0o100 else 0o644
        self.upload(files, modes)

    @property
    def waiting(self) -> bool:
        """Whether the next command has something to put in place."""
        return bool(self._uploads or self._clear)

    def clear(self, path: str) -> None:
        """Remove what lies at an absolute path, before the uploads of the next command."""
        self._clear.append(f"/{_inner(path)}")

    async def run(
        self,
        command: str,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        seconds: float | None = None,
    ) -> Ran:
        """Run a shell command on the files; what it leaves is the new state."""
        report = await self.pool.report()
        if report.level != "full":
            raise SandboxError(
                f"the jail's level here is {report.level}, which has no file system of its own; "
                "Harbor tasks use absolute paths and need user namespaces (`assay doctor`)"
            )
        bound = min(seconds or self.limits.seconds, self.limits.seconds)
        result = await self.pool.run(
            _STEP,
            self._files(self._order(command, cwd or self.cwd, env or {}, bound)),
            fetch=(step.STATE, step.DONE),
            limits=self._jail(bound),
        )
        if result.status == "sandbox_error":
            raise SandboxError(result.why)
        if step.DONE not in result.files or step.STATE not in result.files:
            late = result.status == "timeout"
            why = result.why or "the command ended the jail; its files are as before it"
            return Ran(124 if late else 137, result.stdout, result.stderr, why)
        self.state, self._uploads, self._clear = result.files[step.STATE], [], []
        status, late = _read_done(result.files[step.DONE])
        why = f"still running after {bound:g} s" if late else ""
        return Ran(status, result.stdout, result.stderr, why)

    def files(self, folder: str) -> dict[str, bytes]:
        """Regular files at and below an absolute path, by their path below it ("" for itself)."""
        top = _inner(folder)
        found: dict[str, bytes] = {}
        if not self.state:
            return found
        with tarfile.open(fileobj=io.BytesIO(self.state)) as archive:
            for member in archive:
                inside = member.name == top or member.name.startswith(f"{top}/")
                if not member.isreg() or not inside or ".." in member.name.split("/"):
                    continue
                data = archive.extractfile(member)
                found[member.name[len(top) + 1 :]] = data.read() if data else b""
        return found

    def _order(
        self, command: str, cwd: str, env: Mapping[str, str], seconds: float
    ) -> dict[str, object]:
        return {
            "command": command,
            "cwd": cwd,
            "homes": HOMES,
            "env": {"PWD": cwd, **self.env, **env},
            "seconds": seconds,
            "roots": KEPT,
            "archives": [step.STATE] if self.state else [],
            "clear": self._clear,
            "uploads": [f"upload-{i}.tar" for i in range(len(self._uploads))],
            "folders": [*_FOLDERS, self.cwd],
        }

    def _files(self, order: Mapping[str, object]) -> dict[str, bytes]:
        files = {step.ORDER: json.dumps(order).encode()}
        if self.state:
            files[step.STATE] = self.state
        return files | {f"upload-{i}.tar": data for i, data in enumerate(self._uploads)}

    def _jail(self, seconds: float) -> Limits:
        """The state lies there twice for a moment: as files and as a tar."""
        size = self.limits.storage_mb
        return Limits(
            wall_s=seconds + SPARE_S,
            cpu_s=(seconds + SPARE_S) * 4,
            memory_mb=self.limits.memory_mb,
            total_mb=self.limits.memory_mb * 3 // 2,
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


def _inner(path: str) -> str:
    """An absolute path as a name in the state. Raises `TaskError` for one outside of the box."""
    parts = [p for p in PurePosixPath(path).parts if p not in ("/", ".")]
    if not path.startswith("/") or not parts or parts[0] not in KEPT or ".." in parts:
        raise TaskError(f"{path}: no place in the jail; it has {listed(KEPT)} and what they hold")
    return "/".join(parts)


def offered(path: str) -> bool:
    """Whether an absolute path lies in a box."""
    try:
        _inner(path)
    except TaskError:
        return False
    return True


def listed(roots: Sequence[str]) -> str:
    return ", ".join(f"/{name}" for name in roots)
