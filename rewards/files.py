"""Writing a file whole, or a set of files: readers meet the old or the new, never a half."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

# In a folder whose files are being replaced by a new set. It stays there after a kill.
UNFINISHED = ".unfinished"
_NEW = ".new."


@contextmanager
def replacing(path: str | Path) -> Generator[BinaryIO]:
    """A file to write bytes to, which takes the place of `path` when the body ends without an
    error, and leaves nothing behind when it does not.

    The folder is made. The temporary name is unique, so that two writers do not meet; the bytes
    are on the disk before the name is. What is no regular file (a pipe, /dev/null) is written to.
    """
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file() and not path.is_dir():
        with open(path, "wb") as out:
            yield out
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        raise IsADirectoryError(21, "is a folder; give the path of a file", str(path))
    temporary = path.with_name(f".{path.name[:100]}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write a whole file, atomically."""
    with replacing(path) as out:
        out.write(data)


def write_text(path: str | Path, text: str, errors: str = "strict") -> None:
    """Write a whole file of UTF-8, atomically. `errors`: as in `str.encode`."""
    write_bytes(path, text.encode("utf-8", errors))


@contextmanager
def replacing_all(folder: str | Path, stale: Iterable[str] = ()) -> Generator[Path]:
    """A new folder to write a set of files to, which take their places in `folder` when the body
    ends without an error, and leave nothing behind when it does not.

    While they are moved, `folder` holds the file `.unfinished`, which a kill leaves there: readers
    that ask for it never mix two generations of a set. `stale` are files of an older set, by their
    names in `folder`; they go unless they were written again. Other files stay. Raises `OSError`
    when another process writes a set to the folder.
    """
    folder = Path(os.path.realpath(folder))
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        for left in folder.glob(_NEW + "*"):  # of a process that was killed
            shutil.rmtree(left, ignore_errors=True)
        new = folder / f"{_NEW}{os.getpid()}.{secrets.token_hex(4)}"
        new.mkdir()
        try:
            yield new
            _move(new, folder, stale)
        finally:
            shutil.rmtree(new, ignore_errors=True)


def _move(new: Path, folder: Path, stale: Iterable[str]) -> None:
    names = sorted(p.relative_to(new) for p in new.rglob("*") if p.is_file())
    for name in names:
        _sync(new / name)
    mark = folder / UNFINISHED
    mark.touch()
    _sync(folder)
    for name in {Path(old) for old in stale} - set(names):
        (folder / name).unlink(missing_ok=True)
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (new / name).replace(folder / name)
    for place in {(folder / name).parent for name in names}:
        _sync(place)
    mark.unlink()


@contextmanager
def _alone(folder: Path) -> Generator[None]:
    """Held by one process at a time. A file system without locks is used without."""
    lock = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            why = "another build writes to this folder; wait for it"
            raise OSError(errno.EBUSY, why, str(folder)) from None
        except OSError:
            pass
        yield
    finally:
        os.close(lock)


def _sync(path: Path) -> None:
    """The bytes of a file, or the names of a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
