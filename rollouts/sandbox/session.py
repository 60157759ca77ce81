"""What an episode keeps from call to call: a file store, or a whole interpreter."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType

from rollouts.sandbox import wire
from rollouts.sandbox.exchange import LONGEST_S, Answer, Call, Moved, patiently, receive_answer
from rollouts.sandbox.model import MIB, Limits, Result, SandboxError
from rollouts.sandbox.pool import Pool, Shared, check, placed
from rollouts.sandbox.verdict import to_result
from rollouts.sandbox.worker import Launcher

_SESSION_S = 24 * 3600.0


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


class Session:
    """One interpreter for an episode. Use as `async with Session(pool) as session`.

    A cell that times out, runs out of memory or leaves ends the interpreter. The next cell then
    starts a new one, with the files of the beginning, and its `why` says that state was lost.
    """

    def __init__(
        self,
        pool: Pool,
        files: Mapping[str, bytes | str] | None = None,
        limits: Limits | None = None,
        seed: int | None = None,
        shared: Shared = None,
    ) -> None:
        self.pool, self.limits, self.seed = pool, limits or Limits(), seed
        self.folders = placed(shared, pool.config)
        _, self.files = check("", files, (), self.folders)
        self._conn: socket.socket | None = None
        self._launcher: Launcher | None = None
        self._lost = False

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the interpreter and all it started."""
        if self._conn is not None:
            self._conn.close()
            self._conn = None
        if self._launcher is not None:
            self._launcher.active -= 1
            self._launcher = None

    async def run(self, code: str, fetch: Sequence[str] = ()) -> Result:
        """Run one cell in the session's `__main__`."""
        source, _ = check(code, None, fetch)
        call = Call(source, {}, fetch, self.limits, self.seed)
        lost, why = self._lost, ""
        asked = time.monotonic()
        async with self.pool.turn():
            queued = time.monotonic() - asked
            try:
                result = await self._cell(call, queued)
            except (OSError, EOFError, wire.WireError, SandboxError, TimeoutError) as error:
                why = str(error) or type(error).__name__
                result = Result("sandbox_error", why=why, queue_s=queued)
        ended = result.status not in ("ok", "error") or self._over(result)
        if ended:
            self.close()
            self._lost = True
        elif lost:
            self._lost = False
            note = "the interpreter had ended: this cell began with a new one"
            result = replace(result, why=f"{result.why}; {note}".removeprefix("; "))
        self.pool.metrics.add(result)
        return result

    def _over(self, result: Result) -> bool:
        return "interpreter_ended" in result.layers

    async def _cell(self, call: Call, queued: float) -> Result:
        if self._conn is None:
            await self._begin()
        conn, launcher = self._conn, self._launcher
        if conn is None or launcher is None:
            raise SandboxError("the session is closed")
        handed = time.monotonic()
        answer = await patiently(_exchange, conn, call, LONGEST_S)
        alive = answer.end == "cell"
        if alive:
            answer = replace(answer, end="exit")
        result = to_result(answer, call, launcher.report, queued, handed)
        return result if alive else replace(result, layers={**result.layers, **_ENDED})

    async def _begin(self) -> None:
        """Start the interpreter; it answers once before the first cell."""
        self._launcher = await self.pool.borrow()
        limits = replace(self.limits, cpu_s=self.limits.cpu_s or _SESSION_S)
        call = Call(b"", self.files, (), limits, self.seed, shared=self.folders, session=True)
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            self._conn, _ = await self._launcher.open(_SESSION_S)
            answer = await patiently(self._launcher.exchange, self._conn, call, LONGEST_S)
            if answer.end != "cell":
                raise SandboxError(f"the session did not start ({answer.end})")
            undo.pop_all()


async def _exchange(conn: socket.socket, call: Call, moved: Moved) -> Answer:
    loop = asyncio.get_running_loop()
    header = {"code": len(call.code), "fetch": list(call.fetch)}
    await loop.sock_sendall(conn, wire.pack(header) + call.code)
    return await receive_answer(conn, call.limits, moved)


_ENDED = {"interpreter_ended": True}
