"""Questions over files as people have them: gold is right by the values that a person reads."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from assay_command import rows
from front import command
from messy_files import EXPECTED, FOLDER, folder_of

pytest.importorskip("python_calamine", reason="needs the extra `build`")
pytestmark = pytest.mark.slow
FILES = [name for name in sorted(EXPECTED) if EXPECTED[name].get("note") != "series"]
SHEET = re.compile(r"(?:sheet|table) '.*?' of |table \d+ of ")
READS = re.compile(r"^# Load ([^\n]+)\n.*?^(?=\w*found_\d+ = len\((\w+)\))", re.M | re.S)


def right_frame(name: str) -> Any:
    """The table as a person reads it."""
    kinds = EXPECTED[name].get("kinds", {})
    texts = {column: str for column, kind in kinds.items() if kind == "text"}
    dates = [column for column, kind in kinds.items() if kind == "date"]
    path, empty = FOLDER / "right" / f"{name}.csv", {"keep_default_na": False, "na_values": [""]}
    return pd.read_csv(path, dtype=texts, parse_dates=dates, **empty)


def by_hand(pipeline: str) -> Any:
    """What a pipeline answers over the right tables, whatever it reads."""
    frames: dict[str, Any] = {}

    def instead(found: re.Match[str]) -> str:
        name = SHEET.sub("", found[1].partition(" [")[0].partition(" (")[0])
        frames[name] = right_frame(name)
        return f"{found[2]} = RIGHT[{name!r}].copy()\n"

    code = READS.sub(instead, pipeline)
    assert "data/" not in code, code
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(code, {"RIGHT": frames})
    return json.loads(said.getvalue().strip().splitlines()[-1])["main-task"]


def alike(one: Any, two: Any) -> bool:
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(alike, one, two))
    if isinstance(one, int | float) and isinstance(two, int | float):
        return abs(one - two) <= 1e-9 * max(1, abs(one))
    return one == two


@pytest.mark.parametrize("settle", [False, True])
def test_gold_of_lakes_is_right(settle: bool, tmp_path: Path) -> None:
    folder = folder_of(FILES, tmp_path / "lake", settle)
    words = ["--lakes", str(folder), "--count", "60", "--workers", "1"]
    words += ["--heldout-share", "0", "--validation-share", "0"]
    assert command("tasks", "lake")([*words, "--out", str(tmp_path / "out")]) == 0
    tasks = rows(tmp_path / "out" / "train.jsonl")
    assert len(tasks) >= 40
    golds = [task["gold"] for task in tasks]
    wrong = [g for g in golds if not alike(g["answer"], by_hand(g["pipeline"]))]
    assert wrong == []
