"""The pool's side of one launcher: start it, pass it calls, read what comes back."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rollouts.sandbox import transfer
from rollouts.sandbox.jail import ROOT_DROPS_TO
from rollouts.sandbox.model import MIB, Config, Limits, Report, SandboxError
from rollouts.sandbox.transfer import remove_tree
from rollouts.sandbox.user_process import thread_variables

_BOOT = (
    "import sys,os;sys.path.pop(0);r=os.read({fd},4096).decode();sys.path.insert(0,r);"
    "from rollouts.sandbox.launcher import main;sys.path.remove(r);main({fd})"
)
_START_S = 120.0
_BUSY_S = 5.0  # for the launcher to take a call
_STEP_S = 1.0
# Beyond a call's own deadline: init ends its call by itself, and the launcher a call whose init
# does not. When neither has, both are lost.
LONGEST_S = 120.0
_STILL_S = 30.0  # without a byte while inputs or results are on their way
_PREFIX = "assay-sandbox-"
_YOUNG_S = 60.0  # between being made and being locked
_swept: set[str] = set()


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
        **thread_variables(1),
    }
    if config.portable_blas:
        built["OPENBLAS_CORETYPE"] = "Haswell"
    if "LD_LIBRARY_PATH" in os.environ:
        built["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
    return {**built, **config.env}


@dataclass(frozen=True)
class Call:
    """A request, checked and ready to send."""

    code: bytes
    files: Mapping[str, bytes]
    fetch: Sequence[str]
    limits: Limits
    seed: int | None
    stdin: bytes | socket.socket = b""
    argv: Sequence[str] = ()
    shared: Sequence[tuple[str, str]] = ()  # (folder of the work directory, name in the config)

    def parts(self) -> list[bytes]:
        """What is sent: the header with the code, each file, standard input."""
        stdin = self.stdin if isinstance(self.stdin, bytes) else b""
        header = {
            "code": len(self.code),
            "files": [[name, len(data)] for name, data in self.files.items()],
            "fetch": list(self.fetch),
            "limits": asdict(self.limits),
            "seed": self.seed,
            "stdin": len(stdin),
            "argv": list(self.argv),
            "shared": list(self.shared),
        }
        return [transfer.pack(header) + self.code, *self.files.values(), stdin]


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


class Connection:
    """The pool's end of one jail. `moves` counts what was sent and received."""

    def __init__(self, sock: socket.socket, number: int) -> None:
        self.sock, self.number, self.moves = sock, number, 0

    async def ask(self, parts: Sequence[bytes], limits: Limits, longest_s: float) -> Answer:
        """Send `parts` and return the answer; TimeoutError when there is none `longest_s` after the
        call's own time. OSError, EOFError and FrameError mean that the jail was lost.

        The clock stands still while our own event loop is blocked, and while bytes move: neither
        says anything about the jail.
        """
        left = limits.wall_s + longest_s
        task = asyncio.ensure_future(self._exchange(parts, limits))
        try:
            while True:
                before, seen = time.monotonic(), self.moves
                await asyncio.wait({task}, timeout=min(_STEP_S, left))
                if task.done():
                    return task.result()
                left -= min(time.monotonic() - before, 2 * _STEP_S)
                if self.moves != seen:
                    left = max(left, _STILL_S)
                if left <= 0:
                    raise TimeoutError
        finally:
            if not task.done():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task

    async def _exchange(self, parts: Sequence[bytes], limits: Limits) -> Answer:
        loop = asyncio.get_running_loop()
        # init may answer without taking all of it
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            await loop.sock_sendall(self.sock, parts[0])
            for data in parts[1:]:
                view = memoryview(data)
                for start in range(0, len(view), MIB):
                    await loop.sock_sendall(self.sock, view[start : start + MIB])
                    self.moves += 1
        header = transfer.parse(await self._read(transfer.header_length(await self._read(8))))
        try:
            return await self._answer(header, limits)
        except (KeyError, TypeError, AttributeError) as error:
            raise transfer.FrameError(f"an answer of the wrong shape: {error!r}") from None

    async def _read(self, size: int) -> bytes:
        loop, buffer, filled = asyncio.get_running_loop(), bytearray(size), 0
        view = memoryview(buffer)
        while filled < size:
            count = await loop.sock_recv_into(self.sock, view[filled : filled + MIB])
            if not count:
                raise EOFError("the jail ended without an answer")
            filled += count
            self.moves += 1
        return bytes(buffer)

    async def _answer(self, header: dict[str, Any], limits: Limits) -> Answer:
        half = limits.output_kb * 1024
        streams: list[tuple[bytes, bytes, int]] = []
        for lengths in header["streams"]:
            head, tail, total = (transfer.natural(n) for n in lengths)
            if head > half or tail > half:
                raise transfer.FrameError("more output than was asked for")
            streams.append((await self._read(head), await self._read(tail), total))
        if len(streams) != 2:
            raise transfer.FrameError(f"{len(streams)} streams; there are two")
        files: dict[str, bytes] = {}
        room = limits.fetch_total_mb * MIB
        for name, size in header["files"]:
            room -= transfer.natural(size, limits.fetch_mb * MIB)
            if room < 0 or not isinstance(name, str) or "/" in name:
                raise transfer.FrameError("more files, or other names, than were asked for")
            files[name] = await self._read(size)
        status = header["status"]
        return Answer(
            end=str(header["end"]),
            status=None if status is None else transfer.natural(status, 0xFFFF),
            wall=float(header["wall"]),
            cpu=float(header["cpu"]),
            peak=transfer.natural(header["peak"]),
            started=float(header["started"]),
            full=bool(header["full"]),
            streams=streams,
            files=files,
            refused={str(k): str(v) for k, v in dict(header["refused"]).items()},
        )


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
        """Start a launcher and wait for its report; SandboxError when it cannot serve."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        base, lock = make_scratch()
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
        names = ("stack", "level", "min_level", "landlock_abi", "spares", "roots")
        request = {name: getattr(config, name) for name in names}
        request["base"] = self.base
        request["shared"] = {n: os.path.realpath(path) for n, path in config.shared.items()}
        self.control.send(str(Path(__file__).resolve().parents[2]).encode())
        self.control.send(json.dumps(request).encode())
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

    async def call(self, call: Call) -> Answer:
        """Pass one call to a fresh jail. OSError, EOFError, FrameError: the jail was lost."""
        self.active += 1
        try:
            stdin = [] if isinstance(call.stdin, bytes) else [call.stdin.fileno()]
            jail = await self._connect(call.limits.wall_s, stdin)
            with jail.sock:
                try:
                    return await jail.ask(call.parts(), call.limits, LONGEST_S)
                except TimeoutError:
                    with contextlib.suppress(OSError):
                        kill = {"op": "kill", "id": jail.number}
                        self.control.send(json.dumps(kill).encode())
                    raise OSError("neither the jail nor its launcher ended the call") from None
        finally:
            self.active -= 1

    async def _connect(self, wall_s: float, stdin: list[int]) -> Connection:
        """A connection to the init of a fresh jail, whose code may run for `wall_s` seconds."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self._next += 1
        self.served += 1
        jail = Connection(ours, self._next)
        message = json.dumps({"op": "call", "id": jail.number, "wall": wall_s}).encode()
        until = time.monotonic() + _BUSY_S
        with theirs, contextlib.ExitStack() as undo:
            undo.callback(ours.close)
            while True:
                try:
                    socket.send_fds(self.control, [message], [theirs.fileno(), *stdin])
                    break
                except BlockingIOError:
                    if time.monotonic() > until:
                        self.broken = True
                        raise OSError("the launcher takes no calls any more") from None
                    await asyncio.sleep(0.001)
                except OSError:
                    self.broken = True
                    raise
            undo.pop_all()
        return jail

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


# The directory of one launcher. Its maker holds a lock on it, and the kernel lets go of that when
# the maker dies, in whatever container it ran: one that can be locked belongs to nobody any more.


def make_scratch() -> tuple[str, int]:
    """A new directory and the descriptor that locks it. The first one of a process also removes
    those that killed pools left behind."""
    parent = os.path.realpath(tempfile.gettempdir())
    if parent not in _swept:
        _swept.add(parent)
        sweep(parent)
    path = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with contextlib.suppress(OSError):  # a file system without locks: then nobody sweeps it
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    return path, lock


def sweep(parent: str) -> list[str]:
    """Remove the directories of launchers in `parent` that nobody holds; returns their paths."""
    removed: list[str] = []
    with contextlib.suppress(OSError):
        for name in os.listdir(parent):
            path = f"{parent}/{name}"
            if name.startswith(_PREFIX) and _abandoned(path):
                with contextlib.suppress(OSError):
                    remove_tree(path)
                    removed.append(path)
    return removed


def _abandoned(path: str) -> bool:
    try:
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        info = os.fstat(lock)
        if time.time() - info.st_ctime < _YOUNG_S or not _ours(info.st_uid):
            return False
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(lock)
    return True


def _ours(uid: int) -> bool:
    """Made by our id, or for one that root dropped to and that no process runs under any more:
    what lives could swap a directory for a link while we remove it."""
    if uid == os.geteuid():
        return True
    return os.geteuid() == 0 and uid > ROOT_DROPS_TO and uid not in _living()


def _living() -> set[int]:
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                found.add(entry.stat().st_uid)
                text = (entry / "status").read_text(errors="replace")
                found.add(int(text.partition("\nUid:")[2].split(None, 1)[0]))
    return found
