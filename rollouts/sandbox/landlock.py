"""Landlock: which file trees the model's code may read or write, and whom it may signal."""

from __future__ import annotations

import ctypes
import os
import stat

from rollouts.sandbox import syscalls

_EXECUTE, _WRITE, _READ, _READ_DIR = 1, 2, 4, 8
_REMOVE_DIR, _REMOVE_FILE, _CHAR, _DIR, _REG, _SOCK, _FIFO, _BLOCK, _SYM = (
    1 << n for n in range(4, 13)
)
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
READ = _EXECUTE | _READ | _READ_DIR
# Everything but making device nodes and device ioctls.
_MAKE = _DIR | _REG | _SOCK | _FIFO | _SYM
WRITE = READ | _WRITE | _REMOVE_DIR | _REMOVE_FILE | _MAKE | _REFER | _TRUNCATE
DEVICE = _READ | _WRITE
_FILE_ONLY = _EXECUTE | _WRITE | _READ | _TRUNCATE | _IOCTL_DEV
_ALL_ABI1 = (1 << 13) - 1


class _RulesetAttr(ctypes.Structure):
    _fields_ = [(n, ctypes.c_uint64) for n in ("fs", "net", "scoped")]


class _PathAttr(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32)]


def abi() -> int:
    """The kernel's Landlock version, 0 where it is absent, disabled or filtered."""
    try:
        return syscalls.call("landlock_create_ruleset", None, 0, 1)
    except OSError:
        return 0


def _handled(version: int) -> int:
    rights = _ALL_ABI1
    rights |= _REFER if version >= 2 else 0
    rights |= _TRUNCATE if version >= 3 else 0
    return rights | (_IOCTL_DEV if version >= 5 else 0)


def ruleset(version: int, grants: list[tuple[str, int]]) -> int:
    """A ruleset descriptor that allows `grants` (path, rights) and nothing else.

    From version 4 it also refuses TCP, from 6 abstract sockets and signals to anybody outside.
    A path that does not exist is left out: absent is the strongest refusal.
    """
    handled = _handled(version)
    attr = _RulesetAttr(fs=handled, net=3 if version >= 4 else 0, scoped=3 if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    descriptor = syscalls.call("landlock_create_ruleset", ctypes.byref(attr), size, 0)
    for path, rights in grants:
        _grant(descriptor, path, rights & handled)
    return descriptor


def _grant(descriptor: int, path: str, rights: int) -> None:
    try:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(parent).st_mode):
            rights &= _FILE_ONLY
        rule = _PathAttr(allowed=rights, parent=parent)
        syscalls.call("landlock_add_rule", descriptor, 1, ctypes.byref(rule), 0)
    finally:
        os.close(parent)


def restrict(descriptor: int) -> None:
    """Put this process and all it starts under the ruleset, for ever; needs no_new_privs."""
    syscalls.call("landlock_restrict_self", descriptor, 0)
