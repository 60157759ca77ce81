"""Tables of cases that tests go through, from tests/data."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml


@cache
def _read(file: str) -> dict[str, list[Any]]:
    return yaml.safe_load((Path(__file__).parents[1] / "data" / file).read_text("utf-8"))


def cases(name: str, file: str = "rollouts.yaml") -> list[Any]:
    """The rows of a table."""
    return _read(file)[name]
