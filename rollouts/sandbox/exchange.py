"""A call and its answer on their way between the pool and a jail."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rollouts.sandbox import wire
from rollouts.sandbox.model import MIB, Limits

_STEP_S = 1.0
# Beyond a call's own deadline: init ends its call by itself, and the launcher a call whose init
# does not. When neither has, both are lost.
LONGEST_S = 120.0
_STILL_S = 30.0  # without a byte while inputs or results are on their way

Moved = Callable[[], None]
Exchange = Callable[[socket.socket, "Call", Moved], Awaitable["Answer"]]


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


async def send_call(conn: socket.socket, call: Call, moved: Moved) -> None:
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(conn, wire.pack(call.header()) + call.code)
    for data in (*call.files.values(), call.stdin):
        view = memoryview(data)
        for start in range(0, len(view), MIB):
            await loop.sock_sendall(conn, view[start : start + MIB])
            moved()


async def patiently(exchange: Exchange, conn: socket.socket, call: Call, extra_s: float) -> Answer:
    """The answer; TimeoutError when there is none `extra_s` after the call's own time.

    The clock stands still while our own event loop is blocked, and while bytes move: neither says
    anything about the jail.
    """
    left, moves = call.limits.wall_s + extra_s, 0

    def moved() -> None:
        nonlocal moves
        moves += 1

    task = asyncio.ensure_future(exchange(conn, call, moved))
    try:
        while True:
            before, seen = time.monotonic(), moves
            await asyncio.wait({task}, timeout=min(_STEP_S, left))
            if task.done():
                return task.result()
            left -= min(time.monotonic() - before, 2 * _STEP_S)
            if moves != seen:
                left = max(left, _STILL_S)
            if left <= 0:
                raise TimeoutError
    finally:
        if not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task


async def _read(sock: socket.socket, size: int, moved: Moved) -> bytes:
    loop, buffer, filled = asyncio.get_running_loop(), bytearray(size), 0
    view = memoryview(buffer)
    while filled < size:
        count = await loop.sock_recv_into(sock, view[filled : filled + MIB])
        if not count:
            raise EOFError("the jail ended without an answer")
        filled += count
        moved()
    return bytes(buffer)


async def receive_answer(sock: socket.socket, limits: Limits, moved: Moved) -> Answer:
    """What init says; WireError for anything it could not have said."""
    header = wire.parse(await _read(sock, wire.header_length(await _read(sock, 8, moved)), moved))
    try:
        return await _answer(sock, header, limits, moved)
    except (KeyError, TypeError, AttributeError) as error:
        raise wire.WireError(f"an answer of the wrong shape: {error!r}") from None


async def _answer(
    sock: socket.socket, header: dict[str, Any], limits: Limits, moved: Moved
) -> Answer:
    half = limits.output_kb * 1024
    streams: list[tuple[bytes, bytes, int]] = []
    for lengths in header["streams"]:
        head, tail, total = (wire.natural(n) for n in lengths)
        if head > half or tail > half:
            raise wire.WireError("more output than was asked for")
        streams.append((await _read(sock, head, moved), await _read(sock, tail, moved), total))
    if len(streams) != 2:
        raise wire.WireError(f"{len(streams)} streams; there are two")
    files: dict[str, bytes] = {}
    room = limits.fetch_total_mb * MIB
    for name, size in header["files"]:
        room -= wire.natural(size, limits.fetch_mb * MIB)
        if room < 0 or not isinstance(name, str) or "/" in name:
            raise wire.WireError("more files, or other names, than were asked for")
        files[name] = await _read(sock, size, moved)
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
