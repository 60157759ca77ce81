"""Messages between the pool and a jail: a length, a JSON header, then raw bytes it announces.

The reading side takes nothing on trust: lengths are capped before a byte is read, and what the
header says must have the exact shape asked for. Nothing is ever unpickled.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterable
from typing import Any, cast

MAX_HEADER = 4 << 20
_LENGTH = struct.Struct("!Q")


class WireError(ValueError):
    """The other side said something that this protocol does not have."""


def pack(header: dict[str, Any]) -> bytes:
    body = json.dumps(header).encode()
    return _LENGTH.pack(len(body)) + body


def header_length(prefix: bytes) -> int:
    length = int(_LENGTH.unpack(prefix)[0])
    if length > MAX_HEADER:
        raise WireError(f"a header of {length} bytes; the most is {MAX_HEADER}")
    return length


def parse(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise WireError(f"a header that is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise WireError("a header that is not an object")
    return cast("dict[str, Any]", value)


def natural(value: Any, top: int = 1 << 50) -> int:
    """A length or a count, refused unless it is a whole number from 0 to `top`."""
    if type(value) is not int or not 0 <= value <= top:
        raise WireError(f"{str(value)[:40]!r} where a number from 0 to {top} belongs")
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
