"""The warm process: it has imported the stack and forks user processes into jails made by others.

A fork of the warm interpreter costs milliseconds (its page tables), a fork of the small launcher
does not. So init comes from the launcher, and only the user process comes from here: into the pid
namespace that init names, from where it enters init's mounts. This process never runs the model's
code. It waits for its children and tells each one's init how that ended.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import struct
from dataclasses import dataclass
from typing import NoReturn

from rollouts.sandbox import syscalls as sc
from rollouts.sandbox import user
from rollouts.sandbox.scene import Scene

_FATE = struct.Struct("=iQQ")  # wait status, processor time in microseconds, peak memory in bytes


@dataclass(frozen=True)
class Fate:
    """How a user process ended. `cpu_s` and `peak` include the children that it waited for."""

    status: int
    cpu_s: float
    peak: int


@dataclass
class Borrowed:
    """Init's side of a user process that was forked here. `pid` is the jail's own number for it,
    `outer` the one in the /proc that init reads."""

    channel: socket.socket
    fate: socket.socket
    pid: int = 0
    outer: int = 0

    def greet(self) -> None:
        """Wait until the process is closed in; EOFError when it could not be made."""
        said = self.channel.recv(64)
        if not said:
            raise EOFError("the warm process could not fork")
        self.pid, self.outer = json.loads(said)

    def ended(self) -> Fate:
        """What the warm process says about the end; EOFError when it cannot say any more."""
        said = self.fate.recv(_FATE.size)
        if len(said) < _FATE.size:
            raise EOFError("the warm process is gone")
        status, cpu, peak = _FATE.unpack(said)
        return Fate(status, cpu / 1e6, peak)


def ask(stage: Scene, proc: int) -> Borrowed:
    """In init: have a user process forked into our namespaces."""
    channel, for_user = socket.socketpair()
    fate, for_warm = socket.socketpair()
    kinds = ("pid", "mnt", *(["net"] if stage.own_network else []))
    spaces = [os.open(f"self/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc) for kind in kinds]
    with socket.socket(fileno=os.dup(stage.warm)) as warm, for_user, for_warm:
        descriptors = [for_user.fileno(), for_warm.fileno(), *spaces]
        socket.send_fds(warm, [b"user"], descriptors)
    for descriptor in spaces:
        os.close(descriptor)
    return Borrowed(channel, fate)


def serve(stage: Scene, requests: socket.socket) -> NoReturn:
    """Fork on request until the launcher is gone."""
    _Warm(stage, requests).forever()


def wake_on_children() -> tuple[socket.socket, socket.socket]:
    """A pair whose first end is readable after a SIGCHLD; keep both."""
    read, write = socket.socketpair()
    for end in (read, write):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, _nothing)
    signal.set_wakeup_fd(write.fileno(), warn_on_full_buffer=False)
    return read, write


def drain(wake: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError):
        while wake.recv(4096):
            pass


def forget_children() -> None:
    """In a fresh fork: undo `wake_on_children`."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _nothing(*_: object) -> None:
    """A handler has to exist for the wake-up descriptor to be written to."""


class _Warm:
    def __init__(self, stage: Scene, requests: socket.socket) -> None:
        self.stage, self.requests = stage, requests
        path, at = ("/proc/self/ns/pid", None) if stage.own_proc else ("self/ns/pid", stage.proc)
        self.own_pid_ns = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=at)
        self.running: dict[int, socket.socket] = {}
        self.wake, self.write = wake_on_children()

    def forever(self) -> NoReturn:
        poller = select.poll()
        poller.register(self.requests, select.POLLIN)
        poller.register(self.wake, select.POLLIN)
        while True:
            for descriptor, _ in poller.poll():
                if descriptor == self.wake.fileno():
                    drain(self.wake)
                elif not self._request():
                    os._exit(0)
            self._reap()

    def _request(self) -> bool:
        data, descriptors, _, _ = socket.recv_fds(self.requests, 16, 5)
        if not data:
            return False
        channel, fate, pid_ns, *spaces = descriptors
        pid = -1
        try:
            sc.setns(pid_ns, sc.CLONE_NEWPID)
            pid = sc.fork()
            if pid == 0:
                self._become_user(channel, spaces)
        except OSError:
            pass  # that init has died meanwhile: closing its descriptors is the answer
        sc.setns(self.own_pid_ns, sc.CLONE_NEWPID)
        if pid > 0:
            self.running[pid] = socket.socket(fileno=os.dup(fate))
        for descriptor in descriptors:
            os.close(descriptor)
        return True

    def _become_user(self, channel: int, spaces: list[int]) -> NoReturn:
        try:
            forget_children()
            sc.close_from_except({channel, self.stage.proc, *spaces})
            for space in spaces:
                sc.setns(space, 0)
                os.close(space)
            gc.enable()
            user.stand_by(self.stage, channel)
        finally:
            os._exit(1)

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            fate = self.running.pop(pid, None)
            if fate is not None:
                cpu = int((usage.ru_utime + usage.ru_stime) * 1e6)
                with fate, contextlib.suppress(OSError):  # init may be gone already
                    fate.send(_FATE.pack(status, cpu, usage.ru_maxrss * 1024))
