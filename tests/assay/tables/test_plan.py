"""A plan is carried out and printed alike; columns in doubt and rows left out are in neither."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest
from places import tables
from plan_code import same_by_code

pytest.importorskip("pandas")

from assay.tables.load import load, plan_file
from assay.tables.plan import ReadPlan, Skipped
from assay.tables.settings import Doubt

TABLES = tables("tables")

TEXT = "id,town,n\n1,Ulm,5\n1,Bonn ,6\n3,Total,11\n4,ULM,7\n* a note,,\n5,Hof,8\n"


def plan_of(root: Path, rule: str, name: str = "t.csv", text: str = TEXT) -> ReadPlan | Skipped:
    root.mkdir(exist_ok=True)
    if name.endswith(".gz"):
        with gzip.open(root / name, "wt") as file:
            file.write(text)
    else:
        (root / name).write_text(text)
    (root / "tables.yaml").write_text(rule)
    return plan_file(root / name)[0]


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
@pytest.mark.parametrize(("rule", "wanted"), TABLES["rows_and_names_are_the_users"])
def test_rows_and_names_are_the_users(
    name: str, rule: str, wanted: dict[str, list[object]], tmp_path: Path
) -> None:
    root = tmp_path / "data"
    plan = plan_of(root, f'"*": {rule}', name)
    assert isinstance(plan, ReadPlan), plan.said()
    frame = load(plan, root)
    assert {c: frame[c].tolist() for c in wanted} == wanted
    same_by_code(plan, frame, root)


@pytest.mark.parametrize("missing", ["", ", missing: {town: [NA]}"])
def test_marks_of_one_column_and_cells_filled_down(missing: str, tmp_path: Path) -> None:
    root = tmp_path / "data"
    text = "town,people,share\nUlm,1.234,0.5\n,5.678,0.25\nNA,1.234.567,1.5\n,9,2\n"
    rule = f'"*": {{fill_down: [town], decimal: {{people: ","}}{missing}}}'
    plan = plan_of(root, rule, text=text)
    assert isinstance(plan, ReadPlan), plan.said()
    frame = load(plan, root)
    assert plan.doubts == () and frame["people"].tolist() == [1234, 5678, 1234567, 9]
    assert frame["town"].fillna("?").tolist() == ["Ulm", "Ulm", "?", "?"]
    assert frame["share"].tolist() == [0.5, 0.25, 1.5, 2]
    same_by_code(plan, frame, root)


def test_a_column_in_doubt_is_left_out(tmp_path: Path) -> None:
    root = tmp_path / "data"
    plan = plan_of(root, "", text="a,b,c\n1,x,2020-01-02\n2,y,2020-01-03\n")
    assert isinstance(plan, ReadPlan)
    plan = replace(plan, doubts=(Doubt("sentinel", "it may be one", column="a"),))
    assert plan.used == ("b", "c")
    frame = load(plan, root)
    assert list(frame.columns) == ["b", "c"]
    same_by_code(plan, frame, root)
