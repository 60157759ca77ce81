"""The pool: a bounded queue in front of warm launchers, the one way to run a call, and the report
of what this machine can enforce."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import math
import os
import re
import signal
import socket
import time
import weakref
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from rollouts.sandbox.jail import closed_folder
from rollouts.sandbox.model import MIB, Config, Limits, Report, Result, SandboxError, Status
from rollouts.sandbox.transfer import FrameError, join
from rollouts.sandbox.worker import Answer, Call, Launcher

_CHECK_S = 60.0  # for an interpreter to start, on a busy machine with a slow file system
_PER_LAUNCHER = 8  # workers
_OUT_OF_MEMORY = re.compile(r"^(\S*MemoryError\b|.*std::bad_alloc)", re.MULTILINE)
_NO_ROOM = re.compile(r"^OSError: \[Errno (28|27|122)\]", re.MULTILINE)
_live: weakref.WeakSet[Launcher] = weakref.WeakSet()


@dataclass
class Metrics:
    """Counts since the pool began."""

    calls: int = 0
    by_status: dict[str, int] = field(default_factory=dict[str, int])
    retried: int = 0
    recycled: int = 0

    def add(self, result: Result) -> None:
        self.calls += 1
        self.by_status[result.status] = self.by_status.get(result.status, 0) + 1


def plain_path(name: str) -> bool:
    """Whether `name` is a relative path that stays below its directory."""
    parts = name.split("/")
    return "\0" not in name and all(p not in ("", ".", "..") for p in parts) and len(name) < 1024


Shared = str | Mapping[str, str] | None  # a name in the config, or folder -> name


def placed(shared: Shared, config: Config) -> tuple[tuple[str, str], ...]:
    """Pairs (folder, name in the config), the work directory itself being the folder ""."""
    pairs = {"": shared} if isinstance(shared, str) else dict(shared or {})
    for folder, name in pairs.items():
        if name not in config.shared:
            known = ", ".join(sorted(config.shared)) or "none"
            raise ValueError(f"shared={name!r} is not in sandbox.shared (there: {known}); add it")
        if folder and (not plain_path(folder) or folder == "main.py"):
            raise ValueError(f"shared folder {folder!r}: give a relative path, or '' for all of it")
    for folder in filter(None, pairs):
        if any(other.startswith(f"{folder}/") for other in pairs):
            raise ValueError(f"shared folder {folder!r} holds another one; put them side by side")
    return tuple(pairs.items())


def check(
    code: str | bytes,
    files: Mapping[str, bytes | str] | None,
    fetch: Sequence[str],
    folders: Sequence[tuple[str, str]] = (),
) -> tuple[bytes, dict[str, bytes]]:
    """The code and the inputs as bytes; ValueError for what could never work."""
    source = code if isinstance(code, bytes) else code.encode("utf-8", "surrogatepass")
    inputs: dict[str, bytes] = {}
    for name, data in (files or {}).items():
        if not plain_path(name) or name == "main.py":
            raise ValueError(f"file name {name!r}: give a relative path below the work directory")
        if any(folder and f"{name}/".startswith(f"{folder}/") for folder, _ in folders):
            raise ValueError(f"file name {name!r} lies in a shared folder, which is read only")
        inputs[name] = data if isinstance(data, bytes) else data.encode()
    for name in fetch:
        if "/" in name:
            raise ValueError(f"fetch name {name!r}: only plain names, without '/', come back")
    return source, inputs


class Pool:
    """Warm launchers behind a bounded queue. Use as `async with Pool(Config()) as pool`."""

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or Config()
        self.metrics = Metrics()
        self._slots = asyncio.Semaphore(self.config.workers)
        self._door = asyncio.Semaphore(self.config.workers + self.config.queue)
        self._launchers: list[Launcher] = []
        self._stale: weakref.WeakSet[Launcher] = weakref.WeakSet()  # begun before `share`
        self._starting = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    async def __aenter__(self) -> Pool:
        await self.report()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def report(self) -> Report:
        """The layers that hold, from a running launcher; SandboxError below the minimum."""
        launcher = await self.pick()
        if launcher.report is None:
            raise SandboxError("the launcher has not reported yet")
        return launcher.report

    async def run(
        self,
        code: str | bytes,
        files: Mapping[str, bytes | str] | None = None,
        fetch: Sequence[str] = (),
        limits: Limits | None = None,
        seed: int | None = None,
        *,
        stdin: bytes | socket.socket = b"",
        argv: Sequence[str] = (),
        shared: Shared = None,
    ) -> Result:
        """Run `code` as `python main.py` in a jail of its own.

        `files` are put beside it, `fetch` names what comes back ("*": all that is new). `shared`
        names directories of the config that the call sees without a copy: "lake" in the work
        directory itself, {"data": "lake"} as its folder data/, read only. With a connected socket
        as `stdin` the caller and the code talk while it runs: such a call takes no place in the
        queue, is never tried twice, and ends as a timeout when the other end is closed. Never
        raises for what the code does; ValueError for names that could never be served.
        """
        folders = placed(shared, self.config)
        source, inputs = check(code, files, fetch, folders)
        call = Call(source, inputs, fetch, limits or Limits(), seed, stdin, argv, folders)
        asked = time.monotonic()
        if isinstance(stdin, socket.socket):
            result = await self._attempts(call, 0.0, most=1)
        else:
            async with self.turn():
                result = await self._attempts(call, time.monotonic() - asked, most=2)
        self.metrics.add(result)
        return result

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        """A worker's slot, after waiting in the bounded queue."""
        async with self._door, self._slots:
            yield

    def share(self, name: str, directory: str) -> None:
        """Let later calls ask for `directory` by `name`; launchers are replaced once idle."""
        if self.config.shared.get(name) != directory:
            self.config = replace(self.config, shared={**self.config.shared, name: directory})
            self._stale.update(self._launchers)

    async def _attempts(self, call: Call, queued: float, most: int) -> Result:
        """A jail that is lost says nothing about the code, so it may be tried once more."""
        why = ""
        for attempt in range(most):
            self.metrics.retried += attempt
            handed = time.monotonic()
            try:
                launcher = await self.pick()
                answer = await launcher.call(call)
                result = result_of(answer, call.limits, launcher.report, queued, handed)
                if result.status != "sandbox_error":
                    return result
                why = result.why
            except (OSError, EOFError, FrameError, SandboxError) as error:
                why = str(error) or type(error).__name__
        return Result("sandbox_error", why=why, queue_s=queued)

    async def pick(self) -> Launcher:
        """The launcher with the fewest calls, started or replaced where that is due."""
        async with self._starting:
            if self._closed:
                raise SandboxError("this pool is closed; make a new one")
            for launcher in [x for x in self._launchers if not self._usable(x)]:
                self._launchers.remove(launcher)
                self._retire(launcher)
            wanted = math.ceil(self.config.workers / _PER_LAUNCHER)
            busy = all(x.active for x in self._launchers)
            if not self._launchers or (busy and len(self._launchers) < wanted):
                launcher = await self._start()
                self._launchers.append(launcher)
            return min(self._launchers, key=lambda x: x.active)

    async def _start(self) -> Launcher:
        """A launcher that knows every directory shared by now; `share` may come while it starts."""
        while True:
            config = self.config
            launcher = await Launcher.start(config)
            _live.add(launcher)
            if config is self.config:
                await _check_exec(launcher)
                return launcher
            await launcher.close()

    def _usable(self, launcher: Launcher) -> bool:
        fresh = launcher.served < self.config.recycle_after and launcher not in self._stale
        return launcher.alive and fresh

    def _retire(self, launcher: Launcher) -> None:
        self.metrics.recycled += 1
        task = asyncio.create_task(_close_when_idle(launcher))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """End every launcher, and with it every process of every call."""
        self._closed = True
        launchers, self._launchers = self._launchers, []
        await asyncio.gather(*(x.close() for x in launchers), *self._closing)


_EXEC = b"import os, sys\nos.execv(sys.executable, [sys.executable, '-c', 'print(6 * 7)'])\n"


async def _check_exec(launcher: Launcher) -> None:
    """A program may start the interpreter anew, and we do when it has a syntax error: see that it
    starts inside, so that a jail that lacks one of its files is never the program's failure."""
    call = Call(_EXEC, {}, (), Limits(wall_s=_CHECK_S), None)
    try:
        answer = await launcher.call(call)
    except (OSError, EOFError, FrameError) as error:
        launcher.kill()
        raise SandboxError(f"the first jail was lost: {error}") from None
    out, err = (join(*stream).strip() for stream in answer.streams)
    if (answer.end, answer.status, out) != ("exit", 0, "42"):
        launcher.kill()
        level = launcher.report.level if launcher.report else "?"
        said = err.splitlines()[-1][-300:] if err else "it said nothing"
        how = f"{answer.end}, status {answer.status}: {said}"
        folder = closed_folder(os.fsdecode(launcher.python)) if "Permission denied" in err else ""
        todo = (
            f"it runs as another user there, who may not enter {folder}: chmod o+x {folder}, or "
            "use a Python elsewhere"
            if folder
            else "see that all it needs lies in its prefix, its base prefix or LD_LIBRARY_PATH"
        )
        raise SandboxError(
            f"{launcher.python} does not start inside the jail at level {level} ({how}); {todo}"
        )
    launcher.served = 0


async def _close_when_idle(launcher: Launcher) -> None:
    while launcher.active and launcher.alive:
        await asyncio.sleep(0.05)
    await launcher.close()


def result_of(
    answer: Answer, limits: Limits, report: Report | None, queued: float, handed: float
) -> Result:
    """The result of a call from what init answered. `queued`: seconds it waited for a worker;
    `handed`: the monotonic time at which it was passed on."""
    out, err = (join(*stream) for stream in answer.streams)
    code = None if answer.status is None else os.waitstatus_to_exitcode(answer.status)
    status, why = judge(answer, code, err, limits)
    return Result(
        status=status,
        exit_code=code,
        signal=-code if code is not None and code < 0 else None,
        stdout=out,
        stderr=err,
        stdout_bytes=answer.streams[0][2],
        stderr_bytes=answer.streams[1][2],
        files=answer.files,
        refused=answer.refused,
        wall_s=answer.wall,
        cpu_s=answer.cpu,
        peak_mb=answer.peak / MIB,
        layers=report.short() if report else {},
        why=why,
        queue_s=queued,
        spawn_s=max(0.0, answer.started - handed),
    )


def judge(answer: Answer, code: int | None, stderr: str, limits: Limits) -> tuple[Status, str]:
    """The status, and why: killed by us first, then the limits that the kernel enforced."""
    if answer.end == "timeout":
        return "timeout", f"still running after {limits.wall_s:g} s"
    if answer.end == "hung up":
        return "timeout", "the caller ended it"
    if answer.end == "cpu":
        return "timeout", f"used more than {limits.cpu_seconds} s of processor time"
    if answer.end == "memory":
        return "memory", f"all processes together used more than {limits.total_mb} MB"
    if answer.end == "disk":
        return "disk", "more files or bytes than the work directory may hold"
    if answer.end.startswith("input"):
        return "disk", f"the input files do not fit into the work directory ({answer.end})"
    if answer.end != "exit" or code is None:
        return "sandbox_error", f"the jail ended early ({answer.end}): {stderr[-300:]}"
    if code == 0:
        return "ok", ""
    if code == -signal.SIGXCPU or (code == -signal.SIGKILL and answer.cpu >= limits.cpu_seconds):
        return "timeout", f"used more than {limits.cpu_seconds} s of processor time"
    last = stderr.rstrip().rpartition("\n")[2]
    if _OUT_OF_MEMORY.match(last) or last.startswith("OSError: [Errno 12]"):
        return "memory", f"one process asked for more than {limits.memory_mb} MB"
    if _NO_ROOM.match(last) or answer.full or code == -signal.SIGXFSZ:
        return "disk", "no room left in the work directory, or a file above its limit"
    if code < 0:
        return "error", f"ended by signal {-code}"
    return "error", f"exit status {code}"


@dataclass
class FileStore:
    """Files of one episode: what a call leaves is offered to the next. Caps refuse, never cut."""

    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    file_mb: int = 64
    total_mb: int = 256

    def add(self, files: Mapping[str, bytes]) -> dict[str, str]:
        """Keep what fits; the reason for each file that does not."""
        refused: dict[str, str] = {}
        for name, data in files.items():
            rest = sum(len(d) for n, d in self.files.items() if n != name)
            if name == "main.py":
                continue
            if len(data) > self.file_mb * MIB:
                refused[name] = f"larger than {self.file_mb} MB"
            elif rest + len(data) > self.total_mb * MIB:
                refused[name] = f"all saved files together would exceed {self.total_mb} MB"
            else:
                self.files[name] = data
        return refused


def machine_report(config: Config | None = None) -> dict[str, Any]:
    """What this machine can enforce, found by doing it: the level, every layer, and a reason for
    each that is missing. Never raises.

    `level` is "none" where not even a filtered process can be started.
    """
    return asyncio.run(_machine_report(config or Config(workers=1, min_level="limits")))


async def _machine_report(config: Config) -> dict[str, Any]:
    try:
        async with Pool(config) as pool:
            found = await pool.report()
            result = await pool.run("print(6 * 7)")
    except SandboxError as error:
        return {"level": "none", "layers": {}, "missing": {"sandbox": str(error)}, "warm": False}
    return {**asdict(found), "warm": result.stdout == "42\n"}


def report_lines(found: dict[str, Any]) -> list[str]:
    """The report for people."""
    layers = ", ".join(f"{k}={v}" for k, v in found["layers"].items())
    text = [f"sandbox level: {found['level']} ({found.get('uid', '?')} user)", f"layers: {layers}"]
    return text + [f"missing {name}: {why}" for name, why in found["missing"].items()]


@atexit.register
def _end_all() -> None:  # pyright: ignore[reportUnusedFunction]
    for launcher in list(_live):
        with contextlib.suppress(Exception):
            launcher.kill()
