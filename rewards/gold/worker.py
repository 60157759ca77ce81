"""The child process that executes rows, one at a time, each under a deadline.

It is killed by the operating system when a row's processor time runs out, in the middle of a
regular expression if need be. Frames on its pipes: four bytes of length, then the payload. In come
batches (first line number and lines), out goes one answer a row as soon as it is known, so the
parent can tell which row a killed worker was at.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import sys
from typing import Any, BinaryIO

from rewards.gold.rows import RowExecutor

HEADER = struct.Struct("<I")


def write_frame(stream: BinaryIO, payload: bytes) -> None:
    stream.write(HEADER.pack(len(payload)) + payload)
    stream.flush()


def read_frame(stream: BinaryIO) -> bytes | None:
    """The next payload, or None when the other side is gone."""
    head = stream.read(HEADER.size)
    if len(head) < HEADER.size:
        return None
    (length,) = HEADER.unpack(head)
    payload = stream.read(length)
    return payload if len(payload) == length else None


def serve() -> None:
    """Answer batches until the parent closes the pipe. The first frame holds the options."""
    inward, outward = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    # Whatever a library prints must not land between the frames.
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Python would turn these into exceptions; the default action ends the process instead.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    first = read_frame(inward)
    if first is None:
        return
    options: dict[str, Any] = json.loads(first)
    deadline: float = options.pop("deadline")
    executor = RowExecutor(**options)
    write_frame(outward, b"ready")
    while (batch := read_frame(inward)) is not None:
        number, _, lines = batch.partition(b"\n")
        for offset, line in enumerate(lines.split(b"\n")):
            signal.setitimer(signal.ITIMER_PROF, deadline)
            answer, good = executor.line(line, int(number) + offset)
            signal.setitimer(signal.ITIMER_PROF, 0)
            write_frame(outward, (b"+" if good else b"-") + answer)
