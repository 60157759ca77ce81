"""A progress bar on a terminal, a line now and then in a log file."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, TypeVar

from tqdm import tqdm

T = TypeVar("T")
LINE_SECONDS = 15.0  # between lines when there is no terminal
SHORT_SECONDS = 2.0  # work shorter than this shows nothing


class Bar:
    """`with Bar("sampling", 400) as bar: bar.update(8)`."""

    def __init__(self, desc: str, total: int | None = None) -> None:
        self.desc, self.total, self.done = desc, total, 0
        self._start = self._last = time.monotonic()
        self._bar: tqdm[Any] | None = None

    def __enter__(self) -> Bar:
        if sys.stderr.isatty():
            self._bar = tqdm(
                desc=self.desc,
                total=self.total,
                leave=False,
                delay=SHORT_SECONDS / 4,
                dynamic_ncols=True,
            )
        return self

    def update(self, count: int = 1) -> None:
        self.done += count
        if self._bar is not None:
            self._bar.update(count)
        elif time.monotonic() - self._last >= LINE_SECONDS:
            self._last = time.monotonic()
            print(self._line(), flush=True)

    def _line(self) -> str:
        of = f"/{self.total} ({self.done / self.total:.0%})" if self.total else ""
        return f"{self.desc}: {self.done}{of}, {time.monotonic() - self._start:.0f}s"

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()
        elif kind is None and time.monotonic() - self._start >= SHORT_SECONDS:
            print(self._line(), flush=True)


def progress(items: Iterable[T], desc: str, total: int | None = None) -> Iterator[T]:
    """Yield `items` and show how far the caller got; `total` defaults to their number."""
    if total is None and hasattr(items, "__len__"):
        total = len(items)  # pyright: ignore[reportArgumentType]
    with Bar(desc, total) as bar:
        for item in items:
            yield item
            bar.update()
