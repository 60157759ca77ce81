"""Running a coroutine from synchronous code."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
_runner: asyncio.Runner | None = None


def asyncio_run(step: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine, always on the same event loop: a sandbox belongs to the loop it was
    started on, and starting one costs a second."""
    global _runner
    if _runner is None:
        _runner = asyncio.Runner()
    return _runner.run(step)
