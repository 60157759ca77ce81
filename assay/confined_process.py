"""A Python process of ours that answers requests and can do nothing else.

Prediction files (rewards/dare) and SQL queries (rewards/sql) that nobody vouches for are read
in one. It is started afresh, so that no gold is in its memory, and loads what it needs. Then it
gives up what it could do harm with: no new descriptor (so no file and no socket can be opened),
no more memory than it was granted, no other user's id, and, on Linux, no system call beyond those
that computing needs. One process answers all requests, in turn; it is started again after
a request ended it, and anew in a forked process.

Wire: one message of bytes each way; the first one of the process is a JSON object that says what
the machine lacks to confine it.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

WALL_S = 60.0  # by the clock, of a machine that is busy with other things
START_S = 60.0  # that loading may take on top
_ROOT = str(Path(__file__).resolve().parents[1])
_SERVE = "import sys; sys.path[:] = sys.argv[3:]; from {} import serve; serve()"


class ProcessLost(RuntimeError):
    """The process cannot be had or does not answer: the machine's fault, never the request's."""


class ProcessEnded(ProcessLost):
    """The process ended before it answered; `status` as in `Popen.returncode`."""

    status = 0


class ConfinedProcess:
    """The process that runs `module.serve()`, for any thread. `what` is done there ("queries are
    run"), and `given` is its `sys.argv[2]`."""

    def __init__(self, module: str, what: str, given: str = "") -> None:
        self._module, self._what, self._given = module, what, given
        self._running: tuple[subprocess.Popen[bytes], Connection] | None = None
        self._owner, self._lock = 0, threading.Lock()
        atexit.register(self.stop)
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """In a forked process: whoever held the lock is the other's."""
        self._lock = threading.Lock()

    def ask(self, request: bytes) -> bytes:
        """The answer to a request. Raises `ProcessEnded` and `ProcessLost`."""
        with self._lock:
            try:
                process, channel = self._started()
                return self._exchange(process, channel, request)
            except BaseException:  # a deadline of the caller too: half an answer may be under way
                self.stop()
                raise

    def _exchange(
        self, process: subprocess.Popen[bytes], channel: Connection, request: bytes = b""
    ) -> bytes:
        try:
            if request:
                channel.send_bytes(request)
            if not channel.poll(WALL_S if request else WALL_S + START_S):
                raise ProcessLost(f"no answer within {WALL_S:g} s by the clock")
            return channel.recv_bytes(1 << 30)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            ended = ProcessEnded(f"the process in which {self._what} ended with {process.wait()}")
            ended.status = process.returncode
            raise ended from None

    def _started(self) -> tuple[subprocess.Popen[bytes], Connection]:
        mine = self._running is not None and self._owner == os.getpid()
        if self._running is None or not mine or self._running[0].poll() is not None:
            self.stop()
            channel, theirs = Pipe()
            code = _SERVE.format(self._module)
            with theirs:
                command = [
                    sys.executable,
                    "-I",
                    "-S",
                    "-c",
                    code,
                    str(theirs.fileno()),
                    self._given,
                ]
                try:
                    process = subprocess.Popen(
                        [*command, _ROOT, *map(os.path.abspath, filter(None, sys.path))],
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                        pass_fds=(theirs.fileno(),),
                        cwd="/",
                        env=_environment(),
                        process_group=0,  # an interrupt at the terminal is ours alone
                    )
                except OSError as error:
                    why = f"the process in which {self._what} does not start: {error}"
                    raise ProcessLost(why) from None
            self._running, self._owner = (process, channel), os.getpid()
            lacking = json.loads(self._exchange(process, channel))
            if "seccomp" in lacking:  # all else is a second wall behind it
                said = f"{self._what} without {json.dumps(lacking)[:200]}"
                warnings.warn(said, RuntimeWarning, stacklevel=3)
        return self._running

    def stop(self) -> None:
        """End the process; that of a parent that this one was forked from goes on."""
        running, self._running = self._running, None
        if running is not None and self._owner == os.getpid():
            running[1].close()
            running[0].kill()
            running[0].wait()


def _environment() -> dict[str, str]:
    """What finds the same libraries, in one thread, and nothing else of ours."""
    kept = {n: os.environ[n] for n in ("LD_LIBRARY_PATH", "HOME") if n in os.environ}
    threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
    return {**kept, **threads, "PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1"}


# --- that process -------------------------------------------------------------------------------


def answer_requests(answer: Callable[[bytes], bytes], memory_mb: int) -> None:
    """Answer on the descriptor that the command line names, confined, until its other end closes.
    A timer of processor time that runs out ends the process by `SIGPROF`."""
    from assay.confine import lock_down  # of that process alone

    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = Connection(int(sys.argv[1]))
    channel.send_bytes(json.dumps(lock_down(channel.fileno(), memory_mb)).encode())
    while True:
        try:
            request = channel.recv_bytes()
        except EOFError:
            return
        channel.send_bytes(answer(request))
