"""`assay audit`: planted leaks are found, clean tasks pass."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

pd = pytest.importorskip("pandas")

from assay import main  # noqa: E402
from assay.task import Task, write_jsonl  # noqa: E402

RNG = random.Random(3)


def noise(count: int) -> list[float]:
    return [round(RNG.gauss(0, 1), 6) for _ in range(count)]


def task(top: Path, name: str, track: str, train: Any, val: Any, truth: Any) -> Task:
    keys = [c for c in truth.columns if c != "y"]
    files = {"train.csv": f"{name}_train.csv", "val.csv": f"{name}_val.csv"}
    train.to_csv(top / files["train.csv"], index=False)
    val.to_csv(top / files["val.csv"], index=False)
    gold = {
        "task_type": track,
        "truth_csv": truth.to_csv(index=False),
        "key_columns": keys,
        "targets": ["y"],
    }
    return Task(name, "table", track, "train", [], gold, files=files)


def tabular(top: Path, name: str, track: str, leak: bool) -> Task:
    """Leak: MM repeats training rows in the test file; XF has the target in other units; IF is one
    label throughout."""
    train = pd.DataFrame({"x": noise(80), "y": noise(80)})
    val = pd.DataFrame({"row_id": range(1, 31), "x": noise(30)})
    truth = pd.DataFrame({"row_id": range(1, 31), "y": noise(30)})
    if track.startswith("class"):
        train["y"] = [RNG.choice("ab") for _ in range(80)]
        truth["y"] = train["y"].mode()[0] if leak else [RNG.choice("ab") for _ in range(30)]
    if leak and track.endswith("-MM"):
        val["x"] = train["x"][:30].tolist()
    if leak and track == "time-XF":
        train["x"], val["x"] = train["y"] * 1.8 + 32, truth["y"] * 1.8 + 32
    return task(top, name, track, train, val, truth)


def forecast(top: Path, name: str, leak: bool) -> Task:
    days = pd.date_range("2024-01-01", periods=60).strftime("%Y-%m-%d").tolist()
    whole = pd.DataFrame({"day": days, "y": noise(60)})
    asked = whole.iloc[40:]
    return task(top, name, "time-CF", whole.iloc[: 50 if leak else 40], asked[["day"]], asked)


def test_planted_leaks_are_found_and_clean_tasks_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tracks = ("class-IF", "reg-MM", "time-XF")
    tasks = [tabular(tmp_path, f"{t}{leak}", t, leak) for t in tracks for leak in (True, False)]
    tasks += [forecast(tmp_path, f"cf{leak}", leak) for leak in (True, False)]
    write_jsonl(tmp_path / "tasks.jsonl", (t.to_json() for t in tasks))
    args = ["audit", "--tasks", str(tmp_path / "tasks.jsonl"), "--out", str(tmp_path / "a.jsonl")]
    assert main([*args, "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert whole["ok"] and whole["families"]["table"]["broken"] == []
    report = whole["families"]["table"]["own"]
    rows = {r["id"]: r for r in map(json.loads, (tmp_path / "a.jsonl").read_text().splitlines())}
    assert rows["reg-MMTrue"]["leaks"] == {"test rows seen in training": 1.0}
    assert rows["time-XFTrue"]["leaks"] == {"columns that tell the target": ["x"]}
    assert rows["cfTrue"]["leaks"] == {"asked rows in the training file": 0.5}
    assert rows["class-IFTrue"]["guessable"] and not rows["class-IFFalse"]["guessable"]
    assert all(not row["leaks"] for name, row in rows.items() if name.endswith("False"))
    assert report["tasks"] == 8 and report["same_answers"] == 0
    assert report["tracks"]["class-IF"] == {"tasks": 2, "leaky": 0, "guessable": 1}
    assert all(row["scores"]["gold"]["outcome"] == 1.0 for row in rows.values())


def test_tasks_that_cannot_be_audited_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tabular(tmp_path, "a", "reg-MM", False)
    (tmp_path / "a_val.csv").unlink()
    write_jsonl(tmp_path / "tasks.jsonl", [made.to_json()])
    assert main(["audit", "--tasks", str(tmp_path / "tasks.jsonl")]) == 2
    assert "task a: its train or val file is not there" in capsys.readouterr().err
    (tmp_path / "tasks.jsonl").write_text("")
    assert main(["audit", "--tasks", str(tmp_path / "tasks.jsonl")]) == 2
