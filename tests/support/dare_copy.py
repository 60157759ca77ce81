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
    (home / "question_list.json").write_text(json.dumps(rows), "utf-8")
    (top / "LICENSE").mkdir(exist_ok=True)
    lines = ["folder_name,license_name", *(f"{name},MIT" for name in names), ""]
    (top / "LICENSE" / "kaggle_license_test.csv").write_text("\n".join(lines), "utf-8")
    return home


def _database(home: Path, name: str, draw: random.Random) -> dict[str, Any]:
    folder, series = home / "databases" / name, name.endswith("_ts")
    for part in ("source", "verify"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    rows = [_row(draw, i) for i in range(80)]
    about: dict[str, Any] = {"target": ["y"], "save_file_type": "csv"}
    about["problem_type"] = "time_series_analysis" if series else "classification"
    about["selected_features"] = ["a", "b"]
    page = {"title": "Loans of a bank", "keywords": ["health"]}
    said = {"question": about, "data_info": {}, "meta_data": page}
    (folder / "verify" / "all_metadata.json").write_text(json.dumps(said), "utf-8")
    text = "".join(f"column {k} of {name} holds {draw.random()} and more\n" for k in "abcd")
    (folder / "source" / "metadata.txt").write_text(text, "utf-8")
    for path, lines in (_series if series else _table)(rows[:60], rows[60:]).items():
        (folder / path).write_text("\n".join(lines) + "\n", "utf-8")
    needed = {
        f"needed_files_{v}": [
            "train.csv" if series else f"train_{v}.csv",
            f"val_{v}.csv",
            "metadata.txt",
        ]
        for v in ("v1", "v2")
    }
    return needed | {
        "file_path": name,
        "task": "regression" if name.endswith("_reg") else about["problem_type"],
        "question_v1": ASKED.format(target="y", name=name),
        "question_v2": "Predict `y` for each `row_id` of `val_v2.csv`.",
        "available_tools": ["python_executor"],
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
    rows = [(str(i), *row) for i, row in enumerate(test, 1)]
    return {
        "source/train.csv": ["t,a,b,y", *(",".join(row) for row in train)],
        "source/val_v1.csv": ["row_id,t,a,b", *(",".join(row[:4]) for row in rows)],
        "source/val_v2.csv": ["t", *(row[1] for row in rows)],
        "verify/ground_truth_v1.csv": ["row_id,y", *(f"{row[0]},{row[3]}" for row in rows)],
        "verify/ground_truth_v2.csv": ["t,y", *(f"{row[1]},{row[3]}" for row in rows)],
    }
