"""The memory of a command and everything below it, looked at while it runs."""

from __future__ import annotations

import threading
from pathlib import Path

EVERY = 0.25  # seconds between two looks


def proportional_memory(process: int) -> int:
    """PSS of a process and everything below it, in bytes; 0 when it is gone."""
    total = 0
    waiting = [process]
    while waiting:
        one = waiting.pop()
        place = Path(f"/proc/{one}")
        try:
            for line in (place / "smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
            for task in (place / "task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except OSError:  # ended meanwhile
            continue
    return total


class MemoryWatch(threading.Thread):
    """Looks at a process until it is told to stop; `memory` is the most that was seen, in bytes."""

    def __init__(self, process: int) -> None:
        super().__init__(daemon=True)
        self.process, self._over = process, threading.Event()
        self.memory = self.looks = 0

    def run(self) -> None:
        while not self._over.wait(EVERY):
            self.look()
            self.looks += 1

    def look(self) -> None:
        self.memory = max(self.memory, proportional_memory(self.process))

    def end(self) -> None:
        self._over.set()
        self.join()
