"""The check of a finished build finds what was planted in it, and nothing else."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

pd = pytest.importorskip("pandas")

from benchmarks.dare_leaks import computable, main, targets_of  # noqa: E402
from data_gen.dare.layout import csv_bytes, json_bytes, write_database  # noqa: E402

ROWS, CUT = 300, 240


def numbers(seed: int) -> Any:
    rng = random.Random(seed)
    frame = pd.DataFrame({c: [rng.uniform(1, 9) for _ in range(ROWS)] for c in "abc"})
    frame["kind"] = [rng.choice("xyz") for _ in range(ROWS)]
    frame["y"] = [rng.gauss(0, 1) for _ in range(ROWS)]
    return frame


PLANTED: dict[str, Any] = {
    "nothing": lambda f: f["y"],
    "a line": lambda f: 3 * f["a"] - 1,
    "a parabola": lambda f: (f["a"] - 5) ** 2,
    "a logarithm": lambda f: f["b"].map(lambda v: 2 * v**0.5),
    "a mapping": lambda f: f["kind"].map({"x": "low", "y": "mid", "z": "high"}),
    "intervals": lambda f: (f["c"] > 4).map({True: "old", False: "young"}),
    "a difference": lambda f: f["a"] - 2 * f["b"],
    "a quotient": lambda f: f["a"] / f["c"],
    "the row's place": lambda f: pd.Series([i % 7 for i in range(ROWS)]),
}


def tabular(top: Path, frame: Any) -> dict[str, Any]:
    """A modelling database; its first rows are for training."""
    kind = "classification" if frame["y"].dtype == object else "regression"
    train, test = frame[:CUT], frame[CUT:].reset_index(drop=True)
    test.insert(0, "row_id", range(1, len(test) + 1))
    about = {"question": {"save_file_type": "csv", "problem_type": kind}}
    files = {
        "source/train_v2.csv": csv_bytes(train),
        "source/val_v2.csv": csv_bytes(test.drop(columns="y")),
        "verify/ground_truth.csv": csv_bytes(test[["row_id", "y"]]),
        "verify/all_metadata.json": json_bytes(about),
    }
    write_database(top, "one", files)
    return {
        "file_path": "one",
        "task": kind,
        "target": ["y"],
        "question_v1": "",
        "question_v2": "?",
    }


@pytest.mark.parametrize("name", list(PLANTED))
def test_a_planted_leak_is_found(tmp_path: Path, name: str) -> None:
    frame = numbers(3)
    row = tabular(tmp_path, frame.assign(y=PLANTED[name](frame)))
    (asked,) = targets_of(tmp_path, row)
    assert bool(computable(asked)) == (name != "nothing")


@pytest.mark.parametrize("leak", ["", "month", "line", "moved"])
def test_leaks_of_a_series_are_found(
    tmp_path: Path, leak: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(2)
    days = pd.Series(pd.date_range("2019-01-01", periods=ROWS, freq="3D"))
    walk = pd.Series([rng.gauss(0, 1) for _ in range(ROWS)])
    load = {"": walk, "month": days.dt.month * 1.5, "line": pd.Series(range(ROWS)) * 2.0}
    y = load.get(leak, walk)
    frame = pd.DataFrame({"day": days.dt.strftime("%Y-%m-%d"), "wind": walk.shift(40).fillna(0)})
    frame["wind"] = y.shift(1).fillna(0.0) if leak == "moved" else frame["wind"]
    frame["y"] = y
    train, test = frame[:CUT], frame[CUT:].reset_index(drop=True)
    test.insert(0, "row_id", range(1, len(test) + 1))
    question = {"time_column": "day", "entity_columns": [], "save_file_type": "csv"}
    files = {
        "source/train.csv": csv_bytes(train),
        "source/val_v1.csv": csv_bytes(test.drop(columns="y")),
        "verify/ground_truth_v1.csv": csv_bytes(test[["row_id", "y"]]),
        "verify/ground_truth_v2.csv": csv_bytes(test[["day", "y"]]),
        "verify/all_metadata.json": json_bytes({"question": question}),
    }
    write_database(tmp_path, "one", files)
    row = {"file_path": "one", "task": "time_series_analysis", "target": ["y"]}
    listed = [row | {"question_v1": "?", "question_v2": "?"}]
    (tmp_path / "question_list.json").write_bytes(json_bytes(listed))
    assert main([str(tmp_path)]) == int(bool(leak))
    count = {"": 0, "month": 2, "line": 2, "moved": 1}[leak]
    assert f"{count} of 2 targets computable" in capsys.readouterr().out
