"""DSBench's own number: how far a submission gets from the baseline's score to the best one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from front import command

pytest.importorskip("pandas")
pytest.importorskip("sklearn")

from assay.task import Task, TaskError, read_tasks, with_absolute_files
from train.evaluation.dare_dsbench import line, relative_gap

NAME = "own-houses"
# the share of rows that are right, row by row, as scripts of competitions compare
SCRIPT = """
import argparse, csv, os
p = argparse.ArgumentParser()
for name in ("path", "name", "answer_file", "predict_file"):
    p.add_argument("--" + name)
a = p.parse_args()
rows = [list(csv.DictReader(open(f))) for f in (a.answer_file, a.predict_file)]
right = sum(x["id"] == y["id"] and x["y"] == y["y"] for x, y in zip(*rows))
open(os.path.join(a.path, a.name, "result.txt"), "w").write(str(right / len(rows[0])))
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """DSBench's `data_modeling` folder with one competition, whose baseline scores 0.5."""
    top = tmp_path / "data_modeling"
    tables = {
        "data/data_resplit/{}/train.csv": "id,x,y\n1,0.5,a\n2,0.7,b\n",
        "data/data_resplit/{}/test.csv": "id,x\n9,0.1\n7,0.2\n5,0.3\n3,0.4\n",
        "data/data_resplit/{}/sample_submission.csv": "id,y\n9,a\n7,a\n5,a\n3,a\n",
        "data/answers/{}/test_answer.csv": "id,x,y\n3,0.4,a\n5,0.3,b\n7,0.2,b\n9,0.1,a\n",
        "evaluation/{}_eval.py": SCRIPT,
        "save_performance/GT/{}/result.txt": "1.0",
        "save_performance/baseline/{}/result.txt": "0.5",
    }
    for path, text in tables.items():
        file = top / path.format(NAME)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return top


@pytest.fixture
def task(home: Path, tmp_path: Path) -> Task:
    words = ["dare", "--import-dsbench", str(home / "data"), "--out", str(tmp_path / "T")]
    assert command("tasks")(words) == 0
    (found,) = read_tasks(tmp_path / "T" / "tasks.jsonl")
    return with_absolute_files(found, tmp_path / "T")


@pytest.mark.parametrize(
    ("prediction", "gap"),
    [
        ("row_id,y\n1,a\n2,b\n3,b\n4,a\n", 1.0),
        ("row_id,y\n4,a\n3,b\n2,b\n1,a\n", 1.0),  # in another order
        ("row_id,y\n1,a\n2,b\n3,b\n4,b\n", 0.5),
        ("row_id,y\n1,a\n2,a\n3,a\n4,a\n", 0.0),  # as the baseline
        ("row_id,y\n1,b\n2,a\n3,a\n4,b\n", 0.0),  # below it
        ("row_id,y\n1,a\n2,b\n3,b\n", 0.5),  # a row is missing
        ("row_id,z\n1,a\n", 0.0),
        ("row_id,y\n1,a\n1,a\n2,b\n3,b\n4,a\n", 0.0),
        ("", 0.0),
        (None, 0.0),
    ],
)
def test_the_share_of_the_way_from_the_baseline_to_the_best(
    home: Path, task: Task, prediction: str | None, gap: float
) -> None:
    data = None if prediction is None else prediction.encode()
    assert relative_gap(home, task, data) == pytest.approx(gap)


def test_a_script_that_fails_scores_nothing_and_a_copy_that_lacks_files_is_told(
    home: Path, task: Task
) -> None:
    script = home / "evaluation" / f"{NAME}_eval.py"
    script.write_text("raise SystemExit(1)")
    assert relative_gap(home, task, b"row_id,y\n1,a\n2,b\n3,b\n4,a\n") == 0.0
    script.unlink()
    with pytest.raises(TaskError, match=r"own-houses_eval\.py is not there"):
        relative_gap(home, task, None)
    (home / "save_performance" / "GT" / NAME / "result.txt").unlink()
    with pytest.raises(TaskError, match=r"unpack save_performance\.zip"):
        relative_gap(home, task, None)


def test_an_evaluation_says_both_numbers(home: Path, task: Task, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    words = ["--tasks", f"dare:{tmp_path / 'T'}", "--model", "gold", "--out", str(tmp_path / "E")]
    assert command("eval")([*words, f"dare.dsbench={home}"]) == 0
    (said,) = (tmp_path / "E").rglob("table.md")
    text = said.read_text("utf-8")
    assert "DSBench, 1 competitions: mean over competitions 100.00" in text
    assert "by DSBench's own number 100.00" in text
    rows: list[Any] = json.loads((tmp_path / "E" / "results.json").read_text("utf-8"))["rows"]
    assert rows[0]["more"]["relative_gap"] == 1.0


def test_without_a_copy_only_the_metric_is_said() -> None:
    row = {"outcome": 0.5, "more": {"competition": "a"}}
    said = line([row, {**row, "outcome": 1.0, "more": {"competition": "b"}}])
    assert "2 competitions: mean over competitions 75.00 by DARE-bench's metric" in said
    assert said.endswith("own number – (dare.dsbench=DIR)")
    assert line([{"outcome": 1.0, "more": {}}]) == ""
