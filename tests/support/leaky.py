"""Own families whose scorers pay without the work, for tests of the audit."""

from __future__ import annotations

from pathlib import Path

from assay.family import Family, use_families
from assay.task import Task

LEAKY = '''
"""Sums, with a reward that leaks in one way."""
from assay.family import Answer, Cheat, Family, Floor, Score, Task


def build(seed, count: int = 24):
    def task(i, split):
        text = f"Add {i} and {i * 7}.\\nHint: think."
        return Task(f"sum-{i}", "leaky", "sums", split, [{"role": "user", "content": text}],
                    {"sum": str(i * 8)})

    return {"train": [task(i, "train") for i in range(3, count + 3)]}


def score(task, answer):
    text = answer.text.strip()
    right = text == task.gold["sum"]
    outcome = float(right)
    reward = LEAK
    return Score(outcome, reward, {}, "ok" if right else "wrong")


FAMILY = Family("leaky", score, gold=lambda task: task.gold["sum"], build=build)
'''
LEAKS = {
    "none": "outcome",
    "length": "max(outcome, min(1.0, len(text) / 400))",  # long answers pay
    "digits": "max(outcome, 0.9 * text.isdigit())",  # any number pays
    "echo": "max(outcome, 0.8 * ('Add' in text))",  # the prompt pays
    "null": "max(outcome, 0.7 * ('null' in text))",
    "raises": "outcome / (text != 'yes')",
}


def leaky_file(folder: Path, leak: str) -> Path:
    """A family of one file whose reward leaks as `leak` says."""
    path = folder / f"leaky_{leak}.py"
    path.write_text(LEAKY.replace("LEAK\n", f"{LEAKS[leak]}\n", 1), encoding="utf-8")
    return path


def leaky_family(folder: Path, leak: str) -> tuple[Family, list[Task]]:
    """That family in use, and tasks of it."""
    (family,) = use_families([str(leaky_file(folder, leak))])
    assert family.build is not None
    return family, [*family.build(0)["train"]]
