"""The pool's side of one launcher: start it, pass it calls, read what comes back and name it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rollouts.sandbox import transfer
from rollouts.sandbox.inside import ENDED, STARTED
from rollouts.sandbox.model import MIB, Config, Limits, Report, Result, SandboxError, Status

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
