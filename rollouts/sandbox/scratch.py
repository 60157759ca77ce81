"""The directory of one launcher, and removing those that a killed pool left behind.

Its maker holds a lock on it, and the kernel lets go of that when the maker dies, in whatever
container it ran: a directory that can be locked belongs to nobody any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from pathlib import Path

from rollouts.sandbox.jail import ROOT_DROPS_TO
from rollouts.sandbox.results import remove_tree

_PREFIX = "assay-sandbox-"
_YOUNG_S = 60.0  # between being made and being locked
_swept: set[str] = set()


def make() -> tuple[str, int]:
    """A new directory and the descriptor that locks it; the first one also sweeps."""
    parent = os.path.realpath(tempfile.gettempdir())
    if parent not in _swept:
        _swept.add(parent)
        sweep(parent)
    path = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with contextlib.suppress(OSError):  # a file system without locks: then nobody sweeps it
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    return path, lock


def sweep(parent: str) -> list[str]:
    """Remove our own directories in `parent` that nobody holds; returns their paths."""
    removed: list[str] = []
    with contextlib.suppress(OSError):
        for name in os.listdir(parent):
            path = f"{parent}/{name}"
            if name.startswith(_PREFIX) and _abandoned(path):
                with contextlib.suppress(OSError):
                    remove_tree(path)
                    removed.append(path)
    return removed


def _abandoned(path: str) -> bool:
    try:
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        info = os.fstat(lock)
        if time.time() - info.st_ctime < _YOUNG_S or not _ours(info.st_uid):
            return False
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(lock)
    return True


def _ours(uid: int) -> bool:
    """Made by our id, or for one that root dropped to and that no process runs under any more:
    what lives could swap a directory for a link while we remove it."""
    if uid == os.geteuid():
        return True
    return os.geteuid() == 0 and uid > ROOT_DROPS_TO and uid not in _living()


def _living() -> set[int]:
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                found.add(entry.stat().st_uid)
                text = (entry / "status").read_text(errors="replace")
                found.add(int(text.partition("\nUid:")[2].split(None, 1)[0]))
    return found
