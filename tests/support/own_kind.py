"""A family of one's own, as a user would write it: count the letters."""

from __future__ import annotations

from typing import Any

from assay.family import Answer, Family, Score, Task
from rollouts.tools import Context, tool


@tool
def count(text: str, ctx: Context) -> int:
    """Count letters.

    Args:
        text: The letters.
    """
    ctx.files["last.txt"] = str(len(text))
    return len(text)


def score(task: Task, answer: Answer) -> Score:
    said = answer.files.get("last.txt", answer.text.encode()).decode()
    right = float(said == str(task.gold["count"]))
    return Score(right, right, {"chars": float(len(said))})


def build(seed: int, tasks: int = 3) -> dict[str, list[Task]]:
    def task(i: int) -> Task:
        prompt = [{"role": "user", "content": f"count {'a' * (i + 1 + seed)}"}]
        return Task(f"own{i}", "letters", "count", "train", prompt, {"count": i + 1 + seed})

    return {"train": [*map(task, range(tasks))]}


GOLD: Any = {"gold": lambda task: str(task.gold["count"]), "cheats": {"one": lambda task: "1"}}
FAMILY = Family("letters", score, **GOLD, build=build)
ACTING = Family(
    name="acting",
    score=score,
    gold=lambda task: Answer(files={"last.txt": str(task.gold["count"]).encode()}),
    environment=[count],
)
