"""What `tables.yaml` says counts, and what it cannot mean is one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from places import tables

pd = pytest.importorskip("pandas")

from assay.tables.load import load, plan_file  # noqa: E402
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


@pytest.mark.parametrize(("text", "said"), TABLES["what_cannot_be_meant_is_one_sentence"])
def test_what_cannot_be_meant_is_one_sentence(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "tables.yaml").write_text(text)
    with pytest.raises(TaskError) as caught:
        read_settings(tmp_path)
    assert said in str(caught.value) and "tables.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)
