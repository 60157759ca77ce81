"""Writing a set of files: readers meet the old set or the new one, never a mixture."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path

from assay.files import UNFINISHED, is_at, sync

_ABOUT = ("provenance.json", "refused.jsonl")  # written after a set of files, and about it
_NEW = ".new."


@contextmanager
def replacing_all(folder: str | Path, stale: Iterable[str] = ()) -> Generator[Path]:
    """A new folder to write a set of files to, which take their places in `folder` when the body
    ends without an error, and leave nothing behind when it does not.

    While they are moved, `folder` holds the file `.unfinished`, which a kill leaves there: readers
    that ask for it never mix two generations of a set. `stale` are files of an older set, by their
    names in `folder`; they go unless they were written again, and so does what was said about the
    older set. Other files stay. Raises `OSError` when another process writes a set to the folder.
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


@contextmanager
def unfinished(folder: str | Path) -> Generator[None]:
    """Mark `folder` while a set of files is written right into it, and after a body that did not
    end well: readers that ask for the mark refuse the set. Raises `OSError` when another process
    writes a set to the folder."""
    folder = Path(os.path.realpath(folder))
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        mark = folder / UNFINISHED
        mark.touch()
        sync(folder)
        for name in _ABOUT:
            (folder / name).unlink(missing_ok=True)
        yield
        mark.unlink()
        sync(folder)


def _move(new: Path, folder: Path, stale: Iterable[str]) -> None:
    names = sorted(p.relative_to(new) for p in new.rglob("*") if p.is_file())
    for name in names:
        sync(new / name)
    mark = folder / UNFINISHED
    mark.touch()
    sync(folder)
    for name in {Path(old) for old in (*stale, *_ABOUT)} - set(names):
        (folder / name).unlink(missing_ok=True)
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (new / name).replace(folder / name)
    for place in {(folder / name).parent for name in names}:
        sync(place)
    mark.unlink()


@contextmanager
def alone(path: str | Path) -> Generator[None]:
    """Hold a file that goes on from what it holds: one process at a time.

    The lock ends with the process, however that ends; `.NAME.lock` stands beside the file until
    then. A file system without locks is used without. Raises `OSError` when another one holds it.
    """
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    mark = path.with_name(f".{path.name}.lock")
    handle = os.open(mark, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        _lock(
            handle, path, "another process writes to it; wait for that to end, or write elsewhere"
        )
        if not is_at(handle, mark):  # its last holder has just left
            raise OSError(
                errno.EBUSY, "another process has just left it; run this again", str(path)
            )
        try:
            yield
        finally:
            mark.unlink(missing_ok=True)
    finally:
        os.close(handle)


@contextmanager
def _alone(folder: Path) -> Generator[None]:
    """Held by one process at a time. A file system without locks is used without."""
    lock = os.open(folder, os.O_RDONLY)
    try:
        _lock(lock, folder, "another build writes to this folder; wait for it")
        yield
    finally:
        os.close(lock)


def _lock(handle: int, path: Path, held: str) -> None:
    """Lock an open file, where its file system can. Raises `OSError` saying `held` where another
    process has."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OSError(errno.EBUSY, held, str(path)) from None
    except OSError:
        pass
