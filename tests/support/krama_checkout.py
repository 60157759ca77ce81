"""A stand-in for KramaBench's repository: its folders and file names, none of its content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from small_lake import make_lake

QUESTION = {"north": "What is the mean rain in June in Amherst?", "south": "And in Boston?"}


def task(name: str, query: str, answer: Any, **more: Any) -> dict[str, Any]:
    """A row of a workload file, with one sub-task."""
    both = {"answer_type": "numeric_exact", "data_sources": ["rain_amherst.csv"]}
    part = {"id": f"{name}-1", "query": f"How many years ({name})?", "answer": 30, **both}
    part["step"] = "Load 'rain_amherst.csv'."
    row = {"id": name, "query": query, "answer": answer, "runtime": 0.1, "subtasks": [part]}
    return row | both | more


def make_checkout(folder: Path) -> Path:
    """`workload/` with two domains' files and two files for a first try, which name tasks of these
    domains anew; `data/DOMAIN/input/` for both domains."""
    workload = folder / "workload"
    workload.mkdir(parents=True)
    legal = [
        task("legal-easy-3", QUESTION["north"], 1.5),
        task("legal-hard-1", "How many rows has Boston in legal?", 31),  # doubted by its id
    ]
    files = {
        "environment.json": [task("environment-easy-1", QUESTION["south"], 2.5)],
        "legal.json": legal,
        "legal-tiny.json": [{**legal[1], "answer_type": "numeric_approximate", "subtasks": []}],
        "quick-start-questions.json": [
            task("environment-easy-1", "Another question?", 7),
            task("environment-hard-2", "A third one?", 8),
        ],
    }
    for name, rows in files.items():
        (workload / name).write_text(json.dumps(rows), encoding="utf-8")
    for domain in ("environment", "legal"):
        make_lake(folder / "data" / domain / "input")
    return folder
