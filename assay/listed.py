"""Words and sentences that a person reads and mends: YAML files beside the code that uses them."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any


@lru_cache(maxsize=32)
def listed(path: Path) -> Any:
    """What a YAML file of the project says, read once. Callers change nothing in it."""
    import yaml

    return yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)


def beside(file: str, name: str) -> Any:
    """`listed` of the file `name` in the folder of a module: `beside(__file__, "words.yaml")`."""
    return listed(Path(file).with_name(name))
