"""What the processes of a call use together: who belongs to it, memory, processor time, disk.

All of it is read from /proc, because control groups are rarely ours to make. `proc` is a directory
descriptor: the jail's own /proc, or the outer one where a fresh /proc is refused. Then the members
are found by parent, which is closed because orphans come to init.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import socket
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from rollouts.sandbox.jail import BACKLOG, Folders, JailPlan
from rollouts.sandbox.model import MIB, Limits
from rollouts.sandbox.syscalls import SHARED_BYTES

_PAGE = os.sysconf("SC_PAGE_SIZE")
_MAPPING_BYTES = 200  # what the kernel holds for each mapping
_MOST_MAPPINGS = 65_600  # of one process; the kernel's own bound
_WATCHABLE = 1_000_000  # mappings of all processes: beyond these, looking takes too long
_WATCHABLE_LOCKS = 20_000
_ANONYMOUS = re.compile(
    rb"^(\w+)-(\w+) [-r][-w][-x]s \w+ (\S+) (\d+) +/dev/zero \(deleted\)$", re.MULTILINE
)
_LISTENS = 0x10000  # in the flags of /proc/net/unix
_TICKS = os.sysconf("SC_CLK_TCK")
_WINDOW_S = 0.5
_LOWEST = 19
MOST_BUSY = 1.5  # processors of a call, beyond which all else on the node goes first
_DELETED = re.compile(rb"^\w+-\w+ \S+ \w+ \S+ (\d+) +(/.*) \(deleted\)$", re.M)
Sizes = dict[int, int]  # bytes by inode; some file systems tell two device numbers for one file
T = TypeVar("T")


class Shut(Exception):
    """A file of /proc that exists and that we may not read."""


def read_proc(proc: int, name: str, limit: int = 1 << 22) -> bytes:
    """A file of /proc; nothing where the process is gone or on its way out."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)
    except PermissionError:
        raise Shut(name) from None
    except OSError:
        return b""
    try:
        parts: list[bytes] = []
        while limit > 0 and (part := os.read(descriptor, 1 << 16)):
            parts.append(part)
            limit -= len(part)
        return b"".join(parts)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def own_threads(proc: int) -> int:
    """How many threads we have."""
    return int(read_proc(proc, "self/stat", 4096).rpartition(b")")[2].split()[17])


def own_pid(proc: int) -> int:
    """Our number in that /proc, which may be another pid namespace's."""
    return int(os.readlink("self", dir_fd=proc))


def _parents(proc: int) -> dict[int, int]:
    found: dict[int, int] = {}
    for name in os.listdir(proc):
        if name.isdigit():
            try:
                fields = read_proc(proc, f"{name}/stat", 4096).rpartition(b")")[2].split()
            except Shut:
                continue  # /proc mounted with hidepid: not one of ours
            if len(fields) > 1:
                found[int(name)] = int(fields[1])
    return found


def children(proc: int, parent: int) -> list[int]:
    return [pid for pid, above in _parents(proc).items() if above == parent]


def descendants(proc: int, root: int) -> list[int]:
    """Every process below `root`, dead but unreaped ones included."""
    parents, found, frontier = _parents(proc), list[int](), {root}
    while frontier:
        frontier = {pid for pid, parent in parents.items() if parent in frontier} - {root}
        frontier -= set(found)
        found += frontier
    return found


def list_proc(proc: int, name: str) -> list[str]:
    """The entries of a directory of /proc."""
    descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=proc)
    try:
        return os.listdir(descriptor)
    finally:
        os.close(descriptor)


class _Late(Exception):
    """The look took longer than it may; the deadline of the call decides."""


class _Use(NamedTuple):
    size: int  # all mappings
    resident: int
    private: int  # what RLIMIT_DATA counts


def _statm(proc: int, task: str) -> _Use:
    fields = read_proc(proc, f"{task}/statm", 4096).split()
    if len(fields) < 6:
        return _Use(0, 0, 0)
    return _Use(*(int(fields[i]) * _PAGE for i in (0, 1, 5)))


def _memory_task(proc: int, pid: int) -> tuple[str, _Use]:
    """The task to ask about a process's memory: its first thread, or another when that one has
    exited. The process then looks like an empty zombie while its threads hold all they had."""
    use = _statm(proc, str(pid))
    if use.size == 0:
        with contextlib.suppress(OSError):
            for tid in list_proc(proc, f"{pid}/task"):
                other = _statm(proc, f"{pid}/task/{tid}")
                if other.size:
                    return f"{pid}/task/{tid}", other
    return str(pid), use


class MemoryWatch:
    """The memory of all processes of a call together, what the kernel holds for them included.

    Each look begins with what is cheap to read and never too low. Only when that goes beyond the
    limit are the parts read exactly, one after the other, until the sum fits or nothing is left to
    refine. `peak` is the largest sum seen, in bytes.
    """

    def __init__(self, proc: int, limit: int, like: int) -> None:
        """`like` is a process as the members begin: what it has mapped is not theirs. Make this
        before the code runs."""
        self.proc, self.limit = proc, limit
        self.plain = _statm(proc, str(like))
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
        most_sockets = sum(descriptors.values()) * self.socket_bytes * (BACKLOG + 2)
        parts: list[tuple[int, Callable[[], int]]] = [
            (most_sockets, lambda: self._sockets(descriptors, until)),
            (sum(map(self._most_tables, uses.values())), lambda: self._tables(uses, until)),
            (sum(map(self._most_mapped, uses.values())), lambda: self._mapped(uses, until)),
            (resident, lambda: self._proportional(uses, until)),
        ]
        total = sum(most for most, _ in parts)
        for most, exact in parts:
            if total <= self.limit:
                return False
            try:
                found = exact()
            except _Late:
                return False
            total += min(found, most) - most
            if found > self.limit:
                break  # the other parts cannot bring it down
        if total > self.limit:
            self.peak = max(self.peak, total)
        return total > self.limit

    def _most_tables(self, use: _Use) -> int:
        """Page tables map the memory, 8 bytes a page: a small file mapped often is gigabytes."""
        return max(0, use.size - self.plain.size) // 512

    def _tables(self, uses: dict[str, _Use], until: float) -> int:
        total = 0
        for task, use in _timely(uses.items(), until):
            if most := self._most_tables(use):
                with contextlib.suppress(Shut):
                    text = read_proc(self.proc, f"{task}/status", 65536)
                    told = text.partition(b"\nVmPTE:")[2].split(None, 1)
                    most = min(most, int(told[0]) * 1024 if told else 0)
                total += most
        return total

    def _most_mapped(self, use: _Use) -> int:
        """The kernel's part of the mappings, and shared memory without a file: at most
        SHARED_BYTES for a mapping of one page, since pages stay when they are unmapped."""
        grown = max(0, use.size - self.plain.size)
        mapped = min(grown // _PAGE, _MOST_MAPPINGS) * _MAPPING_BYTES
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
                text = read_proc(self.proc, f"{task}/maps", 1 << 24)
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
                text = read_proc(self.proc, f"{task}/smaps_rollup", 65536)
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
                for name in list_proc(self.proc, f"{pid}/fd"):
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
            table = read_proc(self.proc, "self/net/unix", 1 << 24)
        except Shut:
            return set()
        rows = [line.split() for line in table.splitlines()[1:]]
        return {row[6] for row in rows if len(row) > 6 and int(row[3], 16) & _LISTENS}

    def _too_many_locks(self, pids: list[int]) -> bool:
        """Locks on files cost the kernel memory that nothing else bounds. Only those count that are
        ours by number: the table also shows some of other people's."""
        try:
            text = read_proc(self.proc, "locks", _WATCHABLE_LOCKS * 128)
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
        return size or len(list_proc(proc, f"{pid}/fd"))  # the size tells since Linux 6.2
    except OSError:
        return 0


@dataclass
class ProcessorWatch:
    """Sums processor seconds over all processes, which the kernel bounds for each one alone, and
    sends those who take more than one processor to the back.

    The sum is the larger of two, because a process that nobody waits for takes its time with it:
    what the living and those who waited tell, and the latest seen of everyone who ever lived.
    """

    proc: int
    limit_s: float
    spent_s: float = 0.0
    _alive: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    _dead: int = 0
    _mark: tuple[float, float] = (0.0, 0.0)

    def exceeded(self, pids: list[int]) -> bool:
        """Whether all of `pids` and those before them have used more than the limit."""
        waited, alive = 0, dict[tuple[int, int], int]()
        for pid in pids:
            with contextlib.suppress(Shut):
                fields = read_proc(self.proc, f"{pid}/stat", 4096).rpartition(b")")[2].split()
                if len(fields) > 19:
                    own = int(fields[11]) + int(fields[12])
                    waited += own + int(fields[13]) + int(fields[14])
                    alive[pid, int(fields[19])] = own
        self._dead += sum(ticks for key, ticks in self._alive.items() if key not in alive)
        self._alive = alive
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        told = waited / _TICKS + usage.ru_utime + usage.ru_stime
        seen = (self._dead + sum(alive.values())) / _TICKS
        self.spent_s = max(self.spent_s, told, seen)
        self._yield_to_others(pids)
        return self.spent_s > self.limit_s

    def _yield_to_others(self, pids: list[int]) -> None:
        """Where more than one processor is busy, all else on the node goes first."""
        now = time.monotonic()
        since, before = self._mark
        if now - since < _WINDOW_S:
            return
        if since and (self.spent_s - before) / (now - since) > MOST_BUSY:
            for thread in [t for pid in pids for t in self._threads(pid)]:
                with contextlib.suppress(OSError):
                    os.setpriority(os.PRIO_PROCESS, thread, _LOWEST)
        self._mark = (now, self.spent_s)

    def _threads(self, pid: int) -> list[int]:
        """Their numbers in our own pid namespace, whichever one that /proc shows."""
        try:
            tasks = list_proc(self.proc, f"{pid}/task")
            texts = [read_proc(self.proc, f"{pid}/task/{name}/status") for name in tasks]
        except (OSError, Shut):
            return []
        lines = [text.partition(b"\nNSpid:")[2].partition(b"\n")[0].split() for text in texts]
        return [int(numbers[-1]) for numbers in lines if numbers]


class DiskWatch:
    """What a call writes where no mount has a size: its real directories, and files without a name.

    `sizes` gives the most bytes of each directory by its path, `files` the most entries. A file
    that has lost its name is counted as long as anybody holds it: by a descriptor, which tells its
    size, or by a mapping, which does not. Then the size it had when it was last seen counts, or the
    largest that one file may have.
    """

    def __init__(self, proc: int, folders: Folders, limits: Limits) -> None:
        self.proc, self.files = proc, limits.work_files
        self.sizes = {folders.work: limits.work_mb * MIB, folders.tmp: limits.tmp_mb * MIB}
        self.file_bytes = min(limits.file_mb, limits.work_mb) * MIB
        self.known: Sizes = {}

    def exceeded(self, pids: list[int]) -> bool:
        """Whether one directory holds too much, the nameless files of all `pids` being counted."""
        named: Sizes = {}
        try:
            found = {path: self._tree(path, named) for path in self.sizes}
        except OSError:
            # shut, or too deep to name: whoever holds a descriptor can still write there
            return True
        nameless = self._nameless(pids, named)
        self.known = named | nameless
        hidden = sum(nameless.values())
        return any(
            size + hidden > self.sizes[path] or count > self.files
            for path, (size, count) in found.items()
        )

    def _tree(self, top: str, named: Sizes) -> tuple[int, int]:
        """Bytes and entries below `top`, stopping soon after the most. Follows no link."""
        size, count, left = 0, 0, [top]
        while left and count <= self.files:
            entries: list[os.DirEntry[str]] = []
            with (
                contextlib.suppress(FileNotFoundError, NotADirectoryError),  # removed meanwhile
                os.scandir(left.pop()) as found,
            ):
                entries = list(found)
            for entry in entries:
                count += 1
                with contextlib.suppress(FileNotFoundError):
                    info = entry.stat(follow_symlinks=False)
                    size += info.st_blocks * 512
                    if stat.S_ISREG(info.st_mode):
                        named[info.st_ino] = info.st_blocks * 512
                    elif stat.S_ISDIR(info.st_mode):
                        left.append(entry.path)
        return size, count

    def _nameless(self, pids: list[int], named: Sizes) -> Sizes:
        found: Sizes = {}
        for pid in pids:
            with contextlib.suppress(OSError):  # the process ended while we looked
                for name in list_proc(self.proc, f"{pid}/fd"):
                    info = os.stat(f"{pid}/fd/{name}", dir_fd=self.proc)
                    if stat.S_ISREG(info.st_mode) and info.st_nlink == 0:
                        found[info.st_ino] = info.st_blocks * 512
        tops = tuple(os.fsencode(top) + b"/" for top in self.sizes)
        for pid in pids:
            text = b""
            with contextlib.suppress(Shut):
                text = read_proc(self.proc, f"{pid}/maps", 1 << 24)
            for number, path in _DELETED.findall(text) if b"(deleted)" in text else ():
                inode = int(number)
                if inode not in found and inode not in named and path.startswith(tops):
                    found[inode] = self.known.get(inode, self.file_bytes)
        return found


class Watches:
    """What looks after a call from before its first line to its end.

    To be made before the code runs: `like` is a process as its own will begin, by its number in
    `proc`. `user` is the user process where it is not init's child: the warm process waits for it.
    """

    def __init__(
        self, plan: JailPlan, folders: Folders, limits: Limits, proc: int, like: int, user: int = 0
    ) -> None:
        self.proc, self.own_proc, self.user = proc, plan.own_proc, user
        self.memory = MemoryWatch(proc, limits.total_mb * MIB, like)
        self.processor = ProcessorWatch(proc, limits.cpu_seconds)
        # with namespaces the mounts have their sizes
        self.disk = None if plan.namespaces else DiskWatch(proc, folders, limits)

    def pids(self) -> list[int]:
        """Who belongs to the call: all in a pid namespace of our own but us, else by parent."""
        root = own_pid(self.proc)
        if self.own_proc:
            return [int(n) for n in os.listdir(self.proc) if n.isdigit() and int(n) != root]
        apart = [self.user, *descendants(self.proc, self.user)] if self.user else []
        return [*descendants(self.proc, root), *apart]

    def exceeded(self, until: float) -> str:
        """The first limit that is exceeded, by its word in `Job.end`; empty when none is."""
        pids = self.pids()
        if self.memory.exceeded(pids, until):
            return "memory"
        if self.processor.exceeded(pids):
            return "cpu"
        return "disk" if self.disk is not None and self.disk.exceeded(pids) else ""

    def over_at_the_end(self, until: float) -> str:
        """The limit that is exceeded by what is there when the code has ended: its files, and the
        memory of processes that it left behind."""
        pids = self.pids()
        if self.disk is not None and self.disk.exceeded(pids):
            return "disk"
        return "memory" if pids and self.memory.exceeded(pids, until) else ""
