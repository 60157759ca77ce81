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


def test_rows_left_out_keep_the_fill_in_place(tmp_path: Path) -> None:
    """Without the row that holds a merged cell there is none to fill from; without others, is."""
    name = "merged_towns.xlsx"
    for rows, left in (([3, 9], False), ([4, 10], True)):
        folder = folder_of([name], tmp_path / str(left))
        rule = f"{name}: {{merged: fill, drop_rows: {rows}}}"
        (folder / "tables.yaml").write_text(rule, encoding="utf-8")
        _, (frame,) = read(name, folder)
        right = [row[:2] for n, row in enumerate(rights(name)[1], 2) if n not in rows]
        assert frame["department"].tolist() == [row[1] for row in right]
        assert ("town" in frame) is left
        assert not left or frame["town"].tolist() == [row[0] for row in right]


def test_a_rule_says_what_formulas_hold(tmp_path: Path) -> None:
    asked = ("no_result", "missing"), ("no_result", "stored"), ("stored_zero", "stored")
    for (name, rule), in_doubt in zip(asked, (False, True, False), strict=True):
        file = f"formulas_{name}.xlsx"
        folder = folder_of([file], tmp_path / rule / name)
        (folder / "tables.yaml").write_text(f"{file}: {{formulas: {rule}}}", encoding="utf-8")
        assert bool(read(file, folder)[0]) is in_doubt
