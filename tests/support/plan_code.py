"""The pandas code that a plan prints gives what `load` gives."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pandas as pd

from assay.tables.plan import ReadPlan


def same_by_code(plan: ReadPlan, frame: Any, root: Path) -> None:
    """The code of a plan gives the frame; `root` is a folder data/."""
    names: dict[str, Any] = {"pd": pd}
    with contextlib.chdir(root.parent):
        exec(plan.code(), names)
    pd.testing.assert_frame_equal(names["t"], frame)
