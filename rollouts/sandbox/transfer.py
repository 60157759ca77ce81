"""What travels between the pool and a jail: messages, output, the files that a call left behind.

A message is a length, a JSON header, then the raw bytes that the header announces. The reading side
takes nothing on trust: lengths are capped before a byte is read, and what the header says must have
the exact shape asked for. Nothing is ever unpickled. Files are read when nobody is alive to change
them any more. Names and files are hostile: no link is followed, nothing but a plain file with one
name and a bounded size is taken, and bytes go out as they are.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import stat
import struct
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from rollouts.sandbox.model import MIB, Limits

STARTED, ENDED = b"s", b"e"  # to the pool: the code begins; nobody of the call is alive
MAX_HEADER = 4 << 20
_LENGTH = struct.Struct("!Q")
# C0 but newline and tab, DEL, C1, and marks that reorder the text around them.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MOST_NAMES = 256
Seen = dict[str, tuple[int, int, int]]


class FrameError(ValueError):
    """The other side said something that this protocol does not have."""


def pack(header: dict[str, Any]) -> bytes:
    """A header as it is sent: 8 bytes of length, then JSON."""
    body = json.dumps(header).encode()
    return _LENGTH.pack(len(body)) + body


def header_length(prefix: bytes) -> int:
    """The length that 8 bytes announce; FrameError above 4 MiB."""
    length = int(_LENGTH.unpack(prefix)[0])
    if length > MAX_HEADER:
        raise FrameError(f"a header of {length} bytes; the most is {MAX_HEADER}")
    return length


def parse(body: bytes) -> dict[str, Any]:
    """A header from its bytes; FrameError unless it is a JSON object."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"a header that is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise FrameError("a header that is not an object")
    return cast("dict[str, Any]", value)


def natural(value: Any, top: int = 1 << 50) -> int:
    """A length or a count, refused unless it is a whole number from 0 to `top`."""
    if type(value) is not int or not 0 <= value <= top:
        raise FrameError(f"{str(value)[:40]!r} where a number from 0 to {top} belongs")
    return value


def receive(sock: socket.socket, size: int) -> bytes:
    """Exactly `size` bytes; EOFError when the other side is gone."""
    parts: list[bytes] = []
    while size:
        part = sock.recv(min(size, 1 << 20))
        if not part:
            raise EOFError("the other side closed the connection")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def receive_header(sock: socket.socket) -> dict[str, Any]:
    return parse(receive(sock, header_length(receive(sock, _LENGTH.size))))


def send(sock: socket.socket, header: dict[str, Any], payload: Iterable[bytes] = ()) -> None:
    sock.sendall(pack(header))
    for part in payload:
        sock.sendall(part)


class Capture:
    """The start and the end of a stream, in bounded memory, however much is written."""

    def __init__(self, cap: int) -> None:
        self.half = max(1, cap // 2)
        self.total = 0
        self.head = b""
        self._tail: deque[bytes] = deque()
        self._held = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = self.half - len(self.head)
        self.head += data[:room]
        rest = data[room:][-self.half :]
        if not rest:
            return
        self._tail.append(rest)
        self._held += len(rest)
        while self._held - len(self._tail[0]) >= self.half:
            self._held -= len(self._tail.popleft())

    def tail(self) -> bytes:
        return b"".join(self._tail)[-self.half :]


def neutral(text: str) -> str:
    """Carriage returns become newlines; other control characters become U+FFFD."""
    return _CONTROL.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))


def join(head: bytes, tail: bytes, total: int) -> str:
    """The kept parts as text, with a line in the middle that says how many bytes are missing."""
    missing = total - len(head) - len(tail)
    if missing <= 0:
        return neutral((head + tail).decode("utf-8", "replace"))
    start = head.decode("utf-8", "replace").rstrip("\ufffd")
    end = tail.decode("utf-8", "replace").lstrip("\ufffd")
    return neutral(f"{start}\n[... {missing} bytes left out ...]\n{end}")


@dataclass
class Collected:
    """Open descriptors of accepted files with their sizes, and the reasons for the others."""

    files: list[tuple[str, int, int]] = field(default_factory=list[tuple[str, int, int]])
    refused: dict[str, str] = field(default_factory=dict[str, str])

    def stream(self, conn: socket.socket, descriptor: int, size: int) -> None:
        """Exactly `size` bytes, short files filled up: the header promised that many."""
        while size:
            part = os.read(descriptor, min(size, MIB)) or bytes(min(size, MIB))
            conn.sendall(part)
            size -= len(part)
        os.close(descriptor)


def listing(directory: int) -> Seen:
    """Plain files at the top: name to (inode, size, time of change)."""
    found: Seen = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            try:
                info = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # a directory that was shut
            if stat.S_ISREG(info.st_mode):
                found[entry.name] = (info.st_ino, info.st_size, info.st_mtime_ns)
    return found


def collect(directory: int, names: list[str], limits: Limits, before: Seen) -> Collected:
    """Open each requested name; "*" stands for every plain file that is new or changed."""
    found, room = Collected(), limits.fetch_total_mb * MIB
    with contextlib.suppress(OSError):
        os.chmod(directory, 0o700)  # the code may have shut it, and we may be no more than it was
    wanted = list(dict.fromkeys(n for n in names if n != "*"))
    if "*" in names:
        now = listing(directory)
        wanted += sorted(n for n in now if now[n] != before.get(n) and n not in wanted)
    for name in wanted[:_MOST_NAMES]:
        try:
            descriptor, size = _open(directory, name, min(limits.fetch_mb * MIB, room))
        except ValueError as why:
            found.refused[name] = str(why)
            continue
        found.files.append((name, descriptor, size))
        room -= size
    beyond = wanted[_MOST_NAMES:]
    for name in [n for n in beyond if n in names]:
        found.refused[name] = f"more than {_MOST_NAMES} files"
    if more := sum(n not in names for n in beyond):  # not by name: the answer has to stay short
        found.refused["*"] = f"{more} files more; at most {_MOST_NAMES} come back"
    return found


def _open(directory: int, name: str, cap: int) -> tuple[int, int]:
    """(descriptor, size) of a file. Raises ValueError that says why it does not come back."""
    if "/" in name or "\0" in name or name in ("", ".", ".."):
        raise ValueError("not a plain name")
    try:
        info = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if not stat.S_ISREG(info.st_mode):
            kinds = {stat.S_IFLNK: "link", stat.S_IFDIR: "directory", stat.S_IFIFO: "FIFO"}
            kind = kinds.get(stat.S_IFMT(info.st_mode), "socket or device")
            raise ValueError(f"not a plain file but a {kind}")
        if info.st_nlink != 1:
            raise ValueError(f"{info.st_nlink} hard links")
        if info.st_size > cap:
            raise ValueError(f"{info.st_size} bytes; the most is {cap}")
        descriptor = os.open(name, _FLAGS, dir_fd=directory)
    except FileNotFoundError:
        raise ValueError("missing") from None
    except OSError as error:
        raise ValueError(f"unreadable: {error}") from None
    if not os.path.samestat(info, os.fstat(descriptor)):
        os.close(descriptor)
        raise ValueError("unreadable: it changed")
    return descriptor, info.st_size


def remove_tree(top: str) -> None:
    """Remove a directory that hostile code filled: shut directories, thousands of levels.

    Subdirectories are moved up before they are emptied, so depth costs neither stack nor
    descriptors. Links are removed, never followed.
    """
    if not os.path.isdir(top) or os.path.islink(top):
        return
    serial = 0
    while names := os.listdir(top):
        for name in names:
            path = f"{top}/{name}"
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                os.unlink(path)
                continue
            os.chmod(path, 0o700)
            for below in os.listdir(path):
                serial += 1
                inner = f"{path}/{below}"
                if stat.S_ISDIR(os.lstat(inner).st_mode):
                    os.chmod(inner, 0o700)  # moving a directory rewrites its parent link
                os.rename(inner, f"{top}/.{serial}.moved")
            os.rmdir(path)
    os.rmdir(top)
