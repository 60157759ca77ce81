"""Being asked to stop: USR1, TERM and the first INT set a flag; the loops save after the step they
are in.

A cluster sends one of the first two before it takes a node away. Exit status 75 (BSD's EX_TEMPFAIL)
tells the job script that the run is not done and that the same command goes on from here. INT is
somebody at a terminal: exit status 130, and a second one ends the process at once.
"""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any

from assay.task import SavedAndStopped

EXIT_STOPPED, EXIT_INTERRUPTED = 75, 130
SIGNALS = (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT)


class Stopped(SavedAndStopped):
    """The run saved step `at` (or finished that stage) and ended because it was asked to, `by` a
    signal of that name."""

    def __init__(self, at: int | str, by: str | None = None) -> None:
        what = f"saved step {at}" if isinstance(at, int) else f"{at} is done"
        asked = "interrupted" if by == "SIGINT" else "asked to stop"
        super().__init__(f"{asked}; {what}, run the same command to go on")
        self.status = EXIT_INTERRUPTED if by == "SIGINT" else EXIT_STOPPED


class StopFlag:
    """Calling it tells whether a stop was asked for. `listen` installs the handlers."""

    def __init__(self) -> None:
        self.asked: str | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __call__(self) -> bool:
        return self.asked is not None

    def listen(self) -> StopFlag:
        """From now on (main thread only) USR1, TERM and INT ask for a stop instead of killing.
        What ignores INT goes on ignoring it."""
        for number in SIGNALS:
            if number == signal.SIGINT and signal.getsignal(number) == signal.SIG_IGN:
                continue
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def deaf(self) -> None:
        """The signals mean what they meant before `listen`."""
        for number, before in self._before.items():
            signal.signal(number, before)
        self._before.clear()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.asked = signal.Signals(number).name
        once_more = ""
        if number == signal.SIGINT:
            signal.signal(number, signal.default_int_handler)
            once_more = "; interrupt once more to end at once"
        print(f"{self.asked}: saving after this step{once_more}", flush=True)
