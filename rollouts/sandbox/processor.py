"""The processor time of all processes of a call together; the kernel bounds only each one."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from dataclasses import dataclass, field

from rollouts.sandbox import watch
from rollouts.sandbox.watch import Shut

_TICKS = os.sysconf("SC_CLK_TCK")
_WINDOW_S = 0.5
_LOWEST = 19


@dataclass
class ProcessorWatch:
    """Sums processor seconds and sends those who take more than their share to the back.

    The sum is the larger of two, because a process that nobody waits for takes its time with it:
    what the living and those who waited tell, and the latest seen of everyone who ever lived.
    """

    proc: int
    limit_s: float
    share: float  # processors
    spent_s: float = 0.0
    _alive: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    _dead: int = 0
    _mark: tuple[float, float] = (0.0, 0.0)

    def exceeded(self, pids: list[int]) -> bool:
        """Whether all of `pids` and those before them have used more than the limit."""
        waited, alive = 0, dict[tuple[int, int], int]()
        for pid in pids:
            with contextlib.suppress(Shut):
                fields = watch.read(self.proc, f"{pid}/stat", 4096).rpartition(b")")[2].split()
                if len(fields) > 19:
                    own = int(fields[11]) + int(fields[12])
                    waited += own + int(fields[13]) + int(fields[14])
                    alive[pid, int(fields[19])] = own
        self._dead += sum(ticks for key, ticks in self._alive.items() if key not in alive)
        self._alive = alive
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        told = waited / _TICKS + usage.ru_utime + usage.ru_stime
        seen = (self._dead + sum(alive.values())) / _TICKS
        self.spent_s = max(self.spent_s, told, seen)
        self._yield_to_others(pids)
        return self.spent_s > self.limit_s

    def _yield_to_others(self, pids: list[int]) -> None:
        """Where more processors are busy than were granted, all else on the node goes first."""
        now = time.monotonic()
        since, before = self._mark
        if now - since < _WINDOW_S:
            return
        if since and (self.spent_s - before) / (now - since) > 1.5 * self.share:
            for thread in [t for pid in pids for t in self._threads(pid)]:
                with contextlib.suppress(OSError):
                    os.setpriority(os.PRIO_PROCESS, thread, _LOWEST)
        self._mark = (now, self.spent_s)

    def _threads(self, pid: int) -> list[int]:
        """Their numbers in our own pid namespace, whichever one that /proc shows."""
        try:
            tasks = watch.names(self.proc, f"{pid}/task")
            texts = [watch.read(self.proc, f"{pid}/task/{name}/status") for name in tasks]
        except (OSError, Shut):
            return []
        lines = [text.partition(b"\nNSpid:")[2].partition(b"\n")[0].split() for text in texts]
        return [int(numbers[-1]) for numbers in lines if numbers]
