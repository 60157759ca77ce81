"""The few kernel calls that the jail needs and the standard library does not offer.

Every function raises OSError with the call's name; none of them goes through a shell or a helper.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterable
from typing import Any

from assay.confine import PR_SET_NO_NEW_PRIVS as PR_SET_NO_NEW_PRIVS
from assay.confine import call, prctl

_HELD: Any = ctypes.PyDLL(None, use_errno=True)  # calls that keep the interpreter's lock

CLONE_NEWTIME, CLONE_NEWNS, CLONE_NEWCGROUP = 0x80, 0x00020000, 0x02000000
CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWUSER = 0x04000000, 0x08000000, 0x10000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
CLONE_PARENT = 0x8000
CLONE_NAMESPACES = 0x7E020000  # all of the above but NEWTIME, which clone() cannot ask for

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP = 1, 4, 24
PR_SET_CHILD_SUBREAPER, PR_CAP_AMBIENT = 36, 47
_ATTR_RDONLY, _ATTR_NOSUID, _ATTR_NODEV = 1, 2, 4
_AT_RECURSIVE, _AT_EMPTY_PATH = 0x8000, 0x1000


def fork() -> int:
    """Fork without the hooks that `os.fork` runs, which write to a megabyte of shared pages.

    They renew locks that other threads may hold: only for a process that has one thread.
    """
    pid = int(_HELD.fork())
    if pid < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"fork: {os.strerror(number)}")
    return pid


def unshare(flags: int) -> None:
    call("unshare", flags)


def setns(descriptor: int, kind: int) -> None:
    call("setns", descriptor, kind)


def mount(source: str, target: str, kind: str, flags: int = 0, data: str = "") -> None:
    try:
        call("mount", source.encode(), target.encode(), kind.encode(), flags, data.encode())
    except OSError as error:
        raise OSError(
            error.errno, f"mount {kind or source} on {target}: {error.strerror}"
        ) from None


def umount(target: str) -> None:
    call("umount2", target.encode(), MNT_DETACH)


def pivot_root(new: str, old: str) -> None:
    call("pivot_root", new.encode(), old.encode())


class _MountAttr(ctypes.Structure):
    _fields_ = [(n, ctypes.c_uint64) for n in ("set", "clear", "propagation", "userns")]


def read_only(path: str) -> None:
    """Turn a whole bound tree read-only, without devices and set-id bits (kernel 5.12 or newer)."""
    attr = _MountAttr(set=_ATTR_RDONLY | _ATTR_NOSUID | _ATTR_NODEV)
    size = ctypes.sizeof(attr)
    call("mount_setattr", -100, path.encode(), _AT_RECURSIVE, ctypes.byref(attr), size)


class _CapHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


def drop_capabilities() -> None:
    """Give up every capability for good: bounding, ambient, inheritable, permitted, effective."""
    for cap in range(64):
        try:
            prctl(PR_CAPBSET_DROP, cap)
        except OSError:
            break  # past the last one, or none to drop (EPERM without CAP_SETPCAP)
    with contextlib.suppress(OSError):  # kernels without ambient capabilities have none to clear
        prctl(PR_CAP_AMBIENT, 4)
    header = _CapHeader(version=0x20080522)
    call("capset", ctypes.byref(header), (ctypes.c_uint32 * 6)())


def close_from(first: int) -> None:
    """Close every descriptor from `first` on."""
    try:
        call("close_range", first, 0xFFFFFFFF, 0)
    except OSError:
        os.closerange(first, 65536)


def close_from_except(kept: Iterable[int]) -> None:
    """Close every descriptor from 3 on but `kept`, whatever number those have."""
    low = 3
    for descriptor in sorted(d for d in kept if d >= 3):
        if descriptor > low:
            try:
                call("close_range", low, descriptor - 1, 0)
            except OSError:
                os.closerange(low, descriptor)
        low = descriptor + 1
    close_from(low)


def rename_process(*argv: str) -> None:
    """Overwrite our own command line, so that /proc/self/cmdline reads like `python main.py`."""
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    start, end = int(fields[45]), int(fields[46])  # fields 48 and 49 of proc(5)
    if start <= 0 or end <= start:
        return
    text = b"\0".join(os.fsencode(a) for a in argv) + b"\0"
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, text, min(len(text), end - start - 1))
