# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""Reading a prediction file that nobody vouches for, and the truth it will be held against.

The prediction's bytes come from memory or from a plain file opened without following links, capped
in size and columns. They are parsed in another process, which was started afresh, so that no gold
is in its memory. It imports pandas once and forks a child for every file. Before the child looks at
a byte it gives up what it could do harm with (assay/confine.py): no new descriptor (so no file and
no socket can be opened), no larger memory or time, no other user's id, and, on Linux, no system
call beyond those that computing needs. What comes back are plain columns: numbers as raw bytes,
text as JSON, never a pickle.

Wire, on a socket of its own per file: `!IQ` (length of a JSON list of wanted columns, length of the
file), both; back: `!I` length of a JSON head, the head, the columns' bytes; last of all, from the
parent, `!i` how the child ended (`os.waitpid`'s status).
"""

from __future__ import annotations

import atexit
import gc
import io
import json
import os
import resource
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

from assay import confine as confinement

MAX_BYTES = 64 * 1024 * 1024
MAX_COLUMNS = 2_000
MAX_REPLY = 1 << 30
SHORT = "less memory may be had here than reading is promised"
_AS_BYTES = ("i8", "u8", "f8", "b1")  # columns that travel as they lie in memory
_ROOT = str(Path(__file__).resolve().parents[2])
_SERVE = f"""
import sys
sys.path.insert(0, {_ROOT!r})
from rewards.dare import read
del sys.path[0]
read.serve()
"""

Frame = Any  # a pandas DataFrame


class Unreadable(ValueError):
    """The prediction cannot be read as a table; the message says why."""


class ReaderLost(RuntimeError):
    """The reading process could not be had: nothing is known of the prediction."""


@dataclass(frozen=True)
class ReadLimits:
    """What reading one file may use: memory beyond the libraries', processor and clock seconds,
    rows."""

    memory_mb: int = 1536
    cpu_s: int = 10
    wall_s: float = 60.0
    rows: int = 4_000_000


def prediction_bytes(path: str) -> bytes | None:
    """Read a file's bytes; None if there is none. Raises `Unreadable` for a link, a device, and
    a file above `MAX_BYTES`."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        raise Unreadable("not a plain file that can be read") from None
    info = os.fstat(handle)
    if not stat.S_ISREG(info.st_mode) or info.st_nlink != 1:
        os.close(handle)
        raise Unreadable("not a plain file with one name")
    with os.fdopen(handle, "rb") as file:
        if info.st_size > MAX_BYTES:
            raise Unreadable(f"larger than {MAX_BYTES} bytes")
        return file.read(MAX_BYTES + 1)


def check_shape(data: bytes) -> None:
    """Raise `Unreadable` for a file too large, or with a line of too many fields, to be parsed."""
    if len(data) > MAX_BYTES:
        raise Unreadable(f"larger than {MAX_BYTES} bytes")
    if len(data) < MAX_COLUMNS:
        return
    import numpy as np

    letters = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero((letters == 10) | (letters == 13))
    edges = np.concatenate(([-1], ends, [len(data)]))
    for at in np.flatnonzero(np.diff(edges) > MAX_COLUMNS).tolist():  # shorter lines have fewer
        if data.count(b",", int(edges[at]) + 1, int(edges[at + 1])) >= MAX_COLUMNS:
            raise Unreadable(f"a line has more than {MAX_COLUMNS} fields")


def read_prediction(data: bytes, wanted: Sequence[str]) -> Frame:
    """The `wanted` columns that are there, as pandas' defaults read them: words such as NA are
    missing, digits are numbers.

    Raises `Unreadable` for whatever makes the reader raise, and for what is over a limit;
    `ReaderLost` when the reading process cannot be had.
    """
    try:
        check_shape(data)
        status, reply = _reader().ask(data, wanted)
        if status == 0:
            return _decoded(reply)
        number = os.waitstatus_to_exitcode(status)
        if number in (-9, 3):  # no limit of ours: the machine's own, or the jail did not close
            raise ReaderLost(f"the reader of predictions ended with {number}")
        raise Unreadable("reading it went over a limit of time or memory, or crashed the reader")
    except Unreadable:
        if short_of_memory(ReadLimits().memory_mb):
            raise ReaderLost(SHORT) from None
        raise
    except MemoryError:  # here, in this process: nothing is known of the prediction
        raise ReaderLost(SHORT) from None


def short_of_memory(megabytes: int) -> bool:
    """Tell whether a bound of this process (`ulimit -v`, `-d`) leaves less than so many MiB to
    be had."""
    kinds = (resource.RLIMIT_AS, resource.RLIMIT_DATA)
    bounds = [soft for kind in kinds if (soft := resource.getrlimit(kind)[0]) >= 0]
    try:
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        mapped = 0
    return any(bound < mapped + (megabytes << 20) for bound in bounds)


def _decoded(reply: bytes) -> Frame:
    """The frame that a reply describes. Nothing in it is trusted to be well-formed."""
    try:
        (size,) = struct.unpack_from("!I", reply)
        head: Any = json.loads(reply[4 : 4 + size])
        if "lacking" in head:
            confinement.say_lacking("predictions are read", str(head["lacking"]))
        if "error" in head:
            raise Unreadable(str(head["error"])[:200])
        return _frame(head, memoryview(reply)[4 + size :])
    except Unreadable:
        raise
    except (ValueError, LookupError, TypeError, struct.error, MemoryError, RecursionError):
        raise Unreadable("the reader gave no table") from None


def _frame(head: Any, body: memoryview) -> Frame:
    import numpy as np
    import pandas as pd

    rows, columns, at = int(head["rows"]), dict[str, Any](), 0
    for name, kind, count, size in head["columns"]:
        part, at = body[at : at + size], at + size
        if count != rows:
            raise ValueError("columns of unequal length")
        if kind in ("text", "mixed"):
            values: list[Any] = json.loads(bytes(part))
            columns[str(name)] = pd.Series(values, dtype="str" if kind == "text" else object)
        elif kind in _AS_BYTES:
            columns[str(name)] = pd.Series(np.frombuffer(part, dtype=kind).copy())
        else:
            raise ValueError("a column of no known kind")
        if len(columns[str(name)]) != rows:
            raise ValueError("columns of unequal length")
    return pd.DataFrame(columns, index=range(rows))


def read_here(data: bytes) -> Frame:
    """Read the whole table in this process, for files that our own code wrote. Raises
    `Unreadable`."""
    import pandas as pd

    try:
        return pd.read_csv(io.BytesIO(data))
    except (ValueError, OverflowError, MemoryError, RecursionError) as error:
        raise Unreadable(f"{type(error).__name__}: {str(error)[:120]}") from None


@lru_cache(maxsize=64)
def read_truth(text: str) -> Frame:
    """Read a truth table from its CSV text, from a cache; callers must not change it. Raises
    `Unreadable`."""
    return read_here(text.encode("utf-8", "surrogatepass"))


# --- this side of the reading process -----------------------------------------------------------


class Reader:
    """A warm process that reads one file at a time; safe to share between threads."""

    def __init__(self, limits: ReadLimits) -> None:
        self.limits, self.pid = limits, os.getpid()
        self._lock = threading.Lock()
        mine, theirs = socket.socketpair()
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", _SERVE, json.dumps(asdict(limits))],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
            env=_environment(),
        )
        theirs.close()
        self._control = mine

    def ask(self, data: bytes, wanted: Sequence[str]) -> tuple[int, bytes]:
        """(how the reading child ended, what it said). Raises `ReaderLost`."""
        names = json.dumps(list(wanted)).encode()
        with self._lock:
            mine, theirs = socket.socketpair()
            with mine:
                try:
                    with theirs:
                        socket.send_fds(self._control, [b"r"], [theirs.fileno()])
                    mine.settimeout(self.limits.wall_s + 30)  # the first one waits for imports
                    with suppress(BrokenPipeError, ConnectionResetError):  # the end says why
                        mine.sendall(struct.pack("!IQ", len(names), len(data)) + names)
                        mine.sendall(data)
                    reply = _rest(mine)
                except OSError as error:
                    self.close()
                    raise ReaderLost(f"the reader of predictions is gone: {error}") from None
        if len(reply) < 4:
            self.close()
            raise ReaderLost("the reader of predictions ended")
        return struct.unpack("!i", reply[-4:])[0], reply[:-4]

    def alive(self) -> bool:
        """Tell whether the process runs and is this one's own."""
        return self.pid == os.getpid() and self.process.poll() is None

    def close(self) -> None:
        """End the process and whatever it forked."""
        self._control.close()
        if self.pid == os.getpid():
            with suppress(OSError):
                os.killpg(self.process.pid, 9)
            self.process.wait()


def _environment() -> dict[str, str]:
    """What finds the same Python and pandas, and nothing else of ours."""
    kept = {n: os.environ[n] for n in ("LD_LIBRARY_PATH", "HOME") if n in os.environ}
    path = [os.path.abspath(p) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    return {
        **kept,
        "PATH": os.defpath,
        "PYTHONPATH": os.pathsep.join(path),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _rest(channel: socket.socket) -> bytes:
    """Everything until the other side closes. Raises OSError beyond what any reply may be."""
    parts: list[bytes] = []
    size = 0
    while True:
        try:
            part = channel.recv(1 << 18)
        except ConnectionResetError:  # it left something unread
            break
        if not part:
            break
        parts.append(part)
        size += len(part)
        if size > MAX_REPLY:
            raise OSError("a reply without end")
    return b"".join(parts)


_current: Reader | None = None
_making = threading.Lock()


def _forget() -> None:
    """In a forked process: the reader, and whoever held the locks, are the other's."""
    global _current, _making
    _current, _making = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)


@atexit.register
def end_reader() -> None:
    """End this process's reader, if it has one."""
    if _current is not None:
        _current.close()


def _reader() -> Reader:
    """This process's reader, started when first needed; a fork starts its own."""
    global _current
    with _making:
        if _current is None or not _current.alive():
            try:
                _current = Reader(ReadLimits())
            except OSError as error:
                raise ReaderLost(f"the reader of predictions cannot be started: {error}") from None
        return _current


# --- the reading process ------------------------------------------------------------------------


def confine(keep: int, memory_mb: int, cpu_s: int, wall_s: float) -> dict[str, str]:
    """Give up everything but `keep`, an open socket, and `memory_mb` beyond what is held. What the
    machine lacks for it (`assay.confine.confine`). Raises OSError when the rest is refused."""
    memory = confinement.held_memory() + (memory_mb << 20)
    os.closerange(0, keep)
    os.closerange(keep + 1, 1 << 16)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, wall_s)
    confinement.give_up_root()
    return confinement.confine(memory, cpu_s)


def column(values: Any) -> tuple[str, int, bytes]:
    """(kind, rows, bytes): one of `_AS_BYTES`; or `text` and `mixed` as a JSON list, `text` being
    all strings or missing."""
    code = f"{values.dtype.kind}{values.dtype.itemsize}" if values.dtype.kind in "iufb" else ""
    if code in _AS_BYTES:
        return code, len(values), values.to_numpy().tobytes()
    listed: list[Any] = values.tolist()
    for item in listed:
        if not isinstance(item, (str, int, float)):  # bool is an int
            raise TypeError(f"a column of {type(item).__name__}")
    kind = "text" if str(values.dtype) == "str" else "mixed"
    return kind, len(listed), json.dumps(listed).encode()


def read(data: bytes, wanted: list[str], most_rows: int) -> tuple[dict[str, Any], list[bytes]]:
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


def _read_confined(channel: int, limits: ReadLimits) -> NoReturn:
    """Read one file, confined, and end: 0, or 3 when this process could not be confined."""
    code = 3
    try:
        source = open(channel, "rb", closefd=False)  # noqa: SIM115
        target = open(channel, "wb", closefd=False)  # noqa: SIM115
        lacking = confine(channel, limits.memory_mb, limits.cpu_s, limits.wall_s)
        code = 4
        names, size = struct.unpack("!IQ", source.read(12))
        wanted = json.loads(source.read(names))
        head, parts = read(source.read(size), wanted, limits.rows)
        if "seccomp" in lacking:  # all else is a second wall behind it
            head["lacking"] = ", ".join(f"{layer} ({why})" for layer, why in lacking.items())
        text = json.dumps(head).encode()
        for part in (struct.pack("!I", len(text)), text, *parts):
            target.write(part)
        target.flush()
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
    with suppress(OSError):  # built once, not in every child
        confinement.computing_program()


def serve() -> None:
    """Serve the socket on descriptor 0 until its other end is closed."""
    limits = ReadLimits(**json.loads(sys.argv[1]))
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
            _read_confined(channels[0], limits)
        _, status = os.waitpid(pid, 0)
        with suppress(OSError):  # nobody waits for it any more
            os.write(channels[0], struct.pack("!i", status))
        os.close(channels[0])
