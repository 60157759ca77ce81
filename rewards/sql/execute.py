"""Queries run by a process of their own (`runner.py`), one for each process of ours.

A query that a model wrote can end that process; it never ends this one, and never hangs. What the
query did and what the machine did are told apart: `Failed` is the query's, `RunnerLost` is not.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rewards.sql.compare import Row
from rewards.sql.data import Database, cell_of

_WALL_S = 60.0  # by the clock, of a machine that is busy with other things
_RUNNER = Path(__file__).with_name("runner.py")


@dataclass(frozen=True)
class Limits:
    """Of one query: steps of SQLite's machine, processor seconds, rows and bytes of the result,
    bytes of one cell, columns, and bytes of the text."""

    steps: int = 10_000_000
    cpu_s: float = 5.0
    rows: int = 10_000
    bytes: int = 2_000_000
    cell: int = 100_000
    columns: int = 200
    sql: int = 100_000


@dataclass(frozen=True)
class Failed:
    """A query without a result: `error` is a word (`sql_error`, `refused`, `too_slow`, `too_large`,
    `several`, `no_rows`), `why` a sentence of SQLite or of a limit."""

    error: str
    why: str


class RunnerLost(Exception):
    """The process that runs queries cannot be had: the machine's fault, never a query's."""


MEMORY_MB = 1024  # of the process


class _Runner:
    """One process. It is started when it is first asked, and again after a query ended it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._lock = threading.Lock()

    def ask(self, database: Database, sql: str, limits: Limits) -> dict[str, Any]:
        asked: dict[str, Any] = {"database": database.digest, "sql": sql, "limits": asdict(limits)}
        with self._lock:
            try:
                body = json.dumps(asked)
                reply = self._exchange(body)
                if reply.get("unknown"):
                    reply = self._exchange(f'{body[:-1]}, "tables": {database.text}}}')
                return reply
            except BaseException:  # a deadline of the caller too: half a reply may be under way
                self.stop()
                raise

    def _exchange(self, asked: str) -> dict[str, Any]:
        process = self._started()
        assert process.stdin is not None and process.stdout is not None
        body = asked.encode()
        try:
            process.stdin.write(struct.pack("!I", len(body)) + body)
            process.stdin.flush()
            end = time.monotonic() + _WALL_S
            (size,) = struct.unpack("!I", self._read(process, 4, end))
            return json.loads(self._read(process, size, end))
        except (EOFError, BrokenPipeError):
            status = process.wait()
        except TimeoutError:
            raise RunnerLost(f"no answer within {_WALL_S:g} s by the clock") from None
        if status == -signal.SIGPROF:
            self.stop()
            return {"error": "too_slow", "why": "more processor seconds than a query may take"}
        raise RunnerLost(f"the process that runs queries ended with {status}")

    @staticmethod
    def _read(process: subprocess.Popen[bytes], size: int, end: float) -> bytes:
        assert process.stdout is not None
        parts: list[bytes] = []
        while size:
            left = end - time.monotonic()
            if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
                raise TimeoutError
            part = os.read(process.stdout.fileno(), min(size, 1 << 20))
            if not part:
                raise EOFError
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._owner != os.getpid():
            self._process = None  # that of the parent this process was forked from
        if self._process is None or self._process.poll() is not None:
            try:
                self._process = _launched()
            except OSError as error:
                raise RunnerLost(f"the process that runs queries does not start: {error}") from None
            self._owner = os.getpid()
        return self._process

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


def _launched() -> subprocess.Popen[bytes]:
    """The process, in a session of its own so that an interrupt at the terminal is ours alone; in
    this one where a sandbox allows no new session. Raises `OSError`."""

    def start(session: bool) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(_RUNNER), str(MEMORY_MB)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=session,
        )

    try:
        return start(True)
    except PermissionError:
        return start(False)


_RUN = _Runner()
atexit.register(_RUN.stop)


def run(database: Database, sql: str, limits: Limits | None = None) -> list[Row] | Failed:
    """The rows of one query over a database, or why there are none. Raises `RunnerLost`.

    A query that ended the process is run once more in a fresh one; the second time it is its own
    fault (`crashed`), as long as a plain query can be run.
    """
    limits = limits or Limits()
    try:
        reply = _RUN.ask(database, sql, limits)
    except RunnerLost:
        _RUN.ask(database, "SELECT 1", limits)  # the machine's fault shows here
        try:
            reply = _RUN.ask(database, sql, limits)
        except RunnerLost as lost:
            reply = {"error": "crashed", "why": str(lost)}
    if "error" in reply:
        return Failed(str(reply["error"]), str(reply["why"]))
    return [tuple(map(cell_of, row)) for row in reply["rows"]]
