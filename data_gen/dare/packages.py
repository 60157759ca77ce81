"""What is asked of the tables that two packages carry: a list that a person can read.

`data_gen/packages.yaml` names, for a table, its targets, how each is asked for (`class`, `reg`,
`series`) and the columns that are left out beside it, each with the reason. Tables that are not in
it are not used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from assay.files import yaml_beside

FILE = Path(__file__).parents[1] / "packages.yaml"


@dataclass(frozen=True)
class Listed:
    """One target of a table; `without` are columns that are no features beside it."""

    target: str
    kind: str
    without: frozenset[str] = frozenset()


@lru_cache(maxsize=1)
def listed() -> Mapping[str, tuple[Listed, ...]]:
    """Table by its source's name → what is asked of it."""
    return {
        name: tuple(
            Listed(one["ask"], one["as"], frozenset(map(str, one.get("without", {}))))
            for one in asked
        )
        for name, asked in yaml_beside(__file__, "../packages.yaml").items()
    }
