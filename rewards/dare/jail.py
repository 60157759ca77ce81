# pandas ships no types for what is used here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""The process that reads prediction files: run as a script, knows nothing of Assay or of gold.

It imports pandas once, and forks a child for every file. Before the child looks at a byte it gives
up what it could do harm with: no new descriptor (so no file and no socket can be opened), no larger
memory or time, no other user's id, and, on Linux, no system call beyond those that computing needs.
What comes back are plain columns: numbers as raw bytes, text as JSON, never a pickle.

Wire, on a socket of its own per file: `!IQ` (length of a JSON list of wanted columns, length of the
file), both; back: `!I` length of a JSON head, the head, the columns' bytes; last of all, from the
parent, `!i` how the child ended (`os.waitpid`'s status).
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import io
import json
import os
import platform
import resource
import signal
import socket
import struct
import sys
import warnings
from typing import Any, NoReturn

NOBODY = 65534
# machine: (audit number, system calls that a reader of bytes in memory makes)
_CALLS = {
    "x86_64": (
        0xC000003E,
        (
            0,
            1,
            3,
            5,
            8,
            9,
            10,
            11,
            12,
            13,
            14,
            15,
            24,
            25,
            28,
            39,
            60,
            96,
            131,
            186,
            202,
            228,
            231,
            318,
        ),
    ),
    "aarch64": (
        0xC00000B7,
        (
            57,
            62,
            63,
            64,
            80,
            93,
            94,
            98,
            113,
            124,
            132,
            134,
            135,
            139,
            169,
            172,
            178,
            214,
            215,
            216,
            222,
            226,
            233,
            278,
        ),
    ),
}


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def seccomp() -> bool:
    """Refuse every system call that is not in the table, with EPERM. False where there is none."""
    if not sys.platform.startswith("linux") or platform.machine() not in _CALLS:
        return False
    audit, calls = _CALLS[platform.machine()]
    deny, allow = (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)
    lines = [(0x20, 0, 0, 4), (0x15, 1, 0, audit), deny, (0x20, 0, 0, 0)]
    for at, number in enumerate(calls):  # equal: over the rest of them and the denial
        lines.append((0x15, len(calls) - at, 0, number))
    code = b"".join(struct.pack("=HBBI", *line) for line in [*lines, deny, allow])
    buffer = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(code) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    zero = ctypes.c_ulong(0)
    if libc.prctl(38, ctypes.c_ulong(1), zero, zero, zero):  # no new privileges
        return False
    return libc.prctl(22, ctypes.c_ulong(2), ctypes.byref(program), zero, zero) == 0


def _held() -> int:
    """Bytes of writable memory this process has already, libraries included."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[5]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return 1 << 30


def _maps(number: int) -> bool:
    """Whether this process may become user and group `number`. The root of a user namespace with
    one id cannot (`unshare -r`, enroot): it is an ordinary user that is called root."""
    for name in ("uid_map", "gid_map"):
        try:
            with open(f"/proc/self/{name}", encoding="ascii") as table:
                spans = [[int(field) for field in line.split()] for line in table]
        except (OSError, ValueError):  # no namespaces
            return True
        if not any(first <= number < first + count for first, _, count in spans):
            return False
    return True


def confine(keep: int, memory_mb: int, cpu_s: int, wall_s: float) -> None:
    """Give up everything but `keep`, an open socket, and `memory_mb` beyond what is held. Raises
    OSError when that is refused."""
    memory = _held() + (memory_mb << 20)
    low, high = sorted((0, keep))
    os.closerange(low, high)
    os.closerange(high + 1, 1 << 16)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, wall_s)
    if os.geteuid() == 0 and _maps(NOBODY):
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    limits = {
        resource.RLIMIT_DATA: (memory, memory),
        resource.RLIMIT_CPU: (cpu_s, cpu_s + 1),
        resource.RLIMIT_FSIZE: (0, 0),
        resource.RLIMIT_CORE: (0, 0),
    }
    for name, bounds in limits.items():
        resource.setrlimit(name, bounds)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
    seccomp()  # where there is none, no descriptor, memory or other id can be had all the same


def column(values: Any) -> tuple[str, int, bytes]:
    """(kind, rows, bytes): `i8`, `u8`, `f8`, `b1` as they lie in memory; `text` and `mixed` as a
    JSON list, `text` being all strings or missing."""
    code = f"{values.dtype.kind}{values.dtype.itemsize}" if values.dtype.kind in "iufb" else ""
    if code in ("i8", "u8", "f8", "b1"):
        return code, len(values), values.to_numpy().tobytes()
    listed: list[Any] = values.tolist()
    text = str(values.dtype) == "str"
    for item in listed:
        if not isinstance(item, (str, int, float)):  # bool is an int
            raise TypeError(f"a column of {type(item).__name__}")
    return "text" if text else "mixed", len(listed), json.dumps(listed).encode()


def read(
    data: bytes | bytearray, wanted: list[str], most_rows: int
) -> tuple[dict[str, Any], list[bytes]]:
    """(head, columns): the file as pandas' defaults read it. The head says `error`, or `rows` and
    the columns that are there."""
    import pandas as pd

    try:
        frame: Any = pd.read_csv(io.BytesIO(data))
        if len(frame) > most_rows:
            return {"error": f"more than {most_rows} rows"}, []
        there = [name for name in wanted if name in frame.columns]
        made = [column(frame[name]) for name in there]
    except MemoryError:
        return {"error": "it needs too much memory"}, []
    except Exception as error:  # whatever a file makes the reader raise
        return {"error": f"{type(error).__name__}: {str(error)[:120]}"}, []
    heads = [[n, kind, size, len(b)] for n, (kind, size, b) in zip(there, made, strict=True)]
    return {"rows": len(frame), "columns": heads}, [b for _, _, b in made]


def _take(source: int, size: int) -> bytearray:
    out = bytearray(size)
    view = memoryview(out)
    done = 0
    while done < size:
        part = os.read(source, min(size - done, 1 << 20))
        if not part:
            raise EOFError
        view[done : done + len(part)] = part
        done += len(part)
    return out


def _give(target: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(target, view[: 1 << 20]) :]


def _child(channel: int, limits: dict[str, Any]) -> NoReturn:
    """Read one file, confined, and end: 0, or 3 when the jail did not close."""
    code = 3
    try:
        confine(channel, limits["memory_mb"], limits["cpu_s"], limits["wall_s"])
        code = 4
        names, size = struct.unpack("!IQ", _take(channel, 12))
        wanted = json.loads(_take(channel, names))
        head, parts = read(_take(channel, size), wanted, limits["rows"])
        text = json.dumps(head).encode()
        _give(channel, struct.pack("!I", len(text)) + text)
        for part in parts:
            _give(channel, part)
        code = 0
    finally:
        os._exit(code)


def _warm() -> None:
    """Everything a reader may import later is imported now, by reading one of each."""
    odd = (
        b"",
        b"\n",
        b"a,a\n1\n",
        b"a\n\xff\n",
        b'a\n"',
        b"a,b\n1,x\n2.5,\nNA,y\n",
        b"a\nTrue\n\n",
        b"a,b\n1,2\n1,2,3,4\n",
        b"a\n" + b"9" * 30,
        b"a\n18446744073709551615\n",
        b"a\ninf\n",
        b"a\n2020-01-01\n",
        b"\xef\xbb\xbfa\n1\n",
        b"1,2\n3,4,5\n",
    )
    for data in odd:
        json.dumps(read(data, ["a"], 10)[0])
    read(b"a\n" + b"1\n" * 300_000 + b"x\n", ["a"], 1 << 20)  # two kinds in one column


def main() -> None:
    """Serve the socket on descriptor 0 until its other end is closed."""
    limits: dict[str, Any] = json.loads(sys.argv[1])
    control = socket.socket(fileno=0)
    warnings.simplefilter("ignore")
    _warm()
    gc.disable()
    gc.freeze()
    while True:
        said, channels, _, _ = socket.recv_fds(control, 1, 1)
        if not said or not channels:
            return
        pid = os.fork()
        if pid == 0:
            _child(channels[0], limits)
        _, status = os.waitpid(pid, 0)
        with contextlib.suppress(OSError):  # nobody waits for it any more
            _give(channels[0], struct.pack("!i", status))
        os.close(channels[0])


if __name__ == "__main__":
    main()
