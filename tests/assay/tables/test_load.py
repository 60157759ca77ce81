"""What may be meant in two ways is in doubt, and used with the line that settles it; what is clear
is read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from places import tables

pd = pytest.importorskip("pandas")


from assay.tables.load import load_file  # noqa: E402
from assay.tables.plan import Skipped  # noqa: E402

TABLES = tables("tables")


def column(cells: Sequence[str]) -> str:
    return "k;v\n" + "".join(f"k{i};{c}\n" for i, c in enumerate(cells))


def read(folder: Path, text: str | bytes, rule: str = "") -> Any:
    """(codes with their columns, the frame or None)."""
    path = folder / "t.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    (folder / "tables.yaml").write_text(f'"*": {rule}' if rule else "", encoding="utf-8")
    (found,) = load_file(path, folder)
    skipped = isinstance(found, Skipped)
    assert not skipped or found.why
    doubts = found.doubts if skipped else found[0].doubts
    for doubt in doubts:  # its line, if one settles it, can be pasted under the file's pattern
        loaded = yaml.safe_load(f"t.csv:\n  {doubt.settle}\n")
        assert isinstance(loaded["t.csv"], dict) or not doubt.settle, doubt.settle
    return [(d.code, d.column) for d in doubts], None if skipped else found[1]


@pytest.mark.parametrize("row", TABLES["in_doubt_until_it_is_settled"])
def test_in_doubt_until_it_is_settled(row: list[Any], tmp_path: Path) -> None:
    """A whole file, or the cells of one column; with what they are in doubt of, the line that
    settles it, the values that come round then, and the encoding."""
    text, code, rule, wanted, encoding = [*row, "utf-8"][:5]
    if isinstance(text, str):
        text = (text if "\n" in text else column(text.strip("|").split("|"))).encode(encoding)
    doubts, frame = read(tmp_path, text)
    assert {c for c, _ in doubts} == {code}
    assert frame is None or not {c for _, c in doubts} & set(frame.columns)
    if rule:
        doubts, frame = read(tmp_path, text, rule)
        assert doubts == [] and "v" in frame.columns
        assert wanted is None or frame["v"].tolist() == wanted * (len(frame) // len(wanted))


def test_a_label_that_is_left_out_fills_nothing(tmp_path: Path) -> None:
    sparse = "v;k\nUlm;0.5\n;1.5\n;2.5\n;3.5\nHof;4.5\n;5.5\n;6.5\n;7.5\n"
    doubts, frame = read(tmp_path, sparse, "{fill_down: [v], drop_rows: [6]}")
    assert (doubts, frame) == ([], None)
    doubts, frame = read(tmp_path, sparse, "{fill_down: [v], drop_rows: [5]}")
    assert doubts == [] and frame["v"].tolist() == ["Ulm"] * 3 + ["Hof"] * 4


@pytest.mark.parametrize(("text", "wanted"), TABLES["what_is_clear_is_read"])
def test_what_is_clear_is_read(text: str, wanted: dict[str, list[Any]], tmp_path: Path) -> None:
    doubts, frame = read(tmp_path, text)
    assert doubts == []
    for name, values in wanted.items():
        assert [None if pd.isna(v) else v for v in frame[name].tolist()] == values


def test_utf_16_is_told_by_its_mark_or_zero_bytes(tmp_path: Path) -> None:
    for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
        doubts, frame = read(tmp_path, column(["Köln", "Łódź"]).encode(encoding))
        assert doubts == [] and frame["v"].tolist() == ["Köln", "Łódź"]
