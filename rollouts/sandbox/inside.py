"""Init of one call: pid 1 of the jail. Takes the request, starts the user process, watches it,
kills everything, and only then reads what was asked for."""

from __future__ import annotations

import errno
import os
import signal
import socket
import time
from typing import Any, NoReturn

from rollouts.sandbox import cells, intake, mounts, scene, user, warm, watch, wire
from rollouts.sandbox import syscalls as sc
from rollouts.sandbox.job import Job, answer, new_capture, watches
from rollouts.sandbox.model import Limits
from rollouts.sandbox.orders import Order, Streams
from rollouts.sandbox.scene import Scene
from rollouts.sandbox.supervise import check_begun, finish, supervise

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # all else is no fault of the inputs' size


def serve(stage: Scene, channel: socket.socket) -> NoReturn:
    """Make the jail, wait for a call on `channel`, run it, exit."""
    try:
        job = _ahead(stage, channel)
        if job is not None:
            _run(job)
    except (EOFError, OSError):
        pass  # the pool is gone or the call was given up: nobody is left to tell
    os._exit(0)


def _ahead(stage: Scene, channel: socket.socket) -> Job | None:
    """All that needs no request, done before there is one."""
    sc.prctl(sc.PR_SET_PDEATHSIG, signal.SIGKILL)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    scene.prepare(stage, Limits())
    place = scene.place_of(stage)
    if not stage.namespaces:
        sc.prctl(sc.PR_SET_CHILD_SUBREAPER, 1)
    proc = os.dup(stage.proc) if stage.proc >= 0 else os.open("/proc", os.O_RDONLY)
    work = os.open(place.work, os.O_RDONLY | os.O_DIRECTORY)
    borrowed = warm.ask(stage, proc) if stage.namespaces else None
    sc.prctl(sc.PR_SET_DUMPABLE, 0)
    data, descriptors, _, _ = socket.recv_fds(channel, 64, 1)
    if not data or not descriptors:
        return None
    conn = socket.socket(fileno=descriptors[0])
    return Job(conn, stage, place, proc, work, channel, borrowed)


def _run(job: Job) -> None:
    request = wire.receive_header(job.conn)
    job.limits = Limits.checked(request["limits"])
    capture = new_capture(job)
    try:
        source, stdin = intake.receive(job, request)
    except OSError as error:
        what = "input" if error.errno in _NO_ROOM else "no inputs"
        job.end = f"{what}: {error.strerror or error}"
        answer(job, request["fetch"], capture)
        return
    pipes = [os.pipe(), os.pipe(), os.pipe()]
    ours, theirs = socket.socketpair()
    session = bool(request.get("session"))
    control = theirs.fileno() if session else -1
    streams = Streams(stdin, pipes[0][1], pipes[1][1], pipes[2][1], control)
    try:
        _begin(job, request, streams, source)
    except (OSError, EOFError) as error:
        job.end = f"no user process: {error}"
        answer(job, request["fetch"], capture)
        return
    theirs.close()
    for descriptor in (stdin, *(write for _, write in pipes)):
        os.close(descriptor)
    reads, job.ready = [read for read, _ in pipes[:2]], pipes[2][0]
    if session:
        cells.serve(job, reads, ours)
        return
    supervise(job, reads, capture)
    finish(job, reads, capture)
    check_begun(job)
    answer(job, request["fetch"], capture)


def _begin(job: Job, request: dict[str, Any], streams: Streams, source: bytes) -> None:
    """Let the waiting user process go, or fork one where there is none."""
    if job.borrowed is None:
        job.watches = watches(job, watch.own_pid(job.proc))
        job.started = time.monotonic()
        job.user = os.fork()
        if job.user == 0:
            _user_process(job, request, streams, source)
        return
    job.borrowed.greet()
    pid = job.borrowed.pid if job.stage.own_proc else job.borrowed.outer
    job.watches = watches(job, pid, pid)
    if job.stage.own_proc:
        mounts.seal_proc()
    job.user, job.started = job.borrowed.pid, time.monotonic()
    given = [streams.stdin, streams.stdout, streams.stderr, streams.ready, streams.control]
    order = {name: request[name] for name in ("limits", "seed", "argv")}
    with job.borrowed.channel as channel:
        socket.send_fds(channel, [b"go"], [d for d in given if d >= 0])
        wire.send(channel, order)


def _user_process(job: Job, request: dict[str, Any], streams: Streams, source: bytes) -> NoReturn:
    """Never returns into init's code, whatever happens."""
    try:
        order = Order.read(request)
        user.start(job.stage, job.place, order, streams, job.proc, source)
    finally:
        os._exit(1)
