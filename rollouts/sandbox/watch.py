"""What a call uses, seen from /proc: memory over all its processes, disk where nothing is mounted.

`proc` is a directory descriptor: the jail's own /proc, or the outer one where a fresh /proc is
refused. Then the members are found by parent, which is closed because orphans come to init.
"""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass

_PAGE = os.sysconf("SC_PAGE_SIZE")
_SOCKET_BYTES = 212_992  # the most that one unread Unix socket holds
_FREE_DESCRIPTORS = 2048  # beyond these, each is counted as a full socket


class Shut(Exception):
    """A file of /proc that exists and that we may not read."""


def read(proc: int, name: str, limit: int = 1 << 22) -> bytes:
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


def threads(proc: int) -> int:
    """How many threads we have."""
    return int(read(proc, "self/stat", 4096).rpartition(b")")[2].split()[17])


def own_pid(proc: int) -> int:
    """Our number in that /proc, which may be another pid namespace's."""
    return int(os.readlink("self", dir_fd=proc))


def _parents(proc: int) -> dict[int, int]:
    found: dict[int, int] = {}
    for name in os.listdir(proc):
        if name.isdigit():
            try:
                fields = read(proc, f"{name}/stat", 4096).rpartition(b")")[2].split()
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


@dataclass(frozen=True)
class _Use:
    size: int  # all mappings
    resident: int
    private: int  # what RLIMIT_DATA counts


def _statm(proc: int, task: str) -> _Use:
    fields = read(proc, f"{task}/statm", 4096).split()
    if len(fields) < 6:
        return _Use(0, 0, 0)
    return _Use(*(int(fields[i]) * _PAGE for i in (0, 1, 5)))


def _memory_task(proc: int, pid: int) -> tuple[str, _Use]:
    """The task to ask about a process's memory: its first thread, or another when that one has
    exited. The process then looks like an empty zombie while its threads hold all they had."""
    use = _statm(proc, str(pid))
    if use.size == 0:
        with contextlib.suppress(OSError):
            for tid in _names(proc, f"{pid}/task"):
                other = _statm(proc, f"{pid}/task/{tid}")
                if other.size:
                    return f"{pid}/task/{tid}", other
    return str(pid), use


def _proportional(proc: int, task: str, use: _Use) -> int:
    """PSS in bytes, shared memory left out; all that is resident where /proc does not tell."""
    total, shmem = 0, 0
    try:
        for line in read(proc, f"{task}/smaps_rollup", 65536).splitlines():
            if line.startswith(b"Pss:"):
                total = int(line.split()[1])
            elif line.startswith(b"Pss_Shmem:"):
                shmem = int(line.split()[1])
    except Shut:
        return use.resident
    return (total - shmem) * 1024


def _shared_mappings(proc: int, task: str) -> dict[bytes, int]:
    """Bytes per anonymous shared object. Its whole size counts: pages stay when unmapped from
    the page table, and then show up in nobody's PSS."""
    sizes: dict[bytes, int] = {}
    for line in read(proc, f"{task}/maps", 1 << 24).splitlines():
        fields = line.split(None, 5)
        if len(fields) == 6 and fields[1][3:4] == b"s" and fields[5].endswith(b"(deleted)"):
            start, _, end = fields[0].partition(b"-")
            sizes[fields[4]] = sizes.get(fields[4], 0) + int(end, 16) - int(start, 16)
    return sizes


class MemoryWatch:
    """The memory of all members. Cheap while it is small: details are read only near the limit."""

    def __init__(self, proc: int, limit: int, everyone: bool, user: int = 0) -> None:
        """`user` is a member that is not our child; the warm process waits for it."""
        self.proc, self.limit, self.everyone, self.user = proc, limit, everyone, user
        self.root = own_pid(proc)
        self.plain = _statm(proc, str(user or self.root))
        self.peak = 0

    def members(self) -> list[int]:
        if self.everyone:  # a pid namespace of our own: all but us
            return [int(n) for n in os.listdir(self.proc) if n.isdigit() and int(n) != self.root]
        apart = [self.user, *descendants(self.proc, self.user)] if self.user else []
        return [*descendants(self.proc, self.root), *apart]

    def exceeded(self) -> bool:
        members = self.members()
        uses = dict(_memory_task(self.proc, pid) for pid in members)
        total = sum(use.resident for use in uses.values())
        tables = sum(self._page_tables(task, use) for task, use in uses.items())
        if tables > self.limit // 2:
            return True  # to ask for shares would walk through them all
        if total > self.limit:
            total = sum(_proportional(self.proc, task, use) for task, use in uses.items())
        total += tables
        total += self._hidden_shared(uses) + self._sockets(members)
        self.peak = max(self.peak, total)
        return total > self.limit

    def _hidden_shared(self, uses: dict[str, _Use]) -> int:
        """Shared anonymous memory, looked for only where mappings grew beyond private ones."""
        plain = self.plain.size - self.plain.private
        objects: dict[bytes, int] = {}
        unread = 0
        for task, use in uses.items():
            grown = use.size - use.private - plain
            if grown < self.limit // 16:
                continue
            try:
                for inode, size in _shared_mappings(self.proc, task).items():
                    objects[inode] = max(objects.get(inode, 0), size)
            except Shut:
                unread += grown
        return unread + sum(objects.values())

    def _page_tables(self, task: str, use: _Use) -> int:
        """What maps the memory, 8 bytes a page: a small file mapped often enough is gigabytes."""
        if (use.size - self.plain.size) // 512 < self.limit // 64:
            return 0
        try:
            text = read(self.proc, f"{task}/status", 65536)
        except Shut:
            return 0
        return int((text.partition(b"\nVmPTE:")[2].split(None, 1) or [b"0"])[0]) * 1024

    def _sockets(self, members: list[int]) -> int:
        if len(members) < 8:
            return 0
        count = sum(_descriptors(self.proc, pid) for pid in members)
        return max(0, count - _FREE_DESCRIPTORS) * _SOCKET_BYTES


def _descriptors(proc: int, pid: int) -> int:
    try:
        size = os.stat(f"{pid}/fd", dir_fd=proc).st_size
        return size or len(_names(proc, f"{pid}/fd"))  # the size tells since Linux 6.2
    except OSError:
        return 0


def _names(proc: int, name: str) -> list[str]:
    descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=proc)
    try:
        return os.listdir(descriptor)
    finally:
        os.close(descriptor)


def _tree(path: str, most: int) -> tuple[int, int]:
    """Bytes and entries below `path`, stopping soon after `most` entries. Follows no link."""
    size, count, left = 0, 0, [path]
    while left and count <= most:
        try:
            with os.scandir(left.pop()) as entries:
                for entry in entries:
                    count += 1
                    size += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
        except OSError:
            continue  # removed meanwhile, or shut: a shut directory holds what it held before
    return size, count


class DiskWatch:
    """Size and inodes of real directories, open files without a name included."""

    def __init__(self, memory: MemoryWatch, sizes: dict[str, int], files: int) -> None:
        self.memory, self.sizes, self.files = memory, sizes, files

    def exceeded(self) -> bool:
        nameless = sum(self._nameless(pid) for pid in self.memory.members())
        for path, most in self.sizes.items():
            size, count = _tree(path, self.files)
            if size + nameless > most or count > self.files:
                return True
        return False

    def _nameless(self, pid: int) -> int:
        total = 0
        try:
            for name in _names(self.memory.proc, f"{pid}/fd"):
                info = os.stat(f"{pid}/fd/{name}", dir_fd=self.memory.proc)
                if stat.S_ISREG(info.st_mode) and info.st_nlink == 0:
                    total += info.st_blocks * 512
        except OSError:
            pass  # the process ended while we looked
        return total
