"""A stand-in for a copy of DARE-bench's release: its folders and files, with tables of our own."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

ASKED = "Clean the table, fit a model, predict `{target}` of {name} and save `prediction.csv`."


def write_copy(top: Path, names: tuple[str, ...], seed: int = 0, where: str = "data/eval") -> Path:
    """A checkout with these databases (`…_class`, `…_reg`, `…_ts`) in `where`; returns that folder.
    IF answers are there, so that nothing has to be simulated."""
    home = top / where
    rows = [_database(home, name, random.Random(f"{seed} {name}")) for name in names]
    home.mkdir(parents=True, exist_ok=True)
    (home / "question_list.json").write_text(json.dumps(rows), "utf-8")
    (top / "LICENSE").mkdir(exist_ok=True)
    listed = [f"{name},MIT" for name in names]
    (top / "LICENSE" / "kaggle_license_test.csv").write_text(
        "\n".join(["folder_name,license_name", *listed]) + "\n", "utf-8"
    )
    return home


def _database(home: Path, name: str, draw: random.Random) -> dict[str, Any]:
    series = name.endswith("_ts")
    source, verify = home / "databases" / name / "source", home / "databases" / name / "verify"
    for folder in (source, verify):
        folder.mkdir(parents=True, exist_ok=True)
    rows = [_row(draw, i) for i in range(80)]
    train, test = rows[:60], rows[60:]
    about = {
        "target": ["y"],
        "problem_type": "time_series_analysis" if series else "classification",
        "save_file_type": "csv",
        "selected_features": ["a", "b"],
    }
    page = {"title": "Loans of a bank", "keywords": ["health"]}
    (verify / "all_metadata.json").write_text(
        json.dumps({"question": about, "data_info": {}, "meta_data": page}), "utf-8"
    )
    text = "".join(f"column {k} of {name} holds {draw.random()} and more\n" for k in "abcd")
    (source / "metadata.txt").write_text(text, "utf-8")
    made = _series if series else _table
    for path, lines in made(train, test).items():
        (home / "databases" / name / path).write_text("\n".join(lines) + "\n", "utf-8")
    files = {
        "v1": ["train.csv", "val_v1.csv"] if series else ["train_v1.csv", "val_v1.csv"],
        "v2": ["train.csv", "val_v2.csv"] if series else ["train_v2.csv", "val_v2.csv"],
    }
    kind = "time_series_analysis" if series else "classification"
    kind = "regression" if name.endswith("_reg") else kind
    return {
        "file_path": name,
        "task": kind,
        "question_v1": ASKED.format(target="y", name=name),
        "question_v2": "Predict `y` for each `row_id` of `val_v2.csv`.",
        "available_tools": ["python_executor"],
        **{f"needed_files_{v}": [*listed, "metadata.txt"] for v, listed in files.items()},
    }


def _row(draw: random.Random, i: int) -> tuple[str, str, str, str]:
    a, b = draw.gauss(0, 1), draw.gauss(5, 2)
    return f"2024-01-01 {i // 60:02}:{i % 60:02}", f"{a:.6f}", f"{b:.6f}", str(int(a + b > 5))


def _table(train: list[Any], test: list[Any]) -> dict[str, list[str]]:
    seen = ["a,b,y", *(f"{a},{b},{y}" for _, a, b, y in train)]
    asked = ["row_id,a,b", *(f"{i},{a},{b}" for i, (_, a, b, _) in enumerate(test, 1))]
    truth = ["row_id,y", *(f"{i},{row[3]}" for i, row in enumerate(test, 1))]
    return {
        **{f"source/{n}.csv": seen for n in ("train_v1", "train_v1_no_err", "train_v2")},
        **{f"source/{n}.csv": asked for n in ("val_v1", "val_v2")},
        **{f"verify/{n}.csv": truth for n in ("ground_truth", "simulated_pred_local")},
    }


def _series(train: list[Any], test: list[Any]) -> dict[str, list[str]]:
    return {
        "source/train.csv": ["t,a,b,y", *(",".join(row) for row in train)],
        "source/val_v1.csv": [
            "row_id,t,a,b",
            *(f"{i},{t},{a},{b}" for i, (t, a, b, _) in enumerate(test, 1)),
        ],
        "source/val_v2.csv": ["t", *(row[0] for row in test)],
        "verify/ground_truth_v1.csv": [
            "row_id,y",
            *(f"{i},{row[2]}" for i, row in enumerate(test, 1)),
        ],
        "verify/ground_truth_v2.csv": ["t,y", *(f"{row[0]},{row[2]}" for row in test)],
    }
