"""The launcher's loop: hand each call to a jail that was forked ahead, fork the next one."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, NoReturn

from rollouts.sandbox import inside, supervise, warm, watch, wire
from rollouts.sandbox import syscalls as sc
from rollouts.sandbox.job import timed_out
from rollouts.sandbox.results import remove_tree
from rollouts.sandbox.scene import Scene

# Init enforces the deadline itself; this is for an init that does not. It counts from what init
# says: before the code begins and once all of it is dead, only the pool's patience counts.
_GRACE_S = 30.0


@dataclass
class Jail:
    """One forked init. `deadline` is none while its code does not run."""

    pid: int
    channel: socket.socket
    deadline: float | None = None
    call: int = -1
    wall: float = 0.0
    conn: int = -1  # the call's own connection, for the answer that a late init does not give
    late: bool = False


def forever(
    control: socket.socket, stage: Scene, request: dict[str, Any], partner: int = 0
) -> NoReturn:
    """Serve until the pool closes its end or the warm process, our `partner`, has died."""
    loop = _Loop(control, stage, request["spares"], partner)
    while loop.turn():
        pass
    loop.end()
    os._exit(0)


class _Loop:
    def __init__(self, control: socket.socket, stage: Scene, spares: int, partner: int) -> None:
        self.control, self.stage, self.wanted, self.partner = control, stage, spares, partner
        self.own_pid_ns = os.open("/proc/self/ns/pid", os.O_RDONLY) if stage.own_proc else -1
        if stage.namespaces and not stage.own_proc:
            self.own_pid_ns = os.open("self/ns/pid", os.O_RDONLY, dir_fd=stage.proc)
        self.spare: deque[Jail] = deque()
        self.running: dict[int, Jail] = {}
        self.wake, self.write = warm.wake_on_children()

    def turn(self) -> bool:
        """One round; false when the pool has gone."""
        while len(self.spare) < self.wanted:
            self.spare.append(self._fork())
        poller = select.poll()
        poller.register(self.control, select.POLLIN)
        poller.register(self.wake, select.POLLIN)
        talking = {j.channel.fileno(): j for j in self.running.values() if j.channel.fileno() >= 0}
        for descriptor in talking:
            poller.register(descriptor, select.POLLIN)
        for descriptor, _ in poller.poll(self._patience()):
            if descriptor == self.wake.fileno():
                warm.drain(self.wake)
            elif descriptor in talking:
                _hear(talking[descriptor])
            elif not self._message():
                return False
        self._enforce()
        return self._reap()

    def _patience(self) -> float | None:
        ends = [j.deadline for j in self.running.values() if j.deadline is not None]
        return max(0.0, min(ends) - time.monotonic()) * 1000 + 1 if ends else None

    def _message(self) -> bool:
        data, descriptors, _, _ = socket.recv_fds(self.control, 1 << 16, 1)
        if not data:
            return False
        message: dict[str, Any] = json.loads(data)
        if message["op"] == "kill":
            for jail in self.running.values():
                if jail.call == message["id"]:
                    _kill(jail.pid)
        elif descriptors:
            jail = self.spare.popleft() if self.spare else self._fork()
            jail.call = message["id"]
            jail.wall, jail.conn = message["wall"], descriptors[0]
            self.running[jail.pid] = jail
            with contextlib.suppress(OSError):  # a dead spare: the pool sees its end closed
                socket.send_fds(jail.channel, [b"call"], descriptors)
            descriptors = descriptors[1:]
        for descriptor in descriptors:
            os.close(descriptor)
        return True

    def _fork(self) -> Jail:
        ours, theirs = socket.socketpair()
        if self.stage.namespaces:
            sc.unshare(sc.CLONE_NEWPID)
        pid = sc.fork() if self.stage.namespaces else os.fork()
        if pid == 0:
            self._become_init(theirs)
        if self.stage.namespaces:
            # a second unshare of the pid namespace fails unless we come back to our own
            sc.setns(self.own_pid_ns, sc.CLONE_NEWPID)
        theirs.close()
        return Jail(pid, ours)

    def _become_init(self, channel: socket.socket) -> NoReturn:
        try:
            warm.forget_children()
            kept = {channel.fileno(), self.stage.proc, self.stage.warm}
            sc.close_from_except(kept)
            inside.serve(self.stage, channel)
        finally:
            os._exit(1)

    def _reap(self) -> bool:
        """Collect the dead; false when the warm process is among them."""
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return True
            if pid == self.partner:
                return False
            if (ended := self.running.pop(pid, None)) is not None:
                _close(ended)
            for jail in [j for j in self.spare if j.pid == pid]:
                self.spare.remove(jail)
                jail.channel.close()
            if not self.stage.namespaces:
                sweep_orphans(keep={*self.running, *(j.pid for j in self.spare)})
                remove_tree(f"{self.stage.base}/{pid}")

    def _enforce(self) -> None:
        now = time.monotonic()
        for jail in self.running.values():
            if jail.deadline is not None and now > jail.deadline:
                _kill(jail.pid)
                jail.deadline, jail.late = None, True

    def end(self) -> None:
        for pid in [*(j.pid for j in self.spare), *self.running, *filter(None, [self.partner])]:
            _kill(pid)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, 0):
                pass


def _hear(jail: Jail) -> None:
    """Init's word: the code begins, or nothing of it is alive any more."""
    said = jail.channel.recv(16)
    if supervise.STARTED in said:
        jail.deadline = time.monotonic() + jail.wall + _GRACE_S
    if supervise.ENDED in said:
        jail.deadline = None
    if not said:
        jail.channel.close()


def _close(jail: Jail) -> None:
    """After init's death. Where it was late, its code had not ended at the deadline, and whatever
    it did to make init late must not make that look like a lost jail."""
    jail.channel.close()
    if jail.conn < 0:
        return
    with socket.socket(fileno=jail.conn) as conn:
        if jail.late:
            with contextlib.suppress(OSError):
                wire.send(conn, timed_out(jail.wall))


def _kill(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)


def sweep_orphans(keep: set[int] | None = None) -> None:
    """Without a pid namespace: kill what a dead init left, which has come to us as a subreaper."""
    alive = keep or set()
    try:
        proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    try:
        for _ in range(200):
            children = watch.children(proc, os.getpid())
            lost = [p for p in children if p not in alive]
            if not lost:
                return
            for pid in [*lost, *(d for p in lost for d in watch.descendants(proc, p))]:
                _kill(pid)
            for pid in lost:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(0.001)
    finally:
        os.close(proc)
