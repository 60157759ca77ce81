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
from pathlib import Path

from rollouts.sandbox import cores, scratch, wire
from rollouts.sandbox.exchange import (
    LONGEST_S,
    Answer,
    Call,
    Moved,
    patiently,
    receive_answer,
    send_call,
)
from rollouts.sandbox.model import Config, Report, SandboxError
from rollouts.sandbox.results import remove_tree

_BOOT = (
    "import sys,os;sys.path.pop(0);r=os.read({fd},4096).decode();sys.path.insert(0,r);"
    "from rollouts.sandbox.launcher import main;sys.path.remove(r);main({fd})"
)
_START_S = 120.0
_BUSY_S = 5.0  # for the launcher to take a call


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
            "roots": config.roots,
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
            conn, number = await self.open(call.limits.wall_s)
            with conn:
                try:
                    return await patiently(self.exchange, conn, call, LONGEST_S)
                except TimeoutError:
                    with contextlib.suppress(OSError):
                        self.control.send(json.dumps({"op": "kill", "id": number}).encode())
                    raise OSError("neither the jail nor its launcher ended the call") from None
        finally:
            self.active -= 1

    async def exchange(self, conn: socket.socket, call: Call, moved: Moved) -> Answer:
        """Send a call and receive its answer."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            await send_call(conn, call, moved)  # init may answer without taking all of it
        return await receive_answer(conn, call.limits, moved)

    async def open(self, wall_s: float) -> tuple[socket.socket, int]:
        """A connection to the init of a fresh jail, and the number of that jail."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self._next += 1
        self.served += 1
        number = self._next  # another call may be given the next one while we wait
        with theirs:
            try:
                await self._pass(number, wall_s, theirs)
            except BaseException:
                ours.close()
                raise
        return ours, number

    async def _pass(self, number: int, wall: float, end: socket.socket) -> None:
        message = json.dumps({"op": "call", "id": number, "wall": wall}).encode()
        until = time.monotonic() + _BUSY_S
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
