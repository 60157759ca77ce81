"""What a call writes where no mount has a size: its real directories, and files without a name.

A file that has lost its name is counted as long as anybody holds it: by a descriptor, which tells
its size, or by a mapping, which does not. Then the size it had when it was last seen counts, or the
largest that one file may have.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat

from rollouts.sandbox import watch
from rollouts.sandbox.watch import Shut

_DELETED = re.compile(rb"^\w+-\w+ \S+ \w+ \S+ (\d+) +(/.*) \(deleted\)$", re.M)
Sizes = dict[int, int]  # bytes by inode; some file systems tell two device numbers for one file


class _Uncounted(Exception):
    """A directory that we cannot look into: no room is left for what it may hold."""


class DiskWatch:
    """Size and entries of each directory in `sizes` (path: bytes), `files` being the most."""

    def __init__(self, proc: int, sizes: dict[str, int], files: int, file_bytes: int) -> None:
        self.proc, self.sizes, self.files, self.file_bytes = proc, sizes, files, file_bytes
        self.known: Sizes = {}

    def exceeded(self, pids: list[int]) -> bool:
        """Whether one directory holds too much, the nameless files of all `pids` being counted."""
        named: Sizes = {}
        try:
            found = {path: self._tree(path, named) for path in self.sizes}
        except _Uncounted:
            return True
        nameless = self._nameless(pids, named)
        self.known = named | nameless
        hidden = sum(nameless.values())
        return any(
            size + hidden > self.sizes[path] or count > self.files
            for path, (size, count) in found.items()
        )

    def _tree(self, top: str, named: Sizes) -> tuple[int, int]:
        """Bytes and entries below `top`, stopping soon after the most. Follows no link."""
        size, count, left = 0, 0, [top]
        while left and count <= self.files:
            for entry in _entries(left.pop()):
                count += 1
                with contextlib.suppress(FileNotFoundError):
                    info = _status(entry)
                    size += info.st_blocks * 512
                    if stat.S_ISREG(info.st_mode):
                        named[info.st_ino] = info.st_blocks * 512
                    elif stat.S_ISDIR(info.st_mode):
                        left.append(entry.path)
        return size, count

    def _nameless(self, pids: list[int], named: Sizes) -> Sizes:
        found: Sizes = {}
        for pid in pids:
            self._open_files(pid, found)
        for pid in pids:
            self._mapped_files(pid, named, found)
        return found

    def _open_files(self, pid: int, found: Sizes) -> None:
        with contextlib.suppress(OSError):  # the process ended while we looked
            for name in watch.names(self.proc, f"{pid}/fd"):
                info = os.stat(f"{pid}/fd/{name}", dir_fd=self.proc)
                if stat.S_ISREG(info.st_mode) and info.st_nlink == 0:
                    found[info.st_ino] = info.st_blocks * 512

    def _mapped_files(self, pid: int, named: Sizes, found: Sizes) -> None:
        text = b""
        with contextlib.suppress(Shut):
            text = watch.read(self.proc, f"{pid}/maps", 1 << 24)
        if b"(deleted)" not in text:
            return
        for number, path in _DELETED.findall(text):
            inode = int(number)
            if inode not in found and inode not in named and self._ours(path):
                found[inode] = self.known.get(inode, self.file_bytes)

    def _ours(self, path: bytes) -> bool:
        return any(path.startswith(os.fsencode(top) + b"/") for top in self.sizes)


def _entries(path: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []  # removed meanwhile
    except OSError:
        # shut, or too deep to name: whoever holds a descriptor can still write there
        raise _Uncounted from None


def _status(entry: os.DirEntry[str]) -> os.stat_result:
    try:
        return entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        raise
    except OSError:
        raise _Uncounted from None
