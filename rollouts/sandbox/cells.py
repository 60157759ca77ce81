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

from rollouts.sandbox import wire
from rollouts.sandbox.job import Job, answer, new_capture
from rollouts.sandbox.supervise import (
    check_begun,
    drain_rest,
    finish,
    signal_all,
    stop_all,
    supervise,
)


def serve(job: Job, pipes: list[int], control: socket.socket) -> None:
    """Run cells until the pool hangs up or a cell ends the interpreter."""
    first = True
    while True:
        capture = new_capture(job)
        try:
            fetch = [] if first else _pass_on(job, control)
        except EOFError:
            finish(job, pipes, capture)
            return
        job.end, job.cell, job.started = "exit", None, time.monotonic()
        supervise(job, pipes, capture, control.fileno())
        alive = job.cell is not None
        if alive:
            stop_all(job)
            drain_rest(pipes, capture)
        else:
            finish(job, pipes, capture)
        if first:
            check_begun(job)
            first = False
        answer(job, fetch, capture)
        if not alive:
            return


def _pass_on(job: Job, control: socket.socket) -> list[str]:
    """Take a cell from the pool while all is stopped, then wake the session and hand it over."""
    request = wire.receive_header(job.conn)
    source = wire.receive(job.conn, request["code"])
    signal_all(job, signal.SIGCONT)
    with contextlib.suppress(OSError):
        control.settimeout(job.limits.wall_s)
        control.sendall(len(source).to_bytes(8, "big") + source)
    os.set_blocking(control.fileno(), True)
    return list(request["fetch"])
