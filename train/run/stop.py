"""Being asked to stop: USR1 and TERM set a flag; the loops save after the step they are in.

A cluster sends one of the two before it takes a node away. Exit status 75 (BSD's EX_TEMPFAIL)
tells the job script that the run is not done and that the same command goes on from here.
"""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any

from rewards.task import SavedAndStopped

EXIT_STOPPED = 75
SIGNALS = (signal.SIGUSR1, signal.SIGTERM)


class Stopped(SavedAndStopped):
    """The run saved step `at` (or finished that stage) and ended because it was asked to."""

    def __init__(self, at: int | str) -> None:
        what = f"saved step {at}" if isinstance(at, int) else f"{at} is done"
        super().__init__(f"asked to stop; {what}, run the same command to go on")


class StopFlag:
    """Calling it tells whether a stop was asked for. `listen` installs the handlers."""

    def __init__(self) -> None:
        self.asked: str | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __call__(self) -> bool:
        return self.asked is not None

    def listen(self) -> StopFlag:
        """From now on (main thread only) USR1 and TERM ask for a stop instead of killing."""
        for number in SIGNALS:
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def deaf(self) -> None:
        """The signals mean what they meant before `listen`."""
        for number, before in self._before.items():
            signal.signal(number, before)
        self._before.clear()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.asked = signal.Signals(number).name
        print(f"{self.asked}: saving after this step", flush=True)
