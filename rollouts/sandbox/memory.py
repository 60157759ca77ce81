"""The memory of all processes of a call together, what the kernel holds for them included.

Each look begins with what is cheap to read and never too low. Only when that goes beyond the limit
are the parts read exactly, one after the other, until the sum fits or nothing is left to refine.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from rollouts.sandbox import watch
from rollouts.sandbox.filter import SHARED_BYTES
from rollouts.sandbox.jail import BACKLOG
from rollouts.sandbox.watch import Shut

_PAGE = os.sysconf("SC_PAGE_SIZE")
_MAPPING_BYTES = 200  # what the kernel holds for each mapping
_MOST_MAPPINGS = 65_600  # of one process; the kernel's own bound
_WATCHABLE = 1_000_000  # mappings of all processes: beyond these, looking takes too long
_WATCHABLE_LOCKS = 20_000
_ANONYMOUS = re.compile(
    rb"^(\w+)-(\w+) [-r][-w][-x]s \w+ (\S+) (\d+) +/dev/zero \(deleted\)$", re.MULTILINE
)
_LISTENS = 0x10000  # in the flags of /proc/net/unix


T = TypeVar("T")


class _Late(Exception):
    """The look took longer than it may; the deadline of the call decides."""


@dataclass(frozen=True)
class _Use:
    size: int  # all mappings
    resident: int
    private: int  # what RLIMIT_DATA counts


def _statm(proc: int, task: str) -> _Use:
    fields = watch.read(proc, f"{task}/statm", 4096).split()
    if len(fields) < 6:
        return _Use(0, 0, 0)
    return _Use(*(int(fields[i]) * _PAGE for i in (0, 1, 5)))


def _memory_task(proc: int, pid: int) -> tuple[str, _Use]:
    """The task to ask about a process's memory: its first thread, or another when that one has
    exited. The process then looks like an empty zombie while its threads hold all they had."""
    use = _statm(proc, str(pid))
    if use.size == 0:
        with contextlib.suppress(OSError):
            for tid in watch.names(proc, f"{pid}/task"):
                other = _statm(proc, f"{pid}/task/{tid}")
                if other.size:
                    return f"{pid}/task/{tid}", other
    return str(pid), use


class MemoryWatch:
    """Compares the sum with the limit; `peak` is the largest sum seen."""

    def __init__(self, proc: int, limit: int, model: int) -> None:
        """`model` is a process as the members begin: what it has mapped is not theirs. Make this
        before the code runs."""
        self.proc, self.limit = proc, limit
        self.plain = _statm(proc, str(model))
        self.peak = 0
        self.socket_bytes = _queue_bytes()

    def exceeded(self, pids: list[int], until: float) -> bool:
        """Whether `pids` hold more than the limit; false when that is not known by `until`."""
        uses = dict(_memory_task(self.proc, pid) for pid in pids)
        descriptors = {pid: _descriptors(self.proc, pid) for pid in pids}
        resident = sum(use.resident for use in uses.values())
        self.peak = max(self.peak, min(resident, self.limit))
        if self._too_many_locks(pids):
            return True
        parts = [
            (
                sum(descriptors.values()) * self.socket_bytes * (BACKLOG + 2),
                lambda: self._sockets(descriptors, until),
            ),
            (sum(map(self._most_tables, uses.values())), lambda: self._tables(uses, until)),
            (sum(map(self._most_mapped, uses.values())), lambda: self._mapped(uses, until)),
            (resident, lambda: self._proportional(uses, until)),
        ]
        try:
            return self._sum(parts)
        except _Late:
            return False

    def _sum(self, parts: list[tuple[int, Callable[[], int]]]) -> bool:
        total = sum(most for most, _ in parts)
        for most, exact in parts:
            if total <= self.limit:
                return False
            found = exact()
            total += min(found, most) - most
            if found > self.limit:
                break  # the other parts cannot bring it down
        if total > self.limit:
            self.peak = max(self.peak, total)
        return total > self.limit

    def _grown(self, use: _Use) -> int:
        return max(0, use.size - self.plain.size)

    def _most_tables(self, use: _Use) -> int:
        """Page tables map the memory, 8 bytes a page: a small file mapped often is gigabytes."""
        return self._grown(use) // 512

    def _tables(self, uses: dict[str, _Use], until: float) -> int:
        total = 0
        for task, use in _timely(uses.items(), until):
            if most := self._most_tables(use):
                with contextlib.suppress(Shut):
                    text = watch.read(self.proc, f"{task}/status", 65536)
                    told = text.partition(b"\nVmPTE:")[2].split(None, 1)
                    most = min(most, int(told[0]) * 1024 if told else 0)
                total += most
        return total

    def _most_mapped(self, use: _Use) -> int:
        """The kernel's part of the mappings, and shared memory without a file: at most
        SHARED_BYTES for a mapping of one page, since pages stay when they are unmapped."""
        mapped = min(self._grown(use) // _PAGE, _MOST_MAPPINGS) * _MAPPING_BYTES
        plain = self.plain.size - self.plain.private
        shared = max(0, use.size - use.private - plain)
        return mapped + shared // _PAGE * SHARED_BYTES

    def _mapped(self, uses: dict[str, _Use], until: float) -> int:
        """The same from the tables of mappings; each shared object once."""
        objects: dict[tuple[bytes, bytes], int] = {}
        count = unread = 0
        for task, use in _timely(uses.items(), until):
            if not (most := self._most_mapped(use)):
                continue
            try:
                text = watch.read(self.proc, f"{task}/maps", 1 << 24)
            except Shut:
                unread += most
                continue
            count += text.count(b"\n")
            if count > _WATCHABLE:
                return self.limit + 1
            for start, end, device, inode in _ANONYMOUS.findall(text):
                size = max(int(end, 16) - int(start, 16), SHARED_BYTES)
                key = (device, inode)
                objects[key] = max(objects.get(key, 0), size)
        return unread + sum(objects.values()) + count * _MAPPING_BYTES

    def _proportional(self, uses: dict[str, _Use], until: float) -> int:
        """PSS, shared memory left out; all that is resident where /proc does not tell."""
        total = 0
        for task, use in _timely(uses.items(), until):
            try:
                text = watch.read(self.proc, f"{task}/smaps_rollup", 65536)
            except Shut:
                total += use.resident
                continue
            for line in text.splitlines():
                if line.startswith(b"Pss:"):
                    total += int(line.split()[1]) * 1024
                elif line.startswith(b"Pss_Shmem:"):
                    total -= int(line.split()[1]) * 1024
        return total

    def _sockets(self, descriptors: dict[int, int], until: float) -> int:
        """What unread data may fill: each socket's queue, and those of the connections that wait
        at a listening one. Where descriptors are not shown, each counts as one that listens."""
        found: set[bytes] = set()
        unread = 0
        for pid, count in _timely(descriptors.items(), until):
            try:
                for name in watch.names(self.proc, f"{pid}/fd"):
                    target = os.readlink(f"{pid}/fd/{name}", dir_fd=self.proc)
                    if target.startswith("socket:["):
                        found.add(target[8:-1].encode())
            except PermissionError:
                unread += count
            except OSError:
                continue  # gone meanwhile
        listening = found & self._listening() if found else set[bytes]()
        full = len(found) + (len(listening) + unread) * (BACKLOG + 2)
        return full * self.socket_bytes

    def _listening(self) -> set[bytes]:
        try:
            table = watch.read(self.proc, "self/net/unix", 1 << 24)
        except Shut:
            return set()
        rows = [line.split() for line in table.splitlines()[1:]]
        return {row[6] for row in rows if len(row) > 6 and int(row[3], 16) & _LISTENS}

    def _too_many_locks(self, pids: list[int]) -> bool:
        """Locks on files cost the kernel memory that nothing else bounds. Only those count that are
        ours by number: the table also shows some of other people's."""
        try:
            text = watch.read(self.proc, "locks", _WATCHABLE_LOCKS * 128)
        except Shut:
            return False
        if text.count(b"\n") < _WATCHABLE_LOCKS:
            return False
        ours = {str(pid).encode() for pid in pids}
        rows = [line.split() for line in text.splitlines()]
        held = sum(len(row) > 5 and (row[4] in ours or row[5] in ours) for row in rows)
        return held >= _WATCHABLE_LOCKS // 2


def _timely(items: Iterable[T], until: float) -> Iterator[T]:
    for item in items:
        if time.monotonic() > until:
            raise _Late
        yield item


def _queue_bytes() -> int:
    """What one socket's unread data may take: its bound, and one message that goes beyond it."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        return ours.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) * 3 // 2


def _descriptors(proc: int, pid: int) -> int:
    try:
        size = os.stat(f"{pid}/fd", dir_fd=proc).st_size
        return size or len(watch.names(proc, f"{pid}/fd"))  # the size tells since Linux 6.2
    except OSError:
        return 0
