"""While the code runs: drain its output, look at what it uses; at its end leave nobody alive."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import time
from collections.abc import Iterator

from rollouts.sandbox import watch
from rollouts.sandbox.job import Job
from rollouts.sandbox.orders import BEGUN, CLOSED, FAILED
from rollouts.sandbox.text import Capture

_TICK = 0.05
STARTED, ENDED = b"s", b"e"  # to the launcher: the code begins; nobody of the call is alive


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
    for descriptor in [*watched, *([job.ready] if job.ready >= 0 else [])]:
        poller.register(descriptor, select.POLLIN)
    look = job.started + _TICK
    while job.status is None and job.end == "exit":
        events = poller.poll(max(0, min(tick, job.deadline - time.monotonic())) * 1000)
        for descriptor, _ in events:
            if descriptor in pipes:
                _drain(descriptor, capture[pipes.index(descriptor)], poller)
            elif descriptor == job.conn.fileno():
                job.end = "abandoned"
            elif descriptor == job.ready:
                _hear_ready(job, poller)
            elif descriptor == control:
                _cell_ended(job, control, poller)
            elif descriptor == fate:
                hear(job)
        reap(job)
        if job.status is None and job.end == "exit":
            look = _look(job, look)
    if job.watches is not None:
        # Looks are far apart where looking is slow: what is held at the end is looked at always.
        ended = job.end in ("exit", "cell")
        if ended and (over := job.watches.over_at_the_end(job.deadline)):
            job.end, job.cell = over, None
        job.peak = max(job.peak, job.watches.memory.peak)
    if pidfd >= 0:
        os.close(pidfd)


def _look(job: Job, due: float) -> float:
    """Compare with the limits when it is `due`; when to do so next. A look never outlasts the
    deadline, so that code cannot make its own timeout look like a lost jail, and the next one
    comes the later the longer this one took."""
    now = time.monotonic()
    if now >= job.deadline:
        job.end = "timeout"
    elif now >= due and job.watches is not None:
        job.end = job.watches.exceeded(job.deadline) or job.end
        took = time.monotonic() - now
        return now + took + max(_TICK, 2 * took)
    return due


def _hear_ready(job: Job, poller: select.poll) -> None:
    """The user process's word that the code begins: from here on its time counts."""
    part = os.read(job.ready, 4096)
    begun = job.begun
    job.said += part
    if job.begun and not begun:
        job.started = time.monotonic()
        _tell_launcher(job, STARTED)
    if not part:
        poller.unregister(job.ready)
        os.close(job.ready)
        job.ready = -1


def check_begun(job: Job) -> None:
    """Without the user process's word that its jail was closed and that our own set-up went well,
    nothing it did counts. All that could write that word are dead, or have closed it."""
    if job.ready >= 0:
        os.set_blocking(job.ready, False)
        with contextlib.suppress(BlockingIOError):
            while part := os.read(job.ready, 4096):
                job.said += part
        os.close(job.ready)
        job.ready = -1
    if job.end == "abandoned" or job.said == CLOSED + BEGUN:
        return
    _, failed, reason = job.said.partition(FAILED)
    if failed:
        job.end = f"set-up failed: {reason.decode('utf-8', 'replace')}"
    elif not job.said.startswith(CLOSED):
        job.end = "open jail"
    else:
        job.end = "set-up ended early" if job.end == "exit" else f"{job.end} during set-up"


def _tell_launcher(job: Job, word: bytes) -> None:
    with contextlib.suppress(OSError):  # the launcher is gone: then so are we soon
        job.launcher.send(word)


def hear(job: Job) -> None:
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
    kill_all(job)
    _tell_launcher(job, ENDED)
    drain_rest(pipes, capture)


def drain_rest(pipes: list[int], capture: list[Capture]) -> None:
    for descriptor, into in zip(pipes, capture, strict=True):
        os.set_blocking(descriptor, False)
        with contextlib.suppress(BlockingIOError):
            while _drain(descriptor, into, None):
                pass


def _drain(descriptor: int, into: Capture, poller: select.poll | None) -> bool:
    data = os.read(descriptor, 1 << 18)
    if data:
        into.add(data)
    elif poller is not None:
        poller.unregister(descriptor)  # closed by the code, which may well go on
    return bool(data)


def reap(job: Job) -> bool:
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


def kill_all(job: Job) -> None:
    """Kill until no process is left, including those that detached."""
    while reap(job) or (job.borrowed is not None and job.status is None):
        for pid in targets(job):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if job.borrowed is not None and job.status is None:
            if select.select([job.borrowed.fate], [], [], 0.001)[0]:
                hear(job)
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


def signal_all(job: Job, number: int) -> None:
    for pid in targets(job, freeze=False):
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def stop_all(job: Job) -> None:
    """Stop every process, those included that were born meanwhile."""
    for _ in range(100):
        signal_all(job, signal.SIGSTOP)
        members = job.watches.members if job.watches is not None else None
        if members is None or all(map(members.stopped, members.pids())):
            return
        time.sleep(0.001)
