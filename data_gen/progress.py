"""How far a long piece of work is: a bar on a terminal, else a line now and then."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TextIO

EVERY = 15.0  # seconds between two lines that are no bar


class Progress:
    """Counts what is done of a stage; says the rate and, with a total, the time left.

    On a terminal it is a tqdm bar. Elsewhere (a log, a pipe) it prints a plain line every
    `EVERY` seconds and one at the end, and nothing for work that is over before the first.
    """

    def __init__(
        self, name: str, unit: str, total: int | None = None, to: TextIO | None = None
    ) -> None:
        from tqdm import tqdm

        self._to = to or sys.stderr
        self._name, self._unit, self._total, self._done = name, unit, total, 0
        self._start = self._said = time.monotonic()
        self._lines = 0
        self._bar = (
            tqdm(total=total, desc=name, unit=unit, delay=2, file=self._to)
            if self._to.isatty()
            else None
        )

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()
        elif self._lines and error is None:
            self._say(time.monotonic())

    def add(self, count: int, total: int | None = None) -> None:
        """`count` more are done; `total`: a better guess at how many there are."""
        self._done += count
        self._total = total or self._total
        if self._bar is not None:
            self._bar.total = self._total
            self._bar.update(count)
        elif (now := time.monotonic()) - self._said >= EVERY:
            self._said = now
            self._say(now)

    def _say(self, now: float) -> None:
        self._lines += 1
        print(self.line(now - self._start), file=self._to, flush=True)

    def line(self, seconds: float) -> str:
        """`facts: 12,000 of 20,000 documents, 55 a second, 0:02:25 left`."""
        rate = self._done / seconds if seconds > 0 else 0.0
        of = f" of {self._total:,}" if self._total else ""
        said = f"{self._name}: {self._done:,}{of} {self._unit}, {rate:,.3g} a second"
        if self._total and rate and self._total > self._done:
            left = round((self._total - self._done) / rate)
            said += f", {left // 3600}:{left // 60 % 60:02d}:{left % 60:02d} left"
        return said
