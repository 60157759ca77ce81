"""The pool: a bounded queue in front of warm launchers, and the one way to run a call."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import math
import os
import time
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rollouts.sandbox.exchange import Call
from rollouts.sandbox.interpreter import closed_folder
from rollouts.sandbox.model import Config, Limits, Report, Result, SandboxError
from rollouts.sandbox.text import join
from rollouts.sandbox.verdict import to_result
from rollouts.sandbox.wire import WireError
from rollouts.sandbox.worker import Launcher

_CHECK_S = 60.0  # for an interpreter to start, on a busy machine with a slow file system
_live: weakref.WeakSet[Launcher] = weakref.WeakSet()


@dataclass
class Metrics:
    """Counts since the pool began and the latest waits, in seconds."""

    calls: int = 0
    by_status: dict[str, int] = field(default_factory=dict[str, int])
    retried: int = 0
    launchers: int = 0
    recycled: int = 0
    queue_s: deque[float] = field(default_factory=lambda: deque[float](maxlen=1000))
    spawn_s: deque[float] = field(default_factory=lambda: deque[float](maxlen=1000))
    run_s: deque[float] = field(default_factory=lambda: deque[float](maxlen=1000))

    def add(self, result: Result) -> None:
        self.calls += 1
        self.by_status[result.status] = self.by_status.get(result.status, 0) + 1
        self.queue_s.append(result.queue_s)
        self.spawn_s.append(result.spawn_s)
        self.run_s.append(result.wall_s)


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
        launcher = await self._pick()
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
        stdin: bytes = b"",
        argv: Sequence[str] = (),
        shared: Shared = None,
    ) -> Result:
        """Run `code` as `python main.py` in a jail of its own.

        `files` are put beside it, `fetch` names what comes back ("*": all that is new). `shared`
        names directories of the config that the call sees without a copy: "lake" in the work
        directory itself, {"data": "lake"} as its folder data/, read only. Never raises for what
        the code does; ValueError for names that could never be served.
        """
        folders = placed(shared, self.config)
        source, inputs = check(code, files, fetch, folders)
        call = Call(source, inputs, fetch, limits or Limits(), seed, stdin, argv, folders)
        asked = time.monotonic()
        async with self.turn():
            result = await self._attempts(call, time.monotonic() - asked)
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

    async def borrow(self) -> Launcher:
        """A launcher that counts one more call until `active` is lowered again."""
        launcher = await self._pick()
        launcher.active += 1
        return launcher

    async def _attempts(self, call: Call, queued: float) -> Result:
        """A jail that is lost says nothing about the code, so it is tried once more."""
        why = ""
        for attempt in range(2):
            self.metrics.retried += attempt
            handed = time.monotonic()
            try:
                launcher = await self._pick()
                answer = await launcher.call(call)
                result = to_result(answer, call, launcher.report, queued, handed)
                if result.status != "sandbox_error":
                    return result
                why = result.why
            except (OSError, EOFError, WireError, SandboxError) as error:
                why = str(error) or type(error).__name__
        return Result("sandbox_error", why=why, queue_s=queued)

    async def _pick(self) -> Launcher:
        """The launcher with the fewest calls, started or replaced where that is due."""
        async with self._starting:
            if self._closed:
                raise SandboxError("this pool is closed; make a new one")
            for launcher in [x for x in self._launchers if not self._usable(x)]:
                self._launchers.remove(launcher)
                self._retire(launcher)
            wanted = math.ceil(self.config.workers / self.config.workers_per_launcher)
            busy = all(x.active for x in self._launchers)
            if not self._launchers or (busy and len(self._launchers) < wanted):
                launcher = await self._start()
                self.metrics.launchers += 1
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
    except (OSError, EOFError, WireError) as error:
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


@atexit.register
def _end_all() -> None:  # pyright: ignore[reportUnusedFunction]
    for launcher in list(_live):
        with contextlib.suppress(Exception):
            launcher.kill()
