"""Tasks of every built-in family and of an own one, and what a model is made to say to them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay.task import Task, write_jsonl

OWN = """
from assay.family import Family, Score, Task

def build(seed, count: int = 24):
    def task(i):
        prompt = [{"role": "user", "content": f"Add {i} and {i * 7}.\\nHint: think."}]
        return Task(f"sum-{i}", "sums", "sums", "train", prompt, {"sum": str(i * 8)})

    return {"train": [task(i) for i in range(3, count + 3)]}

def score(task, answer):
    text = answer.text.strip()
    right = float(text == task.gold["sum"])
    return Score(right, 0.1 + 0.9 * right, {}, "ok" if right else "wrong sum")

FAMILY = Family(
    name="sums", score=score, gold=lambda task: task.gold["sum"], build=build,
    cheats={"two": lambda task: "2"},
    slices=lambda task: {"digits": str(len(task.gold["sum"]))},
    tables=lambda rows: [("sums.md", f"{len(rows)} sums\\n")],
)
"""


def asked(words: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": words}]


def task_of(name: str, family: str, gold: dict[str, Any]) -> Task:
    return Task(name, family, "t", "train", asked(f"Do {name}."), gold)


def objects() -> list[Task]:
    """Tasks whose answer is a JSON object."""
    rows: list[dict[str, Any]] = [
        {"helpfulness": 3, "correctness": 4, "complexity": 0, "verbosity": 1, "note": "Fine"},
        {"safe": True, "violated_categories": ["s1", "s2"], "reason": None},
        {"rows": [{"a": 1.5, "b": "x"}, {"a": -2, "b": ""}], "total": 2},
    ]
    golds = [
        {"input_text": "a text", "reference_text": json.dumps(row), "reference_json": row}
        for row in rows
    ]
    return [task_of(f"json-{i}", "structured", gold) for i, gold in enumerate(golds)]


def value_tables() -> list[Task]:
    """Tasks whose answer is a table, of fractions, of whole numbers, or of labels."""
    columns = {
        "reg-IF": ("y", [f"{i * 37 % 11 / 7:.4f}" for i in range(1, 25)]),
        "reg-MM": ("y", [i * 37 % 11 for i in range(1, 25)]),
        "class-MM": ("mood", ["abc"[i * i % 3] for i in range(1, 25)]),
        "class-IF": ("mood", ["abc"[i * i % 3] for i in range(1, 25)]),
    }
    golds = {kind: table_gold(kind, *column) for kind, column in columns.items()}
    return [task_of(f"table-{kind}", "table", gold) for kind, gold in golds.items()]


def table_gold(kind: str, name: str, cells: Sequence[Any]) -> dict[str, Any]:
    truth = "".join(f"{i},{value}\n" for i, value in enumerate(cells, 1))
    gold = {"task_type": kind, "truth_csv": f"row_id,{name}\n{truth}"}
    return {**gold, "key_columns": ["row_id"], "targets": [name]}


def refinement(number: int, status: str, source: int) -> Task:
    text = f"Mail x{number}@a.org now."
    gold = {"input_text": text, "status": status, "text": text.replace("@a.org", "")}
    meta = {"document": f"doc{source}", "has_filter": number % 2 == 0, "domain": "pii"}
    prompt = asked(f"<{number}> {text}")
    return Task(f"r{number}", "refinement", "atomic", "heldout", prompt, gold, meta=meta)


def structured() -> Task:
    gold = {"reference_json": {"prompt_label": "safe"}, "scoring_profile": "structured_json"}
    gold |= {"reference_text": '{"prompt_label": "safe"}', "source_track": "semantic_safety_atomic"}
    return Task("j0", "structured", "safety", "heldout", asked("Is this safe?"), gold)


def table() -> Task:
    gold = table_gold("class-MM", "kind", "aba")
    return Task("t0", "table", "class-MM", "heldout", asked("Predict the kind."), gold)


def answer(number: int) -> Task:
    gold, prompt = {"answer": number, "answer_type": "numeric_exact"}, asked(f"Lake {number}?")
    return Task(f"a{number}", "answer", "lake", "heldout", prompt, gold, meta={"domain": "rain"})


def own(number: int) -> Task:
    prompt, gold = asked(f"Add {number} and {number}."), {"sum": str(2 * number)}
    return Task(f"o{number}", "sums", "add", "heldout", prompt, gold, meta={"source": "book"})


def mixed() -> list[Task]:
    """All five families, several tasks of one source among them."""
    texts = [refinement(i, "KEEP" if i % 3 else "DROP", i // 2) for i in range(6)]
    return [*texts, structured(), table(), answer(7), answer(8), *(own(i) for i in range(1, 9))]


def write_mixed(folder: Path) -> tuple[Path, Path]:
    """(the tasks file, the own family's file)."""
    folder.mkdir(parents=True, exist_ok=True)
    write_jsonl(folder / "mixed.jsonl", [task.to_json() for task in mixed()])
    (folder / "sums.py").write_text(OWN, encoding="utf-8")
    return folder / "mixed.jsonl", folder / "sums.py"


def said(task: Task) -> str:
    """What a model that is right on about half of everything says."""
    if task.family == "refinement":
        return f"<status>KEEP</status><clean_text>{task.gold['text']}</clean_text>"
    if task.family == "sums":
        return "4"
    return {"j0": '{"prompt_label": "safe"}', "a7": "<answer>7</answer>"}.get(task.id, "no idea")


def write_canned(path: Path) -> Path:
    """Those answers as rows of `--model canned:FILE`."""
    write_jsonl(path, [{"match": t.prompt[-1]["content"], "replies": [said(t)]} for t in mixed()])
    return path
