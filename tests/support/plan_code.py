"""The pandas code that a plan prints gives what `load` gives."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pandas as pd

from assay.tables.plan import ReadPlan


def same_by_code(plan: ReadPlan, frame: Any, root: Path) -> None:
    """The code of a plan, written and read back, gives the frame; `root` is a folder data/."""
    again = ReadPlan.from_json(json.loads(json.dumps(plan.to_json())))
    assert again == plan
    names: dict[str, Any] = {"pd": pd}
    with contextlib.chdir(root.parent):
        exec(again.code(), names)
    pd.testing.assert_frame_equal(names["t"], frame)
