"""The pandas code that a plan prints gives what `load` gives."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pandas as pd

from assay.tables.load import load_file
from assay.tables.plan import Frame, ReadPlan, Skipped


def same_by_code(plan: ReadPlan, frame: Any, root: Path) -> None:
    """The code of a plan gives the frame; `root` is a folder data/."""
    names: dict[str, Any] = {"pd": pd}
    with contextlib.chdir(root.parent):
        exec(plan.code(), names)
    pd.testing.assert_frame_equal(names["t"], frame)


def read_table(path: Path, rule: str = "") -> tuple[ReadPlan, Frame]:
    """The one table of a file in a folder data/ under a rule of its `tables.yaml`, which the
    printed code reads as well."""
    (path.parent / "tables.yaml").write_text(f'"*": {rule}' if rule else "", encoding="utf-8")
    (found,) = load_file(path, path.parent)
    assert not isinstance(found, Skipped), found.said()
    same_by_code(*found, path.parent)
    return found
