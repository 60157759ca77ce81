"""What other trainers hand over, as tasks and files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, cast

from assay.task import Task


def files_of(found: Any) -> dict[str, bytes]:
    """Files as bytes; text is UTF-8, and what is no mapping is no files."""
    if not isinstance(found, Mapping):
        return {}
    made = cast("Mapping[str, Any]", found)
    return {
        str(name): body if isinstance(body, bytes) else str(body).encode("utf-8", "surrogatepass")
        for name, body in made.items()
        if body is not None  # Arrow fills names that other rows have
    }


def task_of(row: Any) -> Task:
    """A task from JSON text or from its mapping. Raises `TaskError` or ValueError."""
    if isinstance(row, str):
        return _from_text(row)
    return Task.from_json(cast("Mapping[str, Any]", row))


@lru_cache(maxsize=4096)
def _from_text(text: str) -> Task:
    return Task.from_json(json.loads(text))
