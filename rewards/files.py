"""Writing a file whole, or a set of files: readers meet the old or the new, never a half."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import platform
import secrets
import shutil
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from rewards.signals import undisturbed

# In a folder whose files are being replaced by a new set. It stays there after a kill.
UNFINISHED = ".unfinished"
_ABOUT = ("provenance.json", "refused.jsonl")  # written after a set of files, and about it
_NEW = ".new."
_SLOTS = 8  # writers of one file side by side that share names of temporary files
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)


@contextmanager
def replacing(path: str | Path) -> Generator[BinaryIO]:
    """A file to write bytes to, which takes the place of `path` when the body ends without an
    error, and leaves nothing behind when it does not.

    The folder is made. Two writers never meet in one temporary file; what a killed writer left is
    written over by the next one on the same machine. The bytes are on the disk before the name is.
    What is no regular file (a pipe, /dev/null) is written to. A disk that is full or fails raises
    the `OSError` with the name of `path`.
    """
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file() and not path.is_dir():
        with open(path, "wb") as out:
            yield out
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        raise IsADirectoryError(21, "is a folder; give the path of a file", str(path))
    temporary: Path | None = None
    try:
        with undisturbed():  # or a signal falls between the file and what would take it away
            temporary, out = _temporary(path)
        with named(path), out:
            yield out
            out.flush()
            os.fsync(out.fileno())
            temporary.replace(path)  # before the lock is given back
    except BaseException:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise


def machine_failed(error: BaseException) -> bool:
    """Whether the disk or the memory gave out: nothing may be concluded from it about the work."""
    if isinstance(error, OSError):
        return error.errno in (*_DISK, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
    return isinstance(error, MemoryError)


@contextmanager
def named(path: str | Path) -> Generator[None]:
    """Errors of the disk (full, read-only, failing), which name no file, name `path`."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in _DISK:
            error.filename = str(path)
        raise


def _temporary(path: Path) -> tuple[Path, BinaryIO]:
    """A file beside `path` that no other process writes to: this machine's first one that nobody
    holds a lock on. Where a file system has no locks it gets a name of its own."""
    start = f".{path.name[:100]}.{platform.node()[:40]}"
    for slot in range(_SLOTS):
        temporary = path.with_name(f"{start}.{slot}.tmp")
        try:
            handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except PermissionError:  # another user's, or a folder that nobody may write to
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(handle, temporary):
                os.ftruncate(handle, 0)
                return temporary, os.fdopen(handle, "wb")
        except BlockingIOError:
            pass
        except OSError:
            os.close(handle)
            break
        os.close(handle)
    temporary = path.with_name(f"{start}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    return temporary, open(temporary, "xb")


def _is_at(handle: int, path: Path) -> bool:
    """Whether an open file is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


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
        _sync(folder)
        for name in _ABOUT:
            (folder / name).unlink(missing_ok=True)
        yield
        mark.unlink()
        _sync(folder)


def _move(new: Path, folder: Path, stale: Iterable[str]) -> None:
    names = sorted(p.relative_to(new) for p in new.rglob("*") if p.is_file())
    for name in names:
        _sync(new / name)
    mark = folder / UNFINISHED
    mark.touch()
    _sync(folder)
    for name in {Path(old) for old in (*stale, *_ABOUT)} - set(names):
        (folder / name).unlink(missing_ok=True)
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (new / name).replace(folder / name)
    for place in {(folder / name).parent for name in names}:
        _sync(place)
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
        if not _is_at(handle, mark):  # its last holder has just left
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


def _sync(path: Path) -> None:
    """The bytes of a file, or the names of a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def file_hash(path: Path) -> str:
    """SHA-256 of a file; of a folder, over the names and hashes of its files in order."""
    digest = hashlib.sha256()
    if path.is_dir():
        for inner in sorted(p for p in path.rglob("*") if p.is_file()):
            digest.update(f"{inner.relative_to(path)}\n{file_hash(inner)}\n".encode())
        return digest.hexdigest()
    with open(path, "rb") as data:
        while block := data.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
