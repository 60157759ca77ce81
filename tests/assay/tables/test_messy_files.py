"""Files as people have them: every doubt is said, nothing else is, and what is read is right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from messy_files import EXPECTED, folder_of, rights, wrong_cells

from assay.tables.load import load_file
from assay.tables.plan import Skipped
from assay.tables.settings import read_settings

pytest.importorskip("python_calamine", reason="needs the extra `build`")
NAMES = sorted(EXPECTED)
TO_SETTLE = [name for name in NAMES if "settle" in EXPECTED[name]]


def read(name: str, folder: Path) -> tuple[list[tuple[str, str]], list[Any]]:
    """(code and column of every doubt, the frames) of a file."""
    doubts: list[tuple[str, str]] = []
    frames: list[Any] = []
    for found in load_file(folder / name, folder, read_settings(folder)):
        if isinstance(found, Skipped):
            assert found.doubts, found.said()
            doubts += [(d.code, d.column) for d in found.doubts]
            continue
        plan, frame = found
        doubts += [(d.code, d.column) for d in plan.doubts]
        frames.append(frame)
    return doubts, frames


@pytest.mark.parametrize("name", NAMES)
def test_doubts_are_said_and_what_is_left_is_right(name: str, tmp_path: Path) -> None:
    doubts, frames = read(name, folder_of([name], tmp_path))
    assert sorted(set(doubts)) == sorted(map(tuple, EXPECTED[name]["doubts"]))
    in_doubt = {column for _, column in doubts}
    assert bool(frames) == ("" not in in_doubt)
    for frame in frames:
        assert wrong_cells(frame, name) == []
        assert not in_doubt & set(frame.columns)


@pytest.mark.parametrize("name", TO_SETTLE)
def test_the_line_of_tables_yaml_settles_it(name: str, tmp_path: Path) -> None:
    doubts, frames = read(name, folder_of([name], tmp_path, settle=True))
    assert doubts == []
    assert len(frames) == 1
    assert wrong_cells(frames[0], name) == []
    assert [str(c) for c in frames[0].columns] == rights(name)[0]
