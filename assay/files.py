"""Writing a file whole: readers meet the old or the new, never a half (sets: `file_sets`)."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import platform
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from assay.signals import undisturbed

# In a folder whose files are being replaced by a new set. It stays there after a kill.
UNFINISHED = ".unfinished"
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
            if is_at(handle, temporary):
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


def is_at(handle: int, path: Path) -> bool:
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


def sync(path: Path) -> None:
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


def cache_folder() -> Path:
    """Where things are kept that can be made or fetched again: $ASSAY_CACHE, else ~/.cache/assay.

    Raises RuntimeError where there is neither the variable nor a home.
    """
    place = os.environ.get("ASSAY_CACHE")
    return Path(place).expanduser() if place else Path.home() / ".cache" / "assay"
