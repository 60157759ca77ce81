"""Small evaluations as `assay eval` leaves them: answers in words, and episodes with tools."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from mixed_tasks import refinement, said
from places import ROOT

import assay
from assay.task import Task, read_tasks, write_jsonl

SUMS = """
from assay.family import Family, Score

def score(task, answer):
    if "boom" in answer.text:
        raise RuntimeError("no ruler")
    right = float(answer.text.strip() == task.gold["sum"])
    return Score(right, 0.1 + 0.9 * right, {"own": right}, "ok" if right else "wrong sum")

FAMILY = Family(name="sums", score=score, gold=lambda task: task.gold["sum"])
"""
CALL = (
    'I look.\n<tool_call>\n{"name": "query", "arguments": '
    '{"sql": "SELECT boxes FROM stock WHERE fruit = \'fig\'"}}\n</tool_call>'
)


def sums() -> list[Task]:
    """Right, wrong, not scored at all, and half of a surrogate pair."""
    return [
        Task(
            f"sums/{n}",
            "sums",
            "add",
            "heldout",
            [{"role": "user", "content": f"{n} + {n} ="}],
            {"sum": str(2 * n)},
        )
        for n in range(4)
    ]


SAID = {"0 + 0 =": "0", "1 + 1 =": "3", "2 + 2 =": "boom", "3 + 3 =": "six \ud83d"}


def evaluated(folder: Path, tasks: list[Task], replies: dict[str, list[str]], *words: str) -> Path:
    """The folder of an evaluation whose model says `replies` to what holds their keys."""
    folder.mkdir(parents=True, exist_ok=True)
    write_jsonl(folder / "tasks.jsonl", [task.to_json() for task in tasks])
    rows = [json.dumps({"match": match, "replies": texts}) for match, texts in replies.items()]
    (folder / "canned.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    named = ["--tasks", str(folder / "tasks.jsonl"), "--model", f"canned:{folder}/canned.jsonl"]
    assert assay.main(["eval", *named, "--out", str(folder / "out"), *words]) in (0, 3)
    return folder / "out"


def in_words(folder: Path) -> Path:
    """Ten tasks of two families, two samples each; one task has no outcome."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sums.py").write_text(SUMS, encoding="utf-8")
    texts = [refinement(i, "KEEP" if i % 3 else "DROP", i // 2) for i in range(6)]
    replies = {task.prompt[-1]["content"]: [said(task)] for task in texts}
    replies |= {match: [text] for match, text in SAID.items()}
    more = [
        "--family",
        str(folder / "sums.py"),
        "sampling.n=2",
        "sampling.temperature=1",
        "--seed",
        "7",
    ]
    return evaluated(folder, [*texts, *sums()], replies, *more, "sampling.temperature=0.5")


def with_tools(folder: Path) -> Path:
    """Three episodes of examples/own_tools.py that ask the database; the last answer is wrong."""
    folder.mkdir(parents=True, exist_ok=True)
    family = Path(shutil.copy(ROOT / "examples" / "own_tools.py", folder / "own_tools.py"))
    built = folder / "built"
    assert assay.main(
        ["tasks", "shop", "--family", str(family), "--out", str(built), "count=6"]
    ) in (0, None)
    tasks = read_tasks(built / "heldout.jsonl")[:3]
    replies = {t.prompt[-1]["content"]: [CALL, t.gold["boxes"]] for t in tasks[:2]}
    replies[tasks[2].prompt[-1]["content"]] = [CALL, "none"]
    return evaluated(folder, tasks, replies, "--family", str(family), "tools.turns=3")


def results(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "results.json").read_text(encoding="utf-8"))
