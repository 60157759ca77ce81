"""How far a long command is: rows, rate and time left, on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TextIO

FIRST_S = 2.0  # work that ends before says nothing
BAR_S, LINE_S = 0.5, 30.0
_WIDTH = 24


class Progress:
    """One line that is drawn over on a terminal, elsewhere a plain line now and then; use as a
    context manager. `total` is what `update` counts up to, in any unit; None where unknown."""

    def __init__(
        self,
        what: str,
        total: int | None,
        to: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what, self._total, self._clock = what, total, clock
        self._to = sys.stderr if to is None else to
        self._bar = self._to.isatty()
        self._start, self._rows, self._done = clock(), 0, 0
        self._next = self._start + (FIRST_S if self._bar else LINE_S)
        self._drawn = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._drawn:
            self._say()
            self._to.write("\n")
            self._to.flush()

    def update(self, rows: int, done: int | None = None) -> None:
        """`rows` more are done; `done` is the new count of what `total` is of, else the rows."""
        self._rows += rows
        self._done = self._rows if done is None else done
        now = self._clock()
        if now >= self._next:
            self._next = now + (BAR_S if self._bar else LINE_S)
            self._say()

    def _say(self) -> None:
        text = self.line()
        if self._bar:
            self._to.write(f"\r\x1b[K{text}")
            self._drawn = True
        else:
            self._to.write(text + "\n")
        self._to.flush()

    def line(self) -> str:
        """`assay score: 12,000 rows, 4,100 rows/s, 35 %, 0:01:20 left`."""
        taken = max(self._clock() - self._start, 1e-9)
        text = f"{self._what}: {self._rows:,} rows, {self._rows / taken:,.0f} rows/s"
        if not self._total:
            return text
        share = min(1.0, self._done / self._total)
        text += f", {100 * share:.0f} %"
        if 0 < share < 1:
            text += f", {_clock_time(taken * (1 - share) / share)} left"
        full = round(_WIDTH * share)
        return text + (f" [{'#' * full}{'.' * (_WIDTH - full)}]" if self._bar else "")


def _clock_time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
