"""Init of one call, pid 1 of the jail: takes the request, starts the user process, watches it,
kills everything, and only then reads what was asked for."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import select
import signal
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, NoReturn

from rollouts.sandbox import jail, transfer
from rollouts.sandbox import syscalls as sc
from rollouts.sandbox.jail import Folders, JailPlan
from rollouts.sandbox.model import MIB, Limits, closed_folder
from rollouts.sandbox.transfer import ENDED, STARTED, Capture, Collected, Seen, collect, listing
from rollouts.sandbox.usage import Watches, descendants, own_pid
from rollouts.sandbox.user_process import BEGUN, CLOSED, FAILED, fork_of_init

EXIT = struct.Struct("=iQQ")  # wait status, processor time in microseconds, peak memory in bytes
_TICK = 0.05
_SET_UP_S = 60.0
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # all else is no fault of the inputs' size


@dataclass
class Job:
    """One call while it runs. `end` is "exit", or why it was ended."""

    conn: socket.socket
    plan: JailPlan
    folders: Folders
    proc: int
    work_fd: int
    # with namespaces: to the user process, and where the warm process tells how that ended, with
    # the processor time and peak memory of it and of those it waited for; else it is our own fork
    channel: socket.socket | None = None
    ending: socket.socket | None = None
    limits: Limits = field(default_factory=Limits)
    before: Seen = field(default_factory=Seen)
    watches: Watches | None = None
    caller: int = -1  # the code's standard input where that is a socket of the caller's
    ready: int = -1  # where the user process says how far it is
    said: bytes = b""
    user: int = 0
    status: int | None = None
    end: str = "exit"
    started: float = 0.0
    cpu_s: float = 0.0
    peak: int = 0

    @property
    def begun(self) -> bool:
        return self.said.startswith(CLOSED + BEGUN)

    @property
    def deadline(self) -> float:
        """The code's own, counted from its first line; before that, the one of our set-up."""
        return self.started + (self.limits.wall_s if self.begun else _SET_UP_S)


def run_init(plan: JailPlan, channel: socket.socket) -> NoReturn:
    """Make the jail, wait for a call on `channel`, run it, exit."""
    try:
        job = _ahead(plan, channel)
        if job is not None:
            _run(job)
    except (EOFError, OSError):
        pass  # the pool is gone or the call was given up: nobody is left to tell
    os._exit(0)


def _ahead(plan: JailPlan, channel: socket.socket) -> Job | None:
    """All that needs no request, done before there is one."""
    sc.prctl(sc.PR_SET_PDEATHSIG, signal.SIGKILL)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    jail.make_folders(plan, Limits())
    folders = jail.folders_of(plan)
    if not plan.namespaces:
        sc.prctl(sc.PR_SET_CHILD_SUBREAPER, 1)
    proc = os.dup(plan.proc) if plan.proc >= 0 else os.open("/proc", os.O_RDONLY)
    work = os.open(folders.work, os.O_RDONLY | os.O_DIRECTORY)
    user_channel, ending = _have_one_forked(plan, proc) if plan.namespaces else (None, None)
    sc.prctl(sc.PR_SET_DUMPABLE, 0)
    data, descriptors, _, _ = socket.recv_fds(channel, 64, 2)
    if not data or not descriptors:
        return None
    conn = socket.socket(fileno=descriptors[0])
    caller = descriptors[1] if len(descriptors) > 1 else -1
    return Job(conn, plan, folders, proc, work, user_channel, ending, caller=caller)


def _have_one_forked(plan: JailPlan, proc: int) -> tuple[socket.socket, socket.socket]:
    """The warm process forks a user process into our namespaces: our ends of two sockets."""
    channel, for_user = socket.socketpair()
    ending, for_warm = socket.socketpair()
    kinds = ("pid", "mnt", *(["net"] if plan.own_network else []))
    spaces = [os.open(f"self/ns/{k}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc) for k in kinds]
    with socket.socket(fileno=os.dup(plan.warm)) as warm, for_user, for_warm:
        socket.send_fds(warm, [b"user"], [for_user.fileno(), for_warm.fileno(), *spaces])
    for descriptor in spaces:
        os.close(descriptor)
    return channel, ending


def _run(job: Job) -> None:
    request = transfer.receive_header(job.conn)
    job.limits = Limits(**request["limits"])
    capture = [Capture(job.limits.output_kb * 1024) for _ in range(2)]
    try:
        stdin = _receive(job, request)
    except OSError as error:
        what = "input" if error.errno in _NO_ROOM else "no inputs"
        job.end = f"{what}: {error.strerror or error}"
    else:
        _play(job, request, stdin, capture)
    _answer(job, request["fetch"], capture)


def _play(job: Job, request: dict[str, Any], stdin: int, capture: list[Capture]) -> None:
    """Everything between the request and the answer."""
    pipes = [os.pipe(), os.pipe(), os.pipe()]
    given = [stdin, *(write for _, write in pipes)]
    try:
        _begin(job, request, given)
    except (OSError, EOFError) as error:
        job.end = f"no user process: {error}"
        return
    for descriptor in given:
        os.close(descriptor)
    reads, job.ready = [read for read, _ in pipes[:2]], pipes[2][0]
    supervise(job, reads, capture)
    _finish(job, reads, capture)
    _check_begun(job)


def _begin(job: Job, request: dict[str, Any], given: list[int]) -> None:
    """Let the waiting user process go, or fork one where there is none."""
    plan, folders, limits = job.plan, job.folders, job.limits
    if job.channel is None:
        job.watches = Watches(plan, folders, limits, job.proc, own_pid(job.proc))
        job.started = time.monotonic()
        job.user = os.fork()
        if job.user == 0:
            try:  # never returns into init's code, whatever happens
                fork_of_init(plan, folders, request, given, job.proc)
            finally:
                os._exit(1)
        return
    if not (said := job.channel.recv(64)):  # it is closed in
        raise EOFError("the warm process could not fork")
    job.user, outer = json.loads(said)
    pid = job.user if plan.own_proc else outer
    job.watches = Watches(plan, folders, limits, job.proc, pid, pid)
    if plan.own_proc:
        jail.seal_proc()
    job.started = time.monotonic()
    with job.channel as channel:
        socket.send_fds(channel, [b"go"], given)
        transfer.send(channel, {name: request[name] for name in ("limits", "seed", "argv")})


# What a call begins with: scratch sizes, shared directories, the code, its inputs, stdin


def _receive(job: Job, request: dict[str, Any]) -> int:
    """Write the inputs; the code itself comes first. Returns an open stdin."""
    folders: list[tuple[str, str]] = request["shared"]
    if job.plan.namespaces:
        names = ("work_mb", "work_files", "tmp_mb", "shm_mb")
        if any(getattr(job.limits, name) != getattr(Limits, name) for name in names):
            jail.mount_scratch(job.limits, again=True)
        if job.plan.shared:
            _mount_shared(job, folders)
    else:
        _link_shared(job, folders)
    work = job.folders.work
    for name, size in [("main.py", request["code"]), *request["files"]]:
        _receive_file(job, f"{work}/{name}", size)
    stdin = os.open(os.devnull, os.O_RDONLY) if job.caller < 0 else os.dup(job.caller)
    if request["stdin"]:
        path = f"{job.folders.tmp}/.stdin"
        _receive_file(job, path, request["stdin"])
        os.dup2(os.open(path, os.O_RDONLY), stdin)
        os.unlink(path)
    job.before = listing(job.work_fd)
    return stdin


def _mount_shared(job: Job, folders: Sequence[tuple[str, str]]) -> None:
    """Mount what this call may see: an overlay under the work directory, folders as they are."""
    work = job.folders.work
    for folder, name in sorted(folders):  # the work directory itself is the folder ""
        target = f"{work}/{folder}"
        os.makedirs(target, exist_ok=True)
        try:
            if folder:
                jail.read_only_overlay(name, target)
                continue
            jail.overlay(name)
        except OSError:  # before Linux 5.11: a plain mount, and links to its files
            _refuse_sockets(f"{jail.SHARED}/{name}")
            jail.bind_shared(name, target if folder else jail.GIVEN)
            if not folder:
                _mirror(jail.GIVEN, work)
        else:
            os.close(job.work_fd)
            job.work_fd = os.open(work, os.O_RDONLY | os.O_DIRECTORY)
    jail.hide_shared()


def _entries(top: str) -> Iterator[os.DirEntry[str]]:
    """All below a directory that is no model's work, each directory before what it holds."""
    with os.scandir(top) as found:
        for entry in found:
            yield entry
            if entry.is_dir(follow_symlinks=False):
                yield from _entries(entry.path)


def _refuse_sockets(top: str) -> None:
    """Raise unless a tree holds nothing that could be written to through a read-only mount."""
    for entry in _entries(top):
        if not (entry.is_symlink() or entry.is_file() or entry.is_dir()):
            what = f"the shared directory holds a socket or FIFO: {entry.name!r}"
            raise OSError(errno.EPERM, what)


def _link_shared(job: Job, folders: Sequence[tuple[str, str]]) -> None:
    """Without mounts: links to the files, and the right to read what they point to."""
    links, paths = 0, [job.plan.shared[name] for _, name in folders]
    for path, (folder, _) in zip(paths, folders, strict=True):
        try:
            links += _mirror(path, f"{job.folders.work}/{folder}")
        except PermissionError as error:
            shut = closed_folder(f"{path}/.") or error.filename or path
            why = (
                f"the shared directory {path} is closed to the user that model code runs as: "
                f"chmod o+rx {shut}, or put the files elsewhere"
            )
            raise OSError(error.errno, why) from None
    job.folders = replace(job.folders, shared=tuple(paths))
    job.limits = replace(job.limits, work_files=job.limits.work_files + links)


def _mirror(source: str, target: str) -> int:
    """Make the directories of `source` in `target`, and a link for each file; returns how many
    entries that took. Real directories, because walking through a tree passes links by."""
    os.makedirs(target, exist_ok=True)
    count = 0
    for entry in _entries(source):
        count += 1
        here = target + entry.path.removeprefix(source)
        if entry.is_dir(follow_symlinks=False):
            os.makedirs(here, exist_ok=True)
        else:
            os.symlink(entry.path, here)
    return count


def _receive_file(job: Job, path: str, size: int) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with _new_file(path) as file:
        while size:
            part = transfer.receive(job.conn, min(size, MIB))
            file.write(part)
            size -= len(part)


def _new_file(path: str) -> BinaryIO:
    """A new file in the place of a shared one; never through a link that a shared tree holds."""
    directory = os.path.dirname(path)
    if os.path.realpath(directory) != directory:
        raise OSError(errno.ELOOP, "an input file below a link of a shared directory")
    if os.path.lexists(path):
        os.unlink(path)
    return open(path, "xb")


# While the code runs: drain its output, look at what it uses; at its end leave nobody alive


def supervise(job: Job, pipes: list[int], capture: list[Capture]) -> None:
    """Drain, watch and wait until the user process ends or has to end."""
    poller, tick, pidfd = select.poll(), _TICK, -1
    ending = -1 if job.ending is None else job.ending.fileno()
    try:
        if job.ending is None:
            pidfd = os.pidfd_open(job.user)
    except OSError:
        tick = 0.01  # before Linux 5.3 only asking tells
    for descriptor in (*pipes, job.conn.fileno(), pidfd, ending, job.ready):
        if descriptor >= 0:
            poller.register(descriptor, select.POLLIN)
    if job.caller >= 0:
        poller.register(job.caller, 0)  # wakes us when the other end is closed
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
            elif descriptor == job.caller:
                job.end = "hung up"
            elif descriptor == ending:
                _hear_exit(job)
        _reap(job)
        if job.status is None and job.end == "exit":
            look = _look(job, look)
    if job.watches is not None:
        # Looks are far apart where looking is slow: what is held at the end is looked at always.
        if job.end == "exit" and (over := job.watches.over_at_the_end(job.deadline)):
            job.end = over
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
        _tell(job, STARTED)
    if not part:
        poller.unregister(job.ready)
        os.close(job.ready)
        job.ready = -1


def _tell(job: Job, word: bytes) -> None:
    with contextlib.suppress(OSError):  # the pool is gone: the connection shows it
        job.conn.send(word)


def _hear_exit(job: Job) -> None:
    """Take the warm process's word for how the user process ended."""
    if job.ending is None or job.status is not None:
        return
    said = job.ending.recv(EXIT.size)
    if len(said) < EXIT.size:
        job.end, job.status = "the warm process is gone", 0
        return
    job.status, cpu, peak = EXIT.unpack(said)
    job.cpu_s, job.peak = cpu / 1e6, max(job.peak, peak)


def _check_begun(job: Job) -> None:
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


def _finish(job: Job, pipes: list[int], capture: list[Capture]) -> None:
    """Leave nobody alive, then take what is still in the pipes."""
    while _reap(job) or (job.ending is not None and job.status is None):
        # everyone in a pid namespace of our own, else each process below us
        for pid in [-1] if job.plan.namespaces else descendants(job.proc, os.getpid()):
            if pid > 0:
                with contextlib.suppress(OSError):  # no forks while we go through the list
                    resource.prlimit(pid, resource.RLIMIT_NPROC, (0, 0))
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if job.ending is not None and job.status is None:
            if select.select([job.ending], [], [], 0.001)[0]:
                _hear_exit(job)
        else:
            time.sleep(0.0005)
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


def _reap(job: Job) -> bool:
    """Collect the dead; false when there is no child at all."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        if pid == job.user and job.ending is None:
            job.status = status


# The answer


def _answer(job: Job, names: list[str], capture: list[Capture]) -> None:
    """Send how it ended, the output, and the files that may go."""
    _tell(job, ENDED)
    if job.end == "abandoned":
        return
    found = collect(job.work_fd, names, job.limits, job.before) if job.user else Collected()
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    header = {
        "end": job.end,
        "status": job.status,
        "wall": time.monotonic() - job.started if job.user else 0.0,
        "cpu": usage.ru_utime + usage.ru_stime + job.cpu_s,
        "peak": max(usage.ru_maxrss * 1024, job.peak),
        "started": job.started,
        "full": _is_full(job),
        "streams": [[len(c.head), len(c.tail()), c.total] for c in capture],
        "files": [[name, size] for name, _, size in found.files],
        "refused": found.refused,
    }
    parts = [part for c in capture for part in (c.head, c.tail())]
    transfer.send(job.conn, header, parts)
    for _, descriptor, size in found.files:
        found.stream(job.conn, descriptor, size)


def _is_full(job: Job) -> bool:
    """Whether a scratch file system has no byte or no inode left."""
    if not job.plan.namespaces:
        return False
    seen = [os.statvfs(path) for path in (job.folders.work, job.folders.tmp, jail.SHM)]
    return any(s.f_bavail == 0 or s.f_favail == 0 for s in seen)
