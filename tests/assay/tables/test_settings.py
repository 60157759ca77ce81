"""What `tables.yaml` says counts, and what it cannot mean is one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from places import tables

pd = pytest.importorskip("pandas")

from assay.tables.load import load, plan_file, plan_folder  # noqa: E402
from assay.tables.plan import ReadPlan, Skipped  # noqa: E402
from assay.tables.settings import read_settings  # noqa: E402
from assay.task import TaskError  # noqa: E402

TABLES = tables("tables")

OPEN = "a;d;n\n1.234;01/02/2020;x\n5.678;03/04/2020;NA\n"


def reading(folder: Path, rule: str, text: str = OPEN) -> ReadPlan | Skipped:
    (folder / "t.csv").write_text(text)
    (folder / "tables.yaml").write_text(rule)
    (found,) = plan_file(folder / "t.csv")
    return found


@pytest.mark.parametrize(("rule", "column", "wanted"), TABLES["a_rule_decides"])
def test_a_rule_decides(
    rule: str, column: str, wanted: list[object] | None, tmp_path: Path
) -> None:
    found = reading(tmp_path, rule)
    if wanted is None:
        assert isinstance(found, Skipped)
        return
    assert isinstance(found, ReadPlan), found.said()
    values = load(found, tmp_path)[column].tolist()
    assert [None if pd.isna(v) else v for v in values] == wanted


def test_a_file_can_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.csv").write_text("a,b\n1,2\n")
    (tmp_path / "tables.yaml").write_text('"sub/*": {use: false}')
    said = [r.said() for r in plan_folder(tmp_path)]
    assert "sub/a.csv: tables.yaml says use: false" in said


@pytest.mark.parametrize(("text", "said"), TABLES["what_cannot_be_meant_is_one_sentence"])
def test_what_cannot_be_meant_is_one_sentence(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "tables.yaml").write_text(text)
    with pytest.raises(TaskError) as caught:
        read_settings(tmp_path)
    assert said in str(caught.value) and "tables.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["missing: {z: [x]}", "text: [z]", 'dates: {z: "%Y"}'])
def test_a_column_that_is_not_there_is_said(key: str, tmp_path: Path) -> None:
    found = reading(tmp_path, f'"*": {{{key}}}')
    assert isinstance(found, Skipped) and "names a column 'z' that is not there" in found.why
