"""A family of one's own, as a user would write it: count the letters."""

from __future__ import annotations

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
    words = ["a" * (i + 1 + seed) for i in range(tasks)]
    return {
        "train": [
            Task(
                f"own{i}",
                "letters",
                "count",
                "train",
                [{"role": "user", "content": f"count {w}"}],
                {"count": len(w)},
            )
            for i, w in enumerate(words)
        ]
    }


FAMILY = Family(
    name="letters",
    score=score,
    gold=lambda task: str(task.gold["count"]),
    cheats={"one": lambda task: "1"},
    build=build,
)
ACTING = Family(
    name="acting",
    score=score,
    gold=lambda task: Answer(files={"last.txt": str(task.gold["count"]).encode()}),
    environment=[count],
)
