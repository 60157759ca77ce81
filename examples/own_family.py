"""A family of your own: repair broken JSON. See docs/extend.md."""

import json
import random

from assay import Answer, Family, Score, Task


def score(task: Task, answer: Answer) -> Score:
    gold = task.gold["object"]
    try:
        found = json.loads(answer.text)
        done = float(json.dumps(found, sort_keys=True) == json.dumps(gold, sort_keys=True))
    except (ValueError, RecursionError):
        return Score(0.0, 0.0, {"keys": 0.0}, "not JSON")
    right = sum(found.get(k) == gold[k] for k in gold) if isinstance(found, dict) else 0
    keys = right / max(len(gold), len(found)) if right else 0.0
    return Score(done, 0.5 * done + 0.5 * keys, {"keys": keys}, "ok" if done else "wrong")


def build(seed: int, count: int = 200) -> dict[str, list[Task]]:
    splits: dict[str, list[Task]] = {"train": [], "validation": [], "heldout": []}
    for i in range(count):
        draw = random.Random(f"{seed}/{i}")  # task i depends on (seed, i) alone
        name = draw.choice(["train", "train", "validation", "heldout"])
        gold = {f"{letter}{i}": draw.randrange(100) for letter in draw.sample("abcdef", 2)}
        broken = json.dumps(gold).replace('"', "'").rstrip("}" * draw.randrange(2))
        prompt = [{"role": "user", "content": f"Repair: {broken}"}]
        task = Task(f"json-{i}", "json_repair", "flat", name, prompt, {"object": gold})
        splits[name].append(task)
    return splits


FAMILY = Family(
    "json_repair",
    score,
    gold=lambda task: json.dumps(task.gold["object"]),
    cheats={"copy": lambda task: task.prompt[0]["content"].removeprefix("Repair: ")},
    build=build,
)
