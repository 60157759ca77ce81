"""Init of one call: pid 1 of the jail. Takes the request, starts the user process, watches it,
kills everything, and only then reads what was asked for."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import select
import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

from rollouts.sandbox import cells, intake, jail, scene, script, warm, watch, wire
from rollouts.sandbox import syscalls as sc
from rollouts.sandbox.model import MIB, Limits
from rollouts.sandbox.results import Collected, collect
from rollouts.sandbox.scene import Place, Scene
from rollouts.sandbox.text import Capture
from rollouts.sandbox.warm import Borrowed, Fate

_TICK = 0.05
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # all else is no fault of the inputs' size


@dataclass
class Job:
    """One call while it runs."""

    conn: socket.socket
    stage: Scene
    place: Place
    proc: int
    work_fd: int
    borrowed: Borrowed | None = None  # with namespaces; else the user process is our own fork
    fate: Fate | None = None
    limits: Limits = field(default_factory=Limits)
    before: dict[str, tuple[int, int, int]] = field(default_factory=dict[str, Any])
    user: int = 0
    status: int | None = None
    end: str = "exit"
    started: float = 0.0
    peak: int = 0
    cell: int | None = None  # in a session: 1 when the cell raised, 0 when not, none if not over


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
    channel.close()
    if not data or not descriptors:
        return None
    return Job(socket.socket(fileno=descriptors[0]), stage, place, proc, work, borrowed)


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
    streams = script.Streams(stdin, pipes[0][1], pipes[1][1], pipes[2][1], control)
    try:
        _begin(job, request, streams, source)
    except (OSError, EOFError) as error:
        job.end = f"no user process: {error}"
        answer(job, request["fetch"], capture)
        return
    theirs.close()
    for descriptor in (stdin, *(write for _, write in pipes)):
        os.close(descriptor)
    reads = [read for read, _ in pipes[:2]]
    if session:
        cells.serve(job, reads, ours, pipes[2][0])
        return
    supervise(job, reads, capture)
    finish(job, reads, capture)
    check_begun(job, pipes[2][0])
    answer(job, request["fetch"], capture)


def _begin(job: Job, request: dict[str, Any], streams: script.Streams, source: bytes) -> None:
    """Let the waiting user process go, or fork one where there is none."""
    if job.borrowed is None:
        job.started = time.monotonic()
        job.user = os.fork()
        if job.user == 0:
            _user_process(job, request, streams, source)
        return
    job.borrowed.greet()
    job.user, job.started = job.borrowed.pid, time.monotonic()
    given = [streams.stdin, streams.stdout, streams.stderr, streams.ready, streams.control]
    order = {name: request[name] for name in ("limits", "seed", "argv")}
    with job.borrowed.channel as channel:
        socket.send_fds(channel, [b"go"], [d for d in given if d >= 0])
        wire.send(channel, order)


def new_capture(job: Job) -> list[Capture]:
    return [Capture(job.limits.output_kb * 1024) for _ in range(2)]


def check_begun(job: Job, ready: int) -> None:
    """Without the user process's word that its jail was closed and that our own set-up went well,
    nothing it did counts. All that could write that word are dead, or have closed it."""
    os.set_blocking(ready, False)
    said = b""
    with contextlib.suppress(BlockingIOError):
        while part := os.read(ready, 4096):
            said += part
    os.close(ready)
    if job.end == "abandoned" or said == script.CLOSED + script.BEGUN:
        return
    _, failed, reason = said.partition(script.FAILED)
    if failed:
        job.end = f"set-up failed: {reason.decode('utf-8', 'replace')}"
    elif not said.startswith(script.CLOSED):
        job.end = "open jail"
    elif job.end == "exit":
        job.end = "set-up ended early"


def _user_process(
    job: Job, request: dict[str, Any], streams: script.Streams, source: bytes
) -> NoReturn:
    """Never returns into init's code, whatever happens."""
    try:
        order = script.Order.read(request)
        script.start(job.stage, job.place, order, streams, job.proc, source)
    finally:
        os._exit(1)


def supervise(job: Job, pipes: list[int], capture: list[Capture], control: int = -1) -> None:
    """Drain, watch and wait until the user process ends, says that a cell ended, or has to end."""
    poller = select.poll()
    watched = [*pipes, job.conn.fileno(), *([control] if control >= 0 else [])]
    tick, pidfd, fate = _TICK, -1, -1
    try:
        if job.borrowed is not None:
            watched.append(fate := job.borrowed.fate.fileno())
        else:
            watched.append(pidfd := os.pidfd_open(job.user))
    except OSError:
        tick = 0.01  # before Linux 5.3 only asking tells
    for descriptor in watched:
        poller.register(descriptor, select.POLLIN)
    memory = _memory_watch(job)
    disk = _disk_watch(job, memory)
    deadline, look = job.started + job.limits.wall_s, job.started + _TICK
    while job.status is None and job.end == "exit":
        now = time.monotonic()
        events = poller.poll(max(0, min(tick, deadline - now)) * 1000)
        for descriptor, _ in events:
            if descriptor in pipes:
                _drain(descriptor, capture[pipes.index(descriptor)], poller)
            elif descriptor == job.conn.fileno():
                job.end = "abandoned"
            elif descriptor == control:
                _cell_ended(job, control, poller)
            elif descriptor == fate:
                _hear(job)
        _reap(job)
        now = time.monotonic()
        if job.status is not None or job.end != "exit":
            break
        if now >= deadline:
            job.end = "timeout"
        elif now >= look:
            job.end = _over(memory, disk) or job.end
            look = time.monotonic() + _TICK
    if job.end in ("exit", "cell") and disk is not None and disk.exceeded():
        job.end, job.cell = "disk", None
    job.peak = max(job.peak, memory.peak)
    if pidfd >= 0:
        os.close(pidfd)


def _memory_watch(job: Job) -> watch.MemoryWatch:
    user = 0
    if job.borrowed is not None:
        user = job.user if job.stage.own_proc else job.borrowed.outer
    return watch.MemoryWatch(job.proc, job.limits.total_mb * MIB, job.stage.own_proc, user)


def _hear(job: Job) -> None:
    """Take the warm process's word for how the user process ended."""
    if job.borrowed is None or job.status is not None:
        return
    try:
        job.fate = job.borrowed.ended()
        job.status = job.fate.status
    except (EOFError, OSError):
        job.end, job.status = "the warm process is gone", 0


def _cell_ended(job: Job, control: int, poller: select.poll) -> None:
    said = os.read(control, 1)
    if said:
        job.end, job.cell = "cell", 1 if said != b"\0" else 0
    else:
        poller.unregister(control)  # the process ends or hides: the deadline will tell


def finish(job: Job, pipes: list[int], capture: list[Capture]) -> None:
    """Leave nobody alive, then take what is still in the pipes."""
    _kill_all(job)
    drain_rest(pipes, capture)


def drain_rest(pipes: list[int], capture: list[Capture]) -> None:
    for descriptor, into in zip(pipes, capture, strict=True):
        os.set_blocking(descriptor, False)
        with contextlib.suppress(BlockingIOError):
            while _drain(descriptor, into, None):
                pass


def _disk_watch(job: Job, memory: watch.MemoryWatch) -> watch.DiskWatch | None:
    if job.stage.namespaces:
        return None  # the mounts have their sizes
    sizes = {job.place.work: job.limits.work_mb * MIB, job.place.tmp: job.limits.tmp_mb * MIB}
    return watch.DiskWatch(memory, sizes, job.limits.work_files)


def _over(memory: watch.MemoryWatch, disk: watch.DiskWatch | None) -> str:
    if memory.exceeded():
        return "memory"
    return "disk" if disk is not None and disk.exceeded() else ""


def _drain(descriptor: int, into: Capture, poller: select.poll | None) -> bool:
    data = os.read(descriptor, 1 << 18)
    if data:
        into.add(data)
    elif poller is not None:
        poller.unregister(descriptor)  # closed by the code, which may well go on
    return bool(data)


def _reap(job: Job) -> bool:
    """Collect the dead; false when there is no child at all."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        if pid == job.user and job.borrowed is None:
            job.status = status


def _kill_all(job: Job) -> None:
    """Kill until no process is left, including those that detached."""
    while _reap(job) or (job.borrowed is not None and job.status is None):
        for pid in targets(job):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if job.borrowed is not None and job.status is None:
            if select.select([job.borrowed.fate], [], [], 0.001)[0]:
                _hear(job)
        else:
            time.sleep(0.0005)


def targets(job: Job, freeze: bool = True) -> Iterator[int]:
    if job.stage.namespaces:
        yield -1
        return
    for pid in watch.descendants(job.proc, os.getpid()):
        if freeze:
            with contextlib.suppress(OSError):  # no more forks while we go through the list
                resource.prlimit(pid, resource.RLIMIT_NPROC, (0, 0))
        yield pid


def answer(job: Job, names: list[str], capture: list[Capture]) -> None:
    """Send how it ended, the output, and the files that may go."""
    if job.end == "abandoned":
        return
    found = collect(job.work_fd, names, job.limits, job.before) if job.user else Collected()
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu, peak = (job.fate.cpu_s, job.fate.peak) if job.fate else (0.0, 0)
    header = {
        "end": job.end,
        "status": job.status if job.cell is None else job.cell << 8,
        "wall": time.monotonic() - job.started if job.user else 0.0,
        "cpu": usage.ru_utime + usage.ru_stime + cpu,
        "peak": max(usage.ru_maxrss * 1024, job.peak, peak),
        "started": job.started,
        "full": _is_full(job),
        "streams": [[len(c.head), len(c.tail()), c.total] for c in capture],
        "files": [[name, size] for name, _, size in found.files],
        "refused": found.refused,
    }
    parts = [part for c in capture for part in (c.head, c.tail())]
    wire.send(job.conn, header, parts)
    for _, descriptor, size in found.files:
        found.stream(job.conn, descriptor, size)


def signal_all(job: Job, number: int) -> None:
    for pid in targets(job, freeze=False):
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def _is_full(job: Job) -> bool:
    """Whether a scratch file system has no byte or no inode left."""
    if not job.stage.namespaces:
        return False
    seen = [os.statvfs(path) for path in (*job.place.writable, jail.SHM)]
    return any(s.f_bavail == 0 or s.f_favail == 0 for s in seen)
