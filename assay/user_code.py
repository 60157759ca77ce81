"""A deadline for functions that are not ours: scorers, golds and cheats of own families."""

from __future__ import annotations

import contextlib
import ctypes
import signal
import threading
from collections.abc import Generator
from types import FrameType

SECONDS = 10.0  # one call of a scorer


class Overtime(BaseException):
    """The deadline; not an `Exception`, so that a scorer's own handler does not swallow it."""


@contextlib.contextmanager
def deadline(seconds: float) -> Generator[None]:
    """Raise `Overtime` in this thread when the body takes longer.

    In the main thread by a timer signal, which also ends regular expressions; in another thread
    between two bytecodes.
    """
    if threading.current_thread() is threading.main_thread():
        with _by_signal(seconds):
            yield
        return
    thread = threading.get_ident()
    timer = threading.Timer(seconds, interrupt_thread, [thread])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextlib.contextmanager
def _by_signal(seconds: float) -> Generator[None]:
    def ring(number: int, frame: FrameType | None) -> None:
        raise Overtime

    before = signal.signal(signal.SIGALRM, ring)
    left, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left)
        signal.signal(signal.SIGALRM, before)


def interrupt_thread(thread: int) -> None:
    """Raise `Overtime` in the thread of that ident, between two of its bytecodes."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(Overtime))
