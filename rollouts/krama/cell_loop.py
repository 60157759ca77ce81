"""What the sandbox runs for a notebook: cells from standard input, in one `__main__`.

A cell comes as a line of JSON: its code, the bytes of each half of a stream that are wanted, the
files that are to come back, and the most bytes of one. A line answers it. What cells print goes to
files, which the sandbox brings back when a cell ends the interpreter in another way than by
SystemExit. This file is sent as text and needs the standard library alone.
"""

from __future__ import annotations

import base64
import contextlib
import json
import linecache
import os
import socket
import sys
import types
from typing import Any

OUTPUTS = (".stdout", ".stderr")


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def printed(stream: int, half: int) -> list[Any]:
    """Read and empty the file of a stream: [first `half` bytes, last `half` bytes, both in base64
    and without overlap, bytes in all] of what was printed since the last cell."""
    size = os.fstat(stream).st_size
    head = os.pread(stream, half, 0)
    tail = os.pread(stream, half, max(half, size - half))
    os.ftruncate(stream, 0)
    return [text(head), text(tail), size]


def saved(path: str, most: int) -> str | None:
    """A file that a cell left, unless there is none or it is too large."""
    if not os.path.isfile(path) or os.path.getsize(path) > most:
        return None
    with open(path, "rb") as file:
        return text(file.read())


def run(source: str, name: str, space: dict[str, Any]) -> tuple[int, bool]:
    """(exit status, whether the cell ends the interpreter)."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    try:
        exec(compile(source, name, "exec", dont_inherit=True), space)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return int(end.code or 0) & 0xFF, True
        print(end.code, file=sys.stderr)
        return 1, True
    except BaseException as error:
        trace = error.__traceback__
        error.__traceback__ = trace.tb_next if trace else None
        sys.excepthook(type(error), error, error.__traceback__)
        return 1, False
    return 0, False


def main() -> None:
    """Serve until the notebook hangs up or a cell ends the interpreter."""
    notebook, work = socket.socket(fileno=os.dup(0)), os.getcwd()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    streams = [os.open(name, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600) for name in OUTPUTS]
    for number, stream in enumerate(streams, 1):
        os.dup2(stream, number)
    cells = types.ModuleType("__main__")
    cells.__dict__["__file__"] = os.path.join(work, "main.py")
    sys.modules["__main__"] = cells
    notebook.sendall(b"{}\n")
    for number, line in enumerate(notebook.makefile("rb"), 1):
        asked: dict[str, Any] = json.loads(line)
        status, ended = run(asked["code"], f"<cell {number}>", cells.__dict__)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        files: dict[str, str | None] = {}
        for name in asked["fetch"]:
            with contextlib.suppress(OSError):
                files[name] = saved(os.path.join(work, name), asked["most"])
        out, err = (printed(stream, asked["half"]) for stream in streams)
        told = {"status": status, "ended": ended, "out": out, "err": err, "files": files}
        notebook.sendall(json.dumps(told).encode() + b"\n")
        if ended:
            os._exit(status)


if __name__ == "__main__":
    main()
