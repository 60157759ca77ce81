"""Disks that are full or read-only: small file systems in a mount namespace of our own."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MS_RDONLY, MS_REMOUNT, MNT_DETACH = 1, 32, 2
_libc = ctypes.CDLL(None, use_errno=True)


def can_mount() -> bool:
    """Take a mount namespace of our own; False where that is not allowed."""
    if _libc.unshare(0x00020000) != 0:  # CLONE_NEWNS
        return False
    return _mount(b"none", b"/", None, 0x4000 | 1 << 18, None) == 0  # MS_REC, MS_PRIVATE


def _mount(
    what: bytes | None, where: bytes, kind: bytes | None, flags: int, data: bytes | None
) -> int:
    return _libc.mount(what, where, kind, ctypes.c_ulong(flags), data)


@contextmanager
def disk(place: Path, size: int) -> Iterator[None]:
    """A file system of its own at `place`, which keeps what was there."""
    files = [(p.relative_to(place), p.read_bytes()) for p in place.rglob("*") if p.is_file()]
    pages = sum(-(-len(data) // 4096) for _, data in files)
    total = max(1 - bool(pages), size // 4096) * 4096 + 4096 * pages  # 0 would be no limit
    if _mount(b"none", os.fsencode(place), b"tmpfs", 0, f"size={total}".encode()) != 0:
        raise OSError(ctypes.get_errno(), "cannot mount")
    try:
        for name, data in files:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(data)
        yield
    finally:
        _libc.umount2(os.fsencode(place), MNT_DETACH)


def remount(place: Path, flags: int, size: str = "8g") -> None:
    if _mount(None, os.fsencode(place), None, MS_REMOUNT | flags, f"size={size}".encode()) != 0:
        raise OSError(ctypes.get_errno(), "cannot remount")
