"""The pool's side of one launcher: start it, pass it calls, read what comes back."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rollouts.sandbox import cores, scratch, wire
from rollouts.sandbox.model import MIB, Config, Limits, Report, SandboxError
from rollouts.sandbox.results import remove_tree

_BOOT = (
    "import sys,os;sys.path.pop(0);r=os.read({fd},4096).decode();sys.path.insert(0,r);"
    "from rollouts.sandbox.launcher import main;sys.path.remove(r);main({fd})"
)
_START_S = 120.0
_BACKUP_S = 5.0  # beyond a call's own deadline; init and launcher should have ended it before


@dataclass(frozen=True)
class Call:
    """A request, checked and ready to send."""

    code: bytes
    files: Mapping[str, bytes]
    fetch: Sequence[str]
    limits: Limits
    seed: int | None
    stdin: bytes = b""
    argv: Sequence[str] = ()
    shared: Sequence[tuple[str, str]] = ()  # (folder of the work directory, name in the config)
    session: bool = False

    def header(self) -> dict[str, Any]:
        return {
            "code": len(self.code),
            "files": [[name, len(data)] for name, data in self.files.items()],
            "fetch": list(self.fetch),
            "limits": asdict(self.limits),
            "seed": self.seed,
            "stdin": len(self.stdin),
            "argv": list(self.argv),
            "shared": list(self.shared),
            "session": self.session,
        }


@dataclass(frozen=True)
class Answer:
    """What init sent, with its shape checked and nothing believed."""

    end: str
    status: int | None
    wall: float
    cpu: float
    peak: int
    started: float
    full: bool
    streams: list[tuple[bytes, bytes, int]]
    files: dict[str, bytes]
    refused: dict[str, str]


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
    }
    built |= cores.variables(1)
    if config.portable_blas:
        built["OPENBLAS_CORETYPE"] = "Haswell"
    if "LD_LIBRARY_PATH" in os.environ:
        built["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
    return {**built, **config.env}


class Launcher:
    """One running launcher. Made by `start`; belongs to the event loop that made it."""

    def __init__(
        self, process: subprocess.Popen[bytes], control: socket.socket, base: str, lock: int
    ) -> None:
        self.process, self.control, self.base, self.lock = process, control, base, lock
        self.owner = os.getpid()
        self.python = process.args[0] if isinstance(process.args, list) else "the interpreter"
        self.report: Report | None = None
        self.active = 0
        self.served = 0
        self.broken = False
        self._next = 0

    @staticmethod
    async def start(config: Config) -> Launcher:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        base, lock = scratch.make()
        boot = _BOOT.format(fd=theirs.fileno())
        try:
            process = subprocess.Popen(
                [config.python, "-c", boot],
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
            os.close(lock)
            shutil.rmtree(base)
            raise SandboxError(f"cannot start {config.python!r}: {error}") from None
        finally:
            theirs.close()
        launcher = Launcher(process, ours, base, lock)
        try:
            launcher.report = await launcher._hello(config)
        except BaseException:
            launcher.kill()
            raise
        return launcher

    async def _hello(self, config: Config) -> Report:
        self.control.setblocking(False)
        root = str(Path(__file__).resolve().parents[2])
        request = {
            "stack": config.stack,
            "level": config.level,
            "min_level": config.min_level,
            "landlock_abi": config.landlock_abi,
            "spares": config.spares,
            "base": self.base,
            "shared": {n: os.path.realpath(path) for n, path in config.shared.items()},
        }
        loop = asyncio.get_running_loop()
        self.control.send(root.encode())
        self.control.send(json.dumps(request).encode())
        try:
            async with asyncio.timeout(_START_S):
                answer = await loop.sock_recv(self.control, 1 << 18)
        except TimeoutError:
            raise SandboxError(f"the launcher did not start within {_START_S:.0f} s") from None
        except OSError as error:
            raise SandboxError(f"the launcher ended while it started: {error}") from None
        if not answer:
            raise SandboxError("the launcher ended while it started, without a word")
        message = wire.parse(answer)
        if "ready" not in message:
            raise SandboxError(_last_line(str(message.get("failed", message))))
        return Report(**message["ready"])

    async def call(self, call: Call) -> Answer:
        """Pass one call to a fresh jail. OSError, EOFError, WireError: the jail was lost."""
        self.active += 1
        try:
            payload = len(call.code) + len(call.stdin) + sum(map(len, call.files.values()))
            with await self.open(call.limits.wall_s) as conn:
                async with asyncio.timeout(call.limits.wall_s + _BACKUP_S + payload / (10 * MIB)):
                    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                        await self.send(conn, call)  # init may answer without taking all of it
                    return await receive_answer(conn, call.limits)
        except TimeoutError:
            with contextlib.suppress(OSError):
                self.control.send(json.dumps({"op": "kill", "id": self._next}).encode())
            raise OSError(f"no answer {_BACKUP_S:.0f} s after the deadline") from None
        finally:
            self.active -= 1

    async def open(self, wall_s: float) -> socket.socket:
        """A connection to the init of a fresh jail."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self._next += 1
        self.served += 1
        with theirs:
            try:
                await self._pass(self._next, wall_s, theirs)
            except BaseException:
                ours.close()
                raise
        return ours

    async def send(self, conn: socket.socket, call: Call) -> None:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(conn, wire.pack(call.header()) + call.code)
        for data in (*call.files.values(), call.stdin):
            if data:
                await loop.sock_sendall(conn, data)

    async def _pass(self, number: int, wall: float, end: socket.socket) -> None:
        message = json.dumps({"op": "call", "id": number, "wall": wall}).encode()
        until = time.monotonic() + _BACKUP_S
        while True:
            try:
                socket.send_fds(self.control, [message], [end.fileno()])
                return
            except BlockingIOError:
                if time.monotonic() > until:
                    self.broken = True
                    raise OSError("the launcher takes no calls any more") from None
                await asyncio.sleep(0.001)
            except OSError:
                self.broken = True
                raise

    @property
    def alive(self) -> bool:
        return not self.broken and self.process.poll() is None

    async def close(self) -> None:
        """Let it end by itself (it kills its jails), then make sure."""
        self.control.close()
        for _ in range(500):
            if self.process.poll() is not None:
                break
            await asyncio.sleep(0.01)
        self.kill()

    def kill(self) -> None:
        """End it at once. Does nothing in a process that was forked from the owner."""
        if os.getpid() != self.owner:
            return
        self.control.close()
        if self.process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(1.0)  # it sees its socket close and leaves nothing behind
            self.process.kill()
            self.process.wait()
        with contextlib.suppress(OSError):
            remove_tree(self.base)
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line]
    return lines[-1].partition(": ")[2] or lines[-1] if lines else "unknown"


async def _read(sock: socket.socket, size: int) -> bytes:
    loop, buffer, filled = asyncio.get_running_loop(), bytearray(size), 0
    view = memoryview(buffer)
    while filled < size:
        count = await loop.sock_recv_into(sock, view[filled : filled + MIB])
        if not count:
            raise EOFError("the jail ended without an answer")
        filled += count
    return bytes(buffer)


async def receive_answer(sock: socket.socket, limits: Limits) -> Answer:
    """What init says; WireError for anything it could not have said."""
    header = wire.parse(await _read(sock, wire.header_length(await _read(sock, 8))))
    try:
        return await _answer(sock, header, limits)
    except (KeyError, TypeError, AttributeError) as error:
        raise wire.WireError(f"an answer of the wrong shape: {error!r}") from None


async def _answer(sock: socket.socket, header: dict[str, Any], limits: Limits) -> Answer:
    half = limits.output_kb * 1024
    streams: list[tuple[bytes, bytes, int]] = []
    for lengths in header["streams"]:
        head, tail, total = (wire.natural(n) for n in lengths)
        if head > half or tail > half:
            raise wire.WireError("more output than was asked for")
        streams.append((await _read(sock, head), await _read(sock, tail), total))
    if len(streams) != 2:
        raise wire.WireError(f"{len(streams)} streams; there are two")
    files: dict[str, bytes] = {}
    room = limits.fetch_total_mb * MIB
    for name, size in header["files"]:
        room -= wire.natural(size, limits.fetch_mb * MIB)
        if room < 0 or not isinstance(name, str) or "/" in name:
            raise wire.WireError("more files, or other names, than were asked for")
        files[name] = await _read(sock, size)
    status = header["status"]
    return Answer(
        end=str(header["end"]),
        status=None if status is None else wire.natural(status, 0xFFFF),
        wall=float(header["wall"]),
        cpu=float(header["cpu"]),
        peak=wire.natural(header["peak"]),
        started=float(header["started"]),
        full=bool(header["full"]),
        streams=streams,
        files=files,
        refused={str(k): str(v) for k, v in dict(header["refused"]).items()},
    )
