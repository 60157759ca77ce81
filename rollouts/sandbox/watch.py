"""Reading /proc: who belongs to a call, and the files that tell what they use.

`proc` is a directory descriptor: the jail's own /proc, or the outer one where a fresh /proc is
refused. Then the members are found by parent, which is closed because orphans come to init.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass


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


def names(proc: int, name: str) -> list[str]:
    """The entries of a directory of /proc."""
    descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=proc)
    try:
        return os.listdir(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class Members:
    """Who belongs to a call. `everyone`: all in a pid namespace of our own but us. `user` is a
    member that is not our child; the warm process waits for it."""

    proc: int
    everyone: bool
    user: int = 0

    def pids(self) -> list[int]:
        root = own_pid(self.proc)
        if self.everyone:
            return [int(n) for n in os.listdir(self.proc) if n.isdigit() and int(n) != root]
        apart = [self.user, *descendants(self.proc, self.user)] if self.user else []
        return [*descendants(self.proc, root), *apart]

    def stopped(self, pid: int) -> bool:
        """Whether it runs no code: stopped, dead or gone."""
        with contextlib.suppress(Shut):
            state = read(self.proc, f"{pid}/stat", 4096).rpartition(b")")[2].split()[:1]
            return not state or state[0] in (b"T", b"t", b"Z", b"X")
        return True
