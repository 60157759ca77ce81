"""A session inside the jail: one interpreter, one cell after the other, frozen in between.

Every process of the session is stopped while no cell runs, so an idle session costs no processor
time and its files can be read like those of a call that has ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from typing import TYPE_CHECKING

from rollouts.sandbox import inside, wire

if TYPE_CHECKING:
    from rollouts.sandbox.inside import Job


def serve(job: Job, pipes: list[int], control: socket.socket, ready: int) -> None:
    """Run cells until the pool hangs up or a cell ends the interpreter."""
    first = True
    while True:
        capture = inside.new_capture(job)
        inside.signal_all(job, signal.SIGCONT)
        try:
            fetch = [] if first else _pass_on(job, control)
        except EOFError:
            inside.finish(job, pipes, capture)
            return
        job.end, job.cell, job.started = "exit", None, time.monotonic()
        inside.supervise(job, pipes, capture, control.fileno())
        alive = job.cell is not None
        if alive:
            inside.signal_all(job, signal.SIGSTOP)
            inside.drain_rest(pipes, capture)
        else:
            inside.finish(job, pipes, capture)
        if first:
            inside.check_begun(job, ready)
            first = False
        inside.answer(job, fetch, capture)
        if not alive:
            return


def _pass_on(job: Job, control: socket.socket) -> list[str]:
    """Take a cell from the pool while all is stopped, then wake the session and hand it over."""
    inside.signal_all(job, signal.SIGSTOP)
    request = wire.receive_header(job.conn)
    source = wire.receive(job.conn, request["code"])
    inside.signal_all(job, signal.SIGCONT)
    with contextlib.suppress(OSError):
        control.settimeout(job.limits.wall_s)
        control.sendall(len(source).to_bytes(8, "big") + source)
    os.set_blocking(control.fileno(), True)
    return list(request["fetch"])
