"""How far a long piece of work is: a bar on a terminal, else a plain line now and then.

Everything goes to standard error: what a command prints as its result stays apart.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, TextIO, TypeVar

T = TypeVar("T")
FIRST_S = 2.0  # work that ends before shows nothing on a terminal
EVERY_S = 15.0  # between two lines where there is no terminal


class Progress:
    """Counts what is done; says the rate and, with a total, the time left.

    `total` counts units, unless `add` is told where else the work stands (bytes of the input).
    `done` units were done before: they count, but not in the rate. Work that ends before the first
    line of a log says nothing there. Use as a context manager.
    """

    def __init__(
        self,
        name: str,
        unit: str,
        total: int | None = None,
        to: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        done: int = 0,
    ) -> None:
        from tqdm import tqdm

        self._to = sys.stderr if to is None else to
        self._name, self._unit, self._total, self._clock = name, unit, total, clock
        self._done = self._count = self._place = done
        self._apart = False
        self._start = self._said = clock()
        self._lines, self._note = 0, ""
        self._bar: tqdm[Any] | None = None
        if self._to.isatty():
            self._bar = tqdm(
                total=total,
                desc=name,
                unit=unit,
                delay=FIRST_S,
                dynamic_ncols=True,
                file=self._to,
                initial=done,
            )

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(said=error is None)

    def close(self, said: bool = True) -> None:
        """End the bar; in a log, `said` gives one last line where there was one before."""
        if self._bar is not None:
            self._bar.close()
        elif self._lines and said:
            self._say(self._clock())

    def add(self, count: int = 1, total: int | None = None, place: int | None = None) -> None:
        """`count` more units are done; `total`: a better guess at how many there are; `place`: how
        much of the total that is, where the total counts something else."""
        self._count += count
        self._total = total or self._total
        self._apart = place is not None
        done, self._place = self._place, self._count if place is None else place
        if self._bar is not None:
            self._bar.total = self._total
            if self._apart:
                self._bar.set_description(f"{self._name}: {self._count:,} {self._unit}", False)
                self._bar.unit, self._bar.unit_scale = "B", True
            self._bar.update(self._place - done)
        elif (now := self._clock()) - self._said >= EVERY_S:
            self._said = now
            self._say(now)

    def note(self, text: str) -> None:
        """What is known so far (`outcome 0.41, 118 tok/s`), shown behind the count."""
        self._note = text
        if self._bar is not None:
            self._bar.set_postfix_str(text, False)

    def above(self, line: str) -> None:
        """A line of the command's own output, on standard output, above the bar if there is one."""
        if self._bar is None:
            print(line, flush=True)
        else:
            self._bar.write(line, file=sys.stdout)
            sys.stdout.flush()

    def _say(self, now: float) -> None:
        self._lines += 1
        print(self.line(now - self._start), file=self._to, flush=True)

    def line(self, seconds: float) -> str:
        """`facts: 12,000 of 20,000 documents, 55 a second, 0:02:25 left`."""
        rate = (self._count - self._done) / seconds if seconds > 0 else 0.0
        of = f" of {self._total:,}" if self._total and not self._apart else ""
        said = f"{self._name}: {self._count:,}{of} {self._unit}, {_rate(rate)} a second"
        note = f", {self._note}" if self._note else ""
        if not self._total:
            return said + note
        if self._apart:
            said += f", {min(1.0, self._place / self._total):.0%}"
        made = self._place - self._done
        if made > 0 and self._place < self._total:
            left = round(seconds * (self._total - self._place) / made)
            said += f", {left // 3600}:{left // 60 % 60:02d}:{left % 60:02d} left"
        return said + note


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def progress(items: Iterable[T], name: str, unit: str, total: int | None = None) -> Iterator[T]:
    """Yield `items` and show how far the caller got; `total` defaults to their number."""
    if total is None and hasattr(items, "__len__"):
        total = len(items)  # pyright: ignore[reportArgumentType]
    with Progress(name, unit, total) as bar:
        for item in items:
            yield item
            bar.add()
