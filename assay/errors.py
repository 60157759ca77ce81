"""The error that a user can mend; what to install for libraries that are optional, and those that
take long to import, loaded when they are first used: a command starts without them."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class TaskError(ValueError):
    """Input that cannot be used. The message is one sentence: the file, row and field, and what to
    do."""


def install_extra(extra: str) -> str:
    """What to run for the optional libraries of `extra` (pyproject.toml).

    Assay is installed from its checkout: the package of this name in public indexes is another
    project.
    """
    return f"run `pip install -e '.[{extra}]'` in the checkout of Assay"


class _Lazy:
    """A module by its name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, part: str) -> Any:
        return getattr(import_module(self._name), part)


pandas: Any = _Lazy("pandas")
