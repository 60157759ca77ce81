"""Signals that end a command, held back for a moment in which it must not be cut off."""

from __future__ import annotations

import signal
from collections.abc import Generator
from contextlib import contextmanager

ENDING = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def undisturbed() -> Generator[None]:
    """Signals that end a command wait until the body is done; they are raised where it ends."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
