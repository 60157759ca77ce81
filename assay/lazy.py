"""Libraries that take long to import, loaded when they are first used: a command starts without
them."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class _Lazy:
    """A module by its name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, part: str) -> Any:
        return getattr(import_module(self._name), part)


pandas: Any = _Lazy("pandas")
