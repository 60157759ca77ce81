"""Files written whole: readers meet the old or the new, never a half; of a set of files neither a
mixture of two. Folders and files that one process at a time may write to."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import platform
import secrets
import shutil
import signal
import sys
import threading
from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

# In a folder whose files are being replaced by a new set. It stays there after a kill.
UNFINISHED = ".unfinished"
_ABOUT = ("provenance.json", "refused.jsonl")  # written after a set of files, and about it
_NEW = ".new."
_WEIGHTS = ("*.safetensors", "*.bin", "config.json", "adapter_config.json")
_LARGE = 4_000_000_000  # bytes; reading that many is said
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)


# --- one file


@contextmanager
def atomic_write(path: str | Path) -> Generator[BinaryIO]:
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
        with defer_signals():  # or one falls between the file and what would take it away
            temporary, out = _temporary(path)
        with disk_errors_name(path), out:
            yield out
            out.flush()
            os.fsync(out.fileno())
            temporary.replace(path)  # before the lock is given back
    except BaseException:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise


def _temporary(path: Path) -> tuple[Path, BinaryIO]:
    """A file beside `path`: the one of this machine, locked, which a killed writer may have left;
    one of its own name where that is held, another user's, or cannot be locked."""
    start = f".{path.name[:100]}.{platform.node()[:40]}"
    temporary = path.with_name(f"{start}.tmp")
    with suppress(OSError):  # it is another one's, or there are no locks
        handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        out = os.fdopen(handle, "wb")  # what another one writes is cut only once it is locked
        try:
            fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(out.fileno()), temporary.stat()):
                out.truncate(0)
                return temporary, out
        except OSError:
            out.close()
            raise
        out.close()
    temporary = path.with_name(f"{start}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    return temporary, open(temporary, "xb")


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write a whole file, atomically."""
    with atomic_write(path) as out:
        out.write(data)


def write_text(path: str | Path, text: str, errors: str = "strict") -> None:
    """Write a whole file of UTF-8, atomically. `errors`: as in `str.encode`."""
    write_bytes(path, text.encode("utf-8", errors))


@contextmanager
def disk_errors_name(path: str | Path) -> Generator[None]:
    """Errors of the disk (full, read-only, failing), which name no file, name `path`."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in _DISK:
            error.filename = str(path)
        raise


def machine_failed(error: BaseException) -> bool:
    """Whether the disk or the memory gave out: nothing may be concluded from it about the work."""
    if isinstance(error, OSError):
        return error.errno in (*_DISK, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
    return isinstance(error, MemoryError)


@contextmanager
def defer_signals() -> Generator[None]:
    """TERM and INT wait until the body is done; they are raised where it ends. In another thread
    than the main one nothing is done: Python handles signals in the main thread."""
    seen: list[int] = []
    with ExitStack() as after:  # backwards, and all of them whatever a handler raises
        after.callback(lambda: [signal.raise_signal(number) for number in seen])
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                if (handler := signal.getsignal(number)) is not signal.SIG_IGN and handler:
                    after.callback(signal.signal, number, handler)
                    signal.signal(number, lambda caught, _: seen.append(caught))
        yield


# --- a set of files


@contextmanager
def atomic_write_set(folder: str | Path, stale: Iterable[str] = ()) -> Generator[Path]:
    """A new folder to write a set of files to, which take their places in `folder` when the body
    ends without an error, and leave nothing behind when it does not.

    While they are moved, `folder` holds the file `.unfinished`, which a kill leaves there: readers
    that ask for it never mix two generations of a set. `stale` are files of an older set, by their
    names in `folder`; they go unless they were written again, and so does what was said about the
    older set. Other files stay. Raises `OSError` when another process writes a set to the folder.
    """
    folder = Path(os.path.realpath(folder))
    with exclusive_folder(folder):
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
def mark_unfinished(folder: str | Path) -> Generator[None]:
    """Mark `folder` while a set of files is written right into it, and after a body that did not
    end well: readers that ask for the mark refuse the set. Raises `OSError` when another process
    writes a set to the folder."""
    folder = Path(os.path.realpath(folder))
    with exclusive_folder(folder):
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


def _sync(path: Path) -> None:
    """The bytes of a file, or the names of a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# --- locks, which end with the process


@contextmanager
def exclusive_file(path: str | Path) -> Generator[None]:
    """Hold a file that goes on from what it holds: one process at a time. `.NAME.lock` stands
    beside the file until then. Raises `OSError` when another one holds it."""
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    said = "another process writes to it; wait for that to end, or write elsewhere"
    with _held(path.with_name(f".{path.name}.lock"), path, said):
        yield


@contextmanager
def exclusive_folder(folder: Path) -> Generator[None]:
    """Make a folder and hold it: one process at a time. Raises `OSError` when another holds it."""
    folder.mkdir(parents=True, exist_ok=True)
    with _held(folder / ".build.lock", folder, "another build writes to this folder; wait for it"):
        yield


@contextmanager
def _held(mark: Path, path: Path, said: str) -> Generator[None]:
    from filelock import FileLock, Timeout  # takes longer to load than most commands need

    lock = FileLock(mark, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise OSError(errno.EBUSY, said, str(path)) from None
    try:
        yield
    finally:
        mark.unlink(missing_ok=True)
        lock.release()


# --- reading


def file_hash(path: Path) -> str:
    """SHA-256 of a file; of a folder, over the names and hashes of its files in order."""
    if not path.is_dir():
        with open(path, "rb") as data:
            return hashlib.file_digest(data, "sha256").hexdigest()
    digest = hashlib.sha256()
    for inner in sorted(p for p in path.rglob("*") if p.is_file()):
        digest.update(f"{inner.relative_to(path)}\n{file_hash(inner)}\n".encode())
    return digest.hexdigest()


def weights_hash(folders: Sequence[Path]) -> str:
    """A hash of the whole weight files and the configuration of models, by their names."""
    whole = hashlib.sha256()
    for folder in folders:
        paths = {path for pattern in _WEIGHTS for path in folder.glob(pattern)}
        for path in sorted(paths):
            whole.update(f"{path.name}\0{_known_hash(path)}\0".encode())
    return whole.hexdigest()[:16]


def _known_hash(path: Path) -> str:
    """SHA-256 of a file. It is kept in the user's cache by the file's size and times, so that the
    gigabytes of a model are read once."""
    stat = path.stat()
    about = [str(path.resolve()), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]
    try:
        name = hashlib.sha256(str(about[0]).encode("utf-8", "surrogateescape")).hexdigest()[:32]
        kept = cache_folder() / "hashes" / f"{name}.json"
    except RuntimeError:  # there is no home
        return file_hash(path)
    try:
        held: Any = json.loads(kept.read_text(encoding="utf-8"))
        if held["of"] == about:
            return str(held["sha256"])
    except (OSError, ValueError, TypeError, LookupError):
        pass
    if stat.st_size > _LARGE:
        size = f"{stat.st_size / 1e9:.0f} GB"
        print(f"reading {path} ({size}) once, to know these weights again", file=sys.stderr)
    found = file_hash(path)
    with suppress(OSError):  # it is only a cache
        write_text(kept, json.dumps({"of": about, "sha256": found}))
    return found


@lru_cache(maxsize=32)
def yaml_beside(module: str, name: str) -> Any:
    """What a YAML file in a module's folder says, read once: `yaml_beside(__file__, "words.yaml")`.
    Callers change nothing in it."""
    import yaml

    text = Path(module).with_name(name).read_text(encoding="utf-8")
    return yaml.load(text, yaml.CSafeLoader)


def cache_folder() -> Path:
    """Where things are kept that can be made or fetched again: $ASSAY_CACHE, else ~/.cache/assay.

    Raises RuntimeError where there is neither the variable nor a home.
    """
    place = os.environ.get("ASSAY_CACHE")
    return Path(place).expanduser() if place else Path.home() / ".cache" / "assay"
