"""Writing a file whole: readers meet the old one or the new one, never a half."""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


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
