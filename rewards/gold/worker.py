"""The child process that executes rows, one at a time, each under a deadline.

It is killed by the operating system when a row's processor time runs out, in the middle of a
regular expression if need be. Frames on its pipes: four bytes of length, then the payload. In come
batches: a head (how, first line number, what lines are called) and lines. Out goes one answer a
row, all together when the batch is done; a batch that is asked for `one by one`, because it killed
a worker before, has each answer sent as soon as it is known, which tells the row that kills.
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
TOGETHER, ONE_BY_ONE = b"+", b"1"


def write_frame(stream: BinaryIO, payload: bytes, flush: bool = True) -> None:
    stream.write(HEADER.pack(len(payload)) + payload)
    if flush:
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
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a parent that was killed reads no answer
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
        head, _, lines = batch.partition(b"\n")
        how, number, name = head.split(b" ", 2)
        where = name.decode("utf-8", "surrogateescape")
        for place, line in enumerate(lines.split(b"\n"), int(number)):
            signal.setitimer(signal.ITIMER_PROF, deadline)
            answer, good = executor.line(line, f"{where} {place}")
            signal.setitimer(signal.ITIMER_PROF, 0)
            write_frame(outward, (b"+" if good else b"-") + answer, flush=how == ONE_BY_ONE)
        outward.flush()
