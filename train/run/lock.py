"""One process per run folder: two would tear each other's checkpoints."""

from __future__ import annotations

import os
import platform
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from configs.fields import ConfigError

NAME = ".lock"
HOLDER = ".lock-holder"


@contextmanager
def held(folder: Path) -> Generator[None]:
    """Hold the run folder until the block ends, or the process does, however it ends.

    Raises `ConfigError` in one sentence when another process holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / NAME, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise ConfigError(
            f"{folder}: {_holder(folder)} is running in this folder; wait for it to end, or set "
            "another out="
        ) from None
    try:
        (folder / HOLDER).write_text(f"process {os.getpid()} on {platform.node()}\n")
        yield
    finally:
        (folder / HOLDER).unlink(missing_ok=True)
        lock.release()


def _holder(folder: Path) -> str:
    try:
        return (folder / HOLDER).read_text(encoding="utf-8").strip() or "another process"
    except OSError:
        return "another process"
