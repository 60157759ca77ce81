# ruff: noqa: E402
"""What the audit says of table tasks: planted leaks are found, clean tasks pass."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

pd = pytest.importorskip("pandas")

from assay.task import Task, TaskError
from data_gen.dare.leaks import audit_tables

RNG = random.Random(3)


def noise(count: int) -> list[float]:
    return [round(RNG.gauss(0, 1), 6) for _ in range(count)]


def task(top: Path, track: str, leak: bool) -> Task:
    """Leak: MM repeats training rows in the test file; XF has the target in other units; IF is one
    label throughout; CF asks for times that were trained on."""
    train = pd.DataFrame({"x": noise(80), "y": noise(80)})
    val = pd.DataFrame({"row_id": range(1, 31), "x": noise(30)})
    truth = pd.DataFrame({"row_id": range(1, 31), "y": noise(30)})
    if track == "class-IF":
        train["y"] = [RNG.choice("ab") for _ in range(80)]
        truth["y"] = train["y"].mode()[0] if leak else [RNG.choice("ab") for _ in range(30)]
    if track == "reg-MM" and leak:
        val["x"] = train["x"][:30].tolist()
    if track == "time-XF" and leak:
        train["x"], val["x"] = train["y"] * 1.8 + 32, truth["y"] * 1.8 + 32
    if track == "time-CF":
        days = pd.date_range("2024-01-01", periods=60).strftime("%Y-%m-%d")
        whole = pd.DataFrame({"day": days, "y": noise(60)})
        train, truth = whole.iloc[: 50 if leak else 40], whole.iloc[40:]
        val = truth[["day"]]
    name = f"{track}-{leak}"
    files = {"train.csv": f"{name}_train.csv", "val.csv": f"{name}_val.csv"}
    train.to_csv(top / files["train.csv"], index=False)
    val.to_csv(top / files["val.csv"], index=False)
    keys = [c for c in truth.columns if c != "y"]
    gold = {"task_type": track, "key_columns": keys, "targets": ["y"]}
    gold["truth_csv"] = truth.to_csv(index=False)
    return Task(name, "table", track, "train", [], gold, files=files)


LEAKS: dict[str, dict[str, Any]] = {
    "reg-MM": {"test rows seen in training": 1.0},
    "time-XF": {"columns that tell the target": ["x"]},
    "time-CF": {"asked rows in the training file": 0.5},
    "class-IF": {},
}


def test_planted_leaks_are_found_and_clean_tasks_pass(tmp_path: Path) -> None:
    tasks = [task(tmp_path, track, leak) for track in LEAKS for leak in (True, False)]
    rows, report, broken = audit_tables(tasks, [tmp_path] * len(tasks))
    found = {t.id: row for t, row in zip(tasks, rows, strict=True)}
    for track, leaks in LEAKS.items():
        assert found[f"{track}-True"]["leaks"] == leaks and not found[f"{track}-False"]["leaks"]
    assert [name for name, row in found.items() if row["guessable"]] == ["class-IF-True"]
    assert report["tasks"] == 8 and report["same_answers"] == 0 and not broken
    assert report["tracks"]["class-IF"] == {"tasks": 2, "leaky": 0, "guessable": 1}
    (tmp_path / tasks[0].files["val.csv"]).unlink()
    with pytest.raises(TaskError, match=tasks[0].id):
        audit_tables(tasks, [tmp_path] * len(tasks))
