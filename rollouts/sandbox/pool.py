"""The pool: a queue in front of warm launchers, the one way to run a call, and the report
of what this machine can enforce."""

from __future__ import annotations

import asyncio
import math
import socket
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from rollouts.sandbox.jail import closed_folder
from rollouts.sandbox.model import MIB, Config, Limits, Report, Result, SandboxError
from rollouts.sandbox.worker import Launcher, request

_CHECK_S = 60.0  # for an interpreter to start, on a busy machine with a slow file system
_PER_LAUNCHER = 8  # workers
# What a lost jail or launcher looks like: no connection, no answer, or one of another shape.
_LOST = (OSError, EOFError, ValueError, TypeError, LookupError, SandboxError)


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
    """Warm launchers behind a queue. Use as `async with Pool(Config()) as pool`.

    `by_status` counts the calls so far, `retried` the jails that were lost.
    """

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or Config()
        self.by_status: Counter[str] = Counter()
        self.retried = 0
        self.turn = asyncio.Semaphore(self.config.workers)  # as many calls as workers
        self._launchers: list[Launcher] = []
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
        return (await self._pick()).report

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
        limits = limits or Limits()
        talk, given = (None, stdin) if isinstance(stdin, bytes) else (stdin, b"")
        parts = request(source, inputs, fetch, limits, seed, given, argv, folders)
        asked = time.monotonic()
        if talk is not None:
            result = await self._attempts(1, parts, limits, talk)
        else:
            async with self.turn:
                queued = time.monotonic() - asked
                result = replace(await self._attempts(2, parts, limits), queue_s=queued)
        self.by_status[result.status] += 1
        return result

    def share(self, name: str, directory: str) -> None:
        """Let later calls ask for `directory` by `name`; launchers are replaced once idle."""
        if self.config.shared.get(name) != directory:
            self.config = replace(self.config, shared={**self.config.shared, name: directory})

    async def _attempts(
        self, most: int, parts: Sequence[bytes], limits: Limits, stdin: socket.socket | None = None
    ) -> Result:
        """A jail that is lost says nothing about the code, so it may be tried once more."""
        why = ""
        for attempt in range(most):
            self.retried += attempt
            try:
                result = await (await self._pick()).run(parts, limits, stdin)
                if result.status != "sandbox_error":
                    return result
                why = result.why
            except _LOST as error:
                why = str(error) or type(error).__name__
        return Result("sandbox_error", why=why)

    async def _pick(self) -> Launcher:
        """The launcher with the fewest calls, started or replaced where that is due."""
        async with self._starting:
            while True:
                if self._closed:
                    raise SandboxError("this pool is closed; make a new one")
                usable = [x for x in self._launchers if x.alive and x.config is self.config]
                for launcher in [x for x in self._launchers if x not in usable]:
                    task = asyncio.create_task(_close_when_idle(launcher))
                    self._closing.add(task)
                    task.add_done_callback(self._closing.discard)
                self._launchers = usable
                wanted = math.ceil(self.config.workers / _PER_LAUNCHER)
                busy = all(x.active for x in usable)
                if usable and not (busy and len(usable) < wanted):
                    return min(usable, key=lambda x: x.active)
                launcher = await Launcher.start(self.config)
                await _check_exec(launcher)
                self._launchers.append(launcher)

    async def close(self) -> None:
        """End every launcher, and with it every process of every call."""
        self._closed = True
        launchers, self._launchers = self._launchers, []
        await asyncio.gather(*(x.close() for x in launchers), *self._closing)


_EXEC = b"import os, sys\nos.execv(sys.executable, [sys.executable, '-c', 'print(6 * 7)'])\n"


async def _check_exec(launcher: Launcher) -> None:
    """A program may start the interpreter anew, and we do when it has a syntax error: see that it
    starts inside, so that a jail that lacks one of its files is never the program's failure."""
    limits = Limits(wall_s=_CHECK_S)
    try:
        result = await launcher.run(request(_EXEC, limits=limits), limits)
    except _LOST as error:
        launcher.kill()
        raise SandboxError(f"the first jail was lost: {error}") from None
    except BaseException:
        launcher.kill()
        raise
    if (result.status, result.stdout) == ("ok", "42\n"):
        return
    launcher.kill()
    python, err = launcher.config.python, result.stderr.strip()
    said = err.splitlines()[-1][-300:] if err else "it said nothing"
    folder = closed_folder(python) if "Permission denied" in err else ""
    todo = (
        f"it runs as another user there, who may not enter {folder}: chmod o+x {folder}, or use a "
        "Python elsewhere"
        if folder
        else "see that all it needs lies in its prefix, its base prefix or LD_LIBRARY_PATH"
    )
    raise SandboxError(
        f"{python} does not start inside the jail at level {launcher.report.level} ({result.why}: "
        f"{said}); {todo}"
    )


async def _close_when_idle(launcher: Launcher) -> None:
    while launcher.active and launcher.alive:
        await asyncio.sleep(0.05)
    await launcher.close()


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
