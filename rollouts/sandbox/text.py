"""Output on its way to the model: cut in the middle, decoded, control characters replaced."""

from __future__ import annotations

import re
from collections import deque

# C0 but newline and tab, DEL, C1, and marks that reorder the text around them.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


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
    """The kept parts as text, with a line in the middle that says what is missing."""
    missing = total - len(head) - len(tail)
    if missing <= 0:
        return neutral((head + tail).decode("utf-8", "replace"))
    start = head.decode("utf-8", "replace").rstrip("\ufffd")
    end = tail.decode("utf-8", "replace").lstrip("\ufffd")
    return neutral(f"{start}\n[... {missing} bytes left out ...]\n{end}")
