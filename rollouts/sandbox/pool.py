"""The pool: a queue in front of warm launchers, the one way to run a call, and the report of what
this machine can enforce. A `Launcher` is our side of one: start it, pass it calls, read what comes
back and name it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import re
import secrets
import signal
import socket
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rollouts.sandbox import transfer
from rollouts.sandbox.model import (
    MIB,
    Config,
    Limits,
    Report,
    Result,
    SandboxError,
    Status,
    closed_folder,
)
from rollouts.sandbox.transfer import ENDED, STARTED

_BOOT = (
    "import sys,os;sys.path.pop(0);r=os.read({fd},4096).decode();sys.path.insert(0,r);"
    "from rollouts.sandbox.launcher import main;sys.path.remove(r);main({fd})"
)
_LIBRARIES = ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "BLIS", "VECLIB_MAXIMUM")
_THREADS = (*(f"{name}_NUM_THREADS" for name in _LIBRARIES), "LOKY_MAX_CPU_COUNT")
_START_S = 120.0
_BUSY_S = 5.0  # for the launcher to take a call
# Init ends its call at the deadline by itself. One that has said that the code began and that does
# not may have been made late by the code, which must not look like a lost jail: GRACE_S after the
# deadline that is a timeout. Before that, and once all is dead, init has LONGEST_S.
GRACE_S, LONGEST_S = 30.0, 120.0
_CHECK_S = 60.0  # for an interpreter to start, on a busy machine with a slow file system
_PER_LAUNCHER = 8  # workers
# What a lost jail or launcher looks like: no connection, no answer, or one of another shape.
_LOST = (OSError, EOFError, ValueError, TypeError, LookupError, SandboxError)
_OUT_OF_MEMORY = re.compile(r"^(\S*MemoryError\b|.*std::bad_alloc|OSError: \[Errno 12\])")
_NO_ROOM = re.compile(r"^OSError: \[Errno (28|27|122)\]")


def environment(config: Config) -> dict[str, str]:
    """The launcher's environment, from nothing: no variable of ours gets in by itself."""
    built = {
        "PATH": f"{os.path.dirname(config.python)}:/usr/local/bin:/usr/bin:/bin",
        "HOME": "/sandbox",
        "USER": "sandbox",
        "LOGNAME": "sandbox",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONHASHSEED": "0",
        "PYTHONNOUSERSITE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "MPLBACKEND": "Agg",
        "TMPDIR": "/tmp",
        # pyarrow's allocator would start a thread when pandas imports it
        "JE_ARROW_MALLOC_CONF": "background_thread:false",
        **dict.fromkeys(_THREADS, "1"),  # threads do not survive a fork
    }
    if "LD_LIBRARY_PATH" in os.environ:
        built["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
    return {**built, **config.env}


def request(
    code: bytes,
    files: Mapping[str, bytes] | None = None,
    fetch: Sequence[str] = (),
    limits: Limits | None = None,
    seed: int | None = None,
    stdin: bytes = b"",
    argv: Sequence[str] = (),
    shared: Sequence[tuple[str, str]] = (),
) -> list[bytes]:
    """What is sent for a call: a header with the code, each file, standard input. `shared`: pairs
    (folder of the work directory, name in the config)."""
    given = files or {}
    header = {
        "code": len(code),
        "files": [[name, len(data)] for name, data in given.items()],
        "fetch": list(fetch),
        "limits": asdict(limits or Limits()),
        "seed": seed,
        "stdin": len(stdin),
        "argv": list(argv),
        "shared": list(shared),
    }
    return [transfer.pack(header) + code, *given.values(), stdin]


async def _exchange(
    sock: socket.socket, parts: Sequence[bytes], limits: Limits, said: list[bytes]
) -> dict[str, Any]:
    """Send a call; what init answers as fields of `Result`, with `end`, `full` and `started`. Its
    shape is checked and nothing believed: ValueError, TypeError or LookupError for another one.
    `said` gets init's words on the way."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        for data in parts:  # init may answer without taking all of it
            await loop.sock_sendall(sock, data)
    while said[-1] != ENDED:
        said.append(await _read(sock, 1))
    header = transfer.parse(await _read(sock, transfer.header_length(await _read(sock, 8))))
    found: dict[str, Any] = {}
    for name, lengths in zip(("stdout", "stderr"), header["streams"], strict=True):
        head, tail, total = (transfer.natural(n) for n in lengths)
        if max(head, tail) > limits.output_kb * 1024:
            raise transfer.FrameError("more output than was asked for")
        kept = await _read(sock, head), await _read(sock, tail)
        found |= {name: transfer.join(*kept, total), f"{name}_bytes": total}
    files: dict[str, bytes] = {}
    room = limits.fetch_total_mb * MIB
    for name, size in header["files"]:
        room -= transfer.natural(size, limits.fetch_mb * MIB)
        if room < 0 or not isinstance(name, str) or "/" in name:
            raise transfer.FrameError("more files, or other names, than were asked for")
        files[name] = await _read(sock, size)
    status = header["status"]
    code = None if status is None else os.waitstatus_to_exitcode(transfer.natural(status, 0xFFFF))
    return found | {
        "end": str(header["end"]),
        "full": bool(header["full"]),
        "started": float(header["started"]),
        "exit_code": code,
        "signal": -code if code is not None and code < 0 else None,
        "files": files,
        "refused": {str(k): str(v) for k, v in dict(header["refused"]).items()},
        "wall_s": float(header["wall"]),
        "cpu_s": float(header["cpu"]),
        "peak_mb": transfer.natural(header["peak"]) / MIB,
    }


async def _read(sock: socket.socket, size: int) -> bytes:
    loop, buffer = asyncio.get_running_loop(), bytearray(size)
    left = memoryview(buffer)
    while left:
        count = await loop.sock_recv_into(sock, left)
        if not count:
            raise EOFError("the jail ended without an answer")
        left = left[count:]
    return bytes(buffer)


def judge(
    end: str, code: int | None, cpu_s: float, full: bool, stderr: str, limits: Limits
) -> tuple[Status, str]:
    """The status, and why: killed by us first, then the limits that the kernel enforced."""
    processor = f"used more than {limits.cpu_seconds} s of processor time"
    ended: dict[str, tuple[Status, str]] = {
        "timeout": ("timeout", f"still running after {limits.wall_s:g} s"),
        "hung up": ("timeout", "the caller ended it"),
        "cpu": ("timeout", processor),
        "memory": ("memory", f"all processes together used more than {limits.total_mb} MB"),
        "disk": ("disk", "more files or bytes than the work directory may hold"),
    }
    if end in ended:
        return ended[end]
    if end.startswith("input"):
        return "disk", f"the input files do not fit into the work directory ({end})"
    if end != "exit" or code is None:
        return "sandbox_error", f"the jail ended early ({end}): {stderr[-300:]}"
    if code == 0:
        return "ok", ""
    if code == -signal.SIGXCPU or (code == -signal.SIGKILL and cpu_s >= limits.cpu_seconds):
        return "timeout", processor
    last = stderr.rstrip().rpartition("\n")[2]
    if _OUT_OF_MEMORY.match(last):
        return "memory", f"one process asked for more than {limits.memory_mb} MB"
    if _NO_ROOM.match(last) or full or code == -signal.SIGXFSZ:
        return "disk", "no room left in the work directory, or a file above its limit"
    return "error", f"ended by signal {-code}" if code < 0 else f"exit status {code}"


class Launcher:
    """One running launcher of a pool with settings `config`. Made by `start`; belongs to the event
    loop that made it. `active`: calls that run."""

    report: Report

    def __init__(
        self, config: Config, process: subprocess.Popen[bytes], control: socket.socket
    ) -> None:
        self.config, self.process, self.control = config, process, control
        top = os.path.realpath(tempfile.gettempdir())
        self._base = f"{top}/assay-sandbox-{secrets.token_hex(8)}"
        self.active = self._calls = 0
        self._broken = False

    @staticmethod
    async def start(config: Config) -> Launcher:
        """Start a launcher and wait for its report; SandboxError when it cannot serve."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            process = subprocess.Popen(
                [config.python, "-c", _BOOT.format(fd=theirs.fileno())],
                env=environment(config),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            raise SandboxError(f"cannot start {config.python!r}: {error}") from None
        finally:
            theirs.close()
        launcher = Launcher(config, process, ours)
        try:
            launcher.report = await launcher._hello()
        except BaseException:
            launcher.kill()
            raise
        return launcher

    async def _hello(self) -> Report:
        self.control.setblocking(False)
        names = ("stack", "level", "min_level", "landlock_abi", "spares", "roots")
        wanted = {name: getattr(self.config, name) for name in names}
        wanted["base"] = self._base
        wanted["shared"] = {n: os.path.realpath(path) for n, path in self.config.shared.items()}
        self.control.send(str(Path(__file__).resolve().parents[2]).encode())
        self.control.send(json.dumps(wanted).encode())
        try:
            async with asyncio.timeout(_START_S):
                answer = await asyncio.get_running_loop().sock_recv(self.control, 1 << 18)
        except TimeoutError:
            raise SandboxError(f"the launcher did not start within {_START_S:.0f} s") from None
        except OSError as error:
            raise SandboxError(f"the launcher ended while it started: {error}") from None
        if not answer:
            raise SandboxError("the launcher ended while it started, without a word")
        message = transfer.parse(answer)
        if "ready" not in message:
            lines = [line for line in str(message.get("failed", message)).splitlines() if line]
            raise SandboxError(lines[-1].partition(": ")[2] or lines[-1] if lines else "unknown")
        return Report(**message["ready"])

    async def run(
        self, parts: Sequence[bytes], limits: Limits, stdin: socket.socket | None = None
    ) -> Result:
        """Pass one call to a fresh jail. Anything but a result means that the jail was lost."""
        handed = time.monotonic()
        self.active += 1
        self._calls += 1
        number = self._calls
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        said = [b""]
        exchange = asyncio.ensure_future(_exchange(ours, parts, limits, said))
        try:
            with theirs:
                given = [theirs.fileno(), *([stdin.fileno()] if stdin else [])]
                await self._send({"op": "call", "id": number}, given)
            # Waits are counted and not timed: while our own event loop is blocked none is over,
            # and that says nothing about the jail.
            word, left = b"", LONGEST_S
            while not (await asyncio.wait({exchange}, timeout=min(1.0, max(0.0, left))))[0]:
                left -= 1.0
                if word != said[-1]:
                    word = said[-1]
                    left = limits.wall_s + GRACE_S if word == STARTED else LONGEST_S
                elif left <= 0:
                    with contextlib.suppress(OSError):
                        await self._send({"op": "kill", "id": number})
                    if word == STARTED:
                        status, why = judge("timeout", None, 0.0, False, "", limits)
                        layers, wall = self.report.short(), limits.wall_s
                        return Result(status, wall_s=wall, layers=layers, why=why)
                    raise OSError("the jail neither began nor ended the call")
            found = exchange.result()
        finally:
            exchange.cancel()
            await asyncio.wait({exchange})
            ours.close()
            self.active -= 1
        end, full, started = (found.pop(name) for name in ("end", "full", "started"))
        status, why = judge(end, found["exit_code"], found["cpu_s"], full, found["stderr"], limits)
        spawn = max(0.0, started - handed)
        return Result(status, **found, layers=self.report.short(), why=why, spawn_s=spawn)

    async def _send(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Give the launcher an order; OSError when it takes none any more."""
        until = time.monotonic() + _BUSY_S
        while True:
            try:
                socket.send_fds(self.control, [json.dumps(message).encode()], descriptors)
                return
            except BlockingIOError:
                if time.monotonic() > until:
                    self._broken = True
                    raise OSError("the launcher takes no calls any more") from None
                await asyncio.sleep(0.001)
            except OSError:
                self._broken = True
                raise

    @property
    def alive(self) -> bool:
        return not self._broken and self.process.poll() is None

    async def close(self) -> None:
        """Let it end by itself (it kills its jails), then make sure."""
        self.control.close()
        for _ in range(500):
            if self.process.poll() is not None:
                break
            await asyncio.sleep(0.01)
        self.kill()

    def kill(self) -> None:
        """End it at once."""
        self.control.close()
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(OSError):  # what it could empty and not remove
            os.rmdir(self._base)


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

    async def look() -> dict[str, Any]:
        async with Pool(config or Config(workers=1, min_level="limits")) as pool:
            result = await pool.run("print(6 * 7)")
            return {**asdict(await pool.report()), "warm": result.stdout == "42\n"}

    try:
        return asyncio.run(look())
    except SandboxError as error:
        return {"level": "none", "layers": {}, "missing": {"sandbox": str(error)}, "warm": False}


def report_lines(found: dict[str, Any]) -> list[str]:
    """The report for people."""
    layers = ", ".join(f"{k}={v}" for k, v in found["layers"].items())
    text = [f"sandbox level: {found['level']} ({found.get('uid', '?')} user)", f"layers: {layers}"]
    return text + [f"missing {name}: {why}" for name, why in found["missing"].items()]
