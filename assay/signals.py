"""Signals that end a command, held back for a moment in which it must not be cut off."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager

ENDING = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def undisturbed() -> Generator[None]:
    """Signals that end a command wait until the body is done; they are raised where it ends.

    Blocking them is not enough: another thread may take one, and Python runs its handler in the
    main thread all the same. So the main thread notes them and raises them again.
    """
    seen: list[int] = []
    with ExitStack() as after:  # backwards, and all of them whatever a handler raises
        after.callback(_again, seen)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        after.callback(signal.pthread_sigmask, signal.SIG_SETMASK, before)
        if threading.current_thread() is threading.main_thread():
            for number in ENDING:
                handler = signal.getsignal(number)
                if callable(handler) or handler is signal.SIG_DFL:
                    after.callback(signal.signal, number, handler)
                    signal.signal(number, lambda caught, _: seen.append(caught))
        yield


def _again(seen: list[int]) -> None:
    for number in seen:
        signal.raise_signal(number)
