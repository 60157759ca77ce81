"""What init tells the user process, and what that one says of itself before the code runs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from rollouts.sandbox.model import Limits

# What the user process says of itself before the code runs; it cannot be said afterwards.
# CLOSED: the jail is closed. BEGUN: nothing is left of ours that could fail. FAILED, with the
# reason: our own set-up went wrong, so that the exit status says nothing about the code.
CLOSED, BEGUN, FAILED = b"k", b"r", b"!"


@dataclass(frozen=True)
class Streams:
    """Descriptors that become 0, 1, 2 of the user process. `ready` carries our own word to init and
    is gone before the code runs; `control` exists only in a session."""

    stdin: int
    stdout: int
    stderr: int
    ready: int
    control: int = -1


@dataclass(frozen=True)
class Order:
    """What the user process is told of its call."""

    limits: Limits
    seed: int | None
    argv: tuple[str, ...]

    @staticmethod
    def read(fields: Mapping[str, Any]) -> Order:
        return Order(Limits.checked(fields["limits"]), fields["seed"], tuple(fields["argv"]))


@dataclass(frozen=True)
class Ready:
    """Our own words to init, which the code cannot forge: the descriptor is gone before it runs."""

    descriptor: int

    def say(self, word: bytes) -> None:
        os.write(self.descriptor, word)

    def failed(self, error: BaseException) -> NoReturn:
        with contextlib.suppress(OSError):
            self.say(FAILED + f"{type(error).__name__}: {error}".encode("utf-8", "replace")[:2000])
        os._exit(1)

    def close(self) -> None:
        os.close(self.descriptor)
