"""A family from outside in one file, for tests; any part of it can be replaced."""

from __future__ import annotations

from pathlib import Path

GOOD = '''
"""Text to reverse: a small family of one file."""
import random
from dataclasses import dataclass
from typing import Literal

from assay.family import Answer, Cheat, Family, Score, Task


def build(seed, count: int = 6, heldout: int = 3, letters: Literal["low", "up"] = "low",
          words: list[str] = ["ab"], share: float = 0.5):
    rng = random.Random(seed)

    def task(number, split):
        text = "".join(rng.choice("abcdefgh") for _ in range(12)) + str(number)
        text = text.upper() if letters == "up" else text
        prompt = [{"role": "user", "content": f"Reverse: {text}"}]
        return Task(f"reverse-{number}", "reverse", "plain", split, prompt, {"text": text[::-1]})

    made = {"train": [task(n, "train") for n in range(count)]}
    made["heldout"] = [task(count + n, "heldout") for n in range(heldout)]
    return made


def score(task, answer):
    right = answer.text.strip() == task.gold["text"]
    return Score(float(right), float(right), {}, "ok" if right else "wrong")


FAMILY = Family(
    name="reverse",
    score=score,
    gold=lambda task: task.gold["text"],
    build=build,
    cheats={"copy": lambda task: task.prompt[-1]["content"]},
)
'''


def family_file(folder: Path, old: str = "", new: str = "") -> Path:
    """A file with the family, where `new` stands in place of `old`."""
    assert old in GOOD
    path = folder / "own.py"
    path.write_text(GOOD.replace(old, new, 1) if old else GOOD, encoding="utf-8")
    return path
