# pandas ships no types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""Reading a prediction file that nobody vouches for, and the truth it will be held against.

The prediction's bytes come from memory or from a plain file opened without following links, capped
in size and columns. They are parsed in a process that can do nothing but compute
(assay/confined_process.py) and holds no gold. What comes back are plain columns: numbers as raw
bytes, text as JSON, never a pickle.

Wire: a JSON list of the wanted columns and the file, parted by a line end; back a JSON head and the
columns' bytes, parted by another.
"""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import stat
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from assay.confined_process import ConfinedProcess, ProcessEnded, ProcessLost, answer_requests

MAX_BYTES = 64 * 1024 * 1024
MAX_COLUMNS = 2_000
SHORT = "less memory may be had here than reading is promised"
_AS_BYTES = ("i8", "u8", "f8", "b1")  # columns that travel as they lie in memory
_TOO_MUCH = "it needs too much memory"

Frame = Any  # a pandas DataFrame


class Unreadable(ValueError):
    """The prediction cannot be read as a table; the message says why."""


class ReaderLost(RuntimeError):
    """The reading process could not be had: nothing is known of the prediction."""


@dataclass(frozen=True)
class ReadLimits:
    """What reading one file may use: memory beyond the libraries', processor seconds, rows."""

    memory_mb: int = 1536
    cpu_s: int = 10
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
    names = json.dumps(list(wanted)).encode()
    try:
        check_shape(data)
        return _decoded(_answer(names + b"\n" + data))
    except Unreadable:
        if short_of_memory(ReadLimits().memory_mb):
            raise ReaderLost(SHORT) from None
        raise
    except MemoryError:  # here, in this process: nothing is known of the prediction
        raise ReaderLost(SHORT) from None


def _answer(request: bytes) -> bytes:
    """The reply of the reading process. Files read before leave no trace in what a file may use:
    for want of memory it is read once more in a fresh process."""
    try:
        reply = READER.ask(request)
        if _TOO_MUCH.encode() in reply[:100]:
            READER.stop()
            reply = READER.ask(request)
        return reply
    except ProcessEnded as ended:
        if ended.status == -signal.SIGKILL or ended.status >= 0:
            # no limit of ours: the machine's own, or the process did not start
            raise ReaderLost(str(ended)) from None
        why = "reading it went over a limit of time or memory, or crashed the reader"
        raise Unreadable(why) from None
    except (ProcessLost, OSError) as lost:
        raise ReaderLost(str(lost)) from None


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
        end = reply.index(b"\n")
        head: Any = json.loads(reply[:end])
        if "error" in head:
            raise Unreadable(str(head["error"])[:200])
        return _frame(head, memoryview(reply)[end + 1 :])
    except Unreadable:
        raise
    except (ValueError, LookupError, TypeError, MemoryError, RecursionError):
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


# --- the reading process ------------------------------------------------------------------------


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
        return {"error": _TOO_MUCH}, []
    except Exception as error:  # whatever a file makes the reader raise
        return {"error": f"{type(error).__name__}: {str(error)[:120]}"}, []
    heads = [[n, kind, size, len(b)] for n, (kind, size, b) in zip(there, made, strict=True)]
    return {"rows": len(frame), "columns": heads}, [b for _, _, b in made]


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


def serve() -> None:
    """Answer requests to read a file (assay/confined_process.py)."""
    limits = ReadLimits(**json.loads(sys.argv[2]))
    warnings.simplefilter("ignore")
    _warm()

    def answer(request: bytes) -> bytes:
        names, _, data = request.partition(b"\n")
        signal.setitimer(signal.ITIMER_PROF, limits.cpu_s)
        head, parts = read(data, json.loads(names), limits.rows)
        signal.setitimer(signal.ITIMER_PROF, 0)
        return b"".join([json.dumps(head).encode(), b"\n", *parts])

    answer_requests(answer, limits.memory_mb)


def reader(limits: ReadLimits) -> ConfinedProcess:
    """A process that reads prediction files under these limits."""
    return ConfinedProcess(__name__, "predictions are read", json.dumps(asdict(limits)))


READER = reader(ReadLimits())
