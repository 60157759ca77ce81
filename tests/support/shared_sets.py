"""Sets of tasks with files, for tests of `assay push` and `assay pull`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from small_lake import make_lake
from travelling import demo_tasks, own_tasks

from assay.task import Task, write_jsonl


def asking(name: str, files: dict[str, str], **more: Any) -> Task:
    """A question over a lake."""
    row: dict[str, Any] = {
        "id": name,
        "family": "answer",
        "track": "lake-rain",
        "split": "train",
        "prompt": [{"role": "user", "content": f"How many years are there ({name})?"}],
        "gold": {"answer_type": "numeric_exact", "answer": 30, "subtasks": []},
        "files": files,
        "meta": {"licences": ["CC0", "MIT"], "draw": 7},
    }
    return Task.from_json(row | more)


def mixed_set(folder: Path) -> Path:
    """Texts, and questions over a lake inside of the set, one beside it, and an empty folder."""
    place = folder / "T"
    make_lake(place / "lakes" / "rain", settled=True)
    make_lake(folder / "away" / "rain", settled=True)
    (place / "lakes" / "empty").mkdir()
    train = [
        *demo_tasks(6)[:4],
        asking("in", {"lake": "lakes/rain"}),
        asking("out", {"lake": "../away/rain"}, track="lake-away", meta={"licence": "CC-BY-4.0"}),
        asking("none", {"lake": "lakes/empty"}),
    ]
    write_jsonl(place / "train.jsonl", (task.to_json() for task in train))
    write_jsonl(place / "heldout.jsonl", (task.to_json() for task in own_tasks(3)))
    write_jsonl(place / "validation.jsonl", [])
    write_jsonl(place / "refused.jsonl", [{"name": "x", "why": ["too short"]}])
    (place / "certificate.json").write_text('{"ok": true, "seed": 41, "tasks": {"train": 7}}\n')
    return place


def bytes_of(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {
        p.relative_to(folder).as_posix(): p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }
