"""Running means of an evaluation, for its live line."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

MOST_CLASSES = 3


class Tally:
    """Counts rows as they come; `text` says what they come to so far."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._start = clock, clock()
        self._scored, self._rows, self._tokens = 0, 0, 0
        self._outcome = self._reward = 0.0
        self._said: Counter[str] = Counter()

    def add(self, row: Mapping[str, Any]) -> None:
        self._rows += 1
        self._tokens += int(row.get("tokens_out") or 0)
        if row["outcome"] is not None:
            self._scored += 1
            self._outcome += float(row["outcome"])
            self._reward += float(row["reward"])
        if row.get("said"):
            self._said[str(row["said"])] += 1

    def text(self) -> str:
        """`outcome 0.41, reward 0.55, KEEP 61%, DROP 30%, 118 tok/s`; failed answers count in no
        mean."""
        parts: list[str] = []
        if self._scored:
            parts.append(f"outcome {self._outcome / self._scored:.2f}")
            parts.append(f"reward {self._reward / self._scored:.2f}")
        for name, count in self._said.most_common(MOST_CLASSES):
            parts.append(f"{name} {count / self._rows:.0%}")
        if lost := self._rows - self._scored:
            parts.append(f"no outcome {lost}")
        seconds = self._clock() - self._start
        if self._tokens and seconds > 0:
            parts.append(f"{self._tokens / seconds:.0f} tok/s")
        return ", ".join(parts)
