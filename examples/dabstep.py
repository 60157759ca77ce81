"""DABstep's tasks, from a folder in its published layout: `data/tasks/dev.jsonl`, `data/context/`.

    assay tasks dabstep --family examples/dabstep.py --out T folder=DIR

A row has `task_id`, `question`, `guidelines`, `level` and `answer`; rows of `all.jsonl` come
without answers and cannot be scored. The outcome follows the published rule (`scorer.py` in
`dabstep_benchmark/evaluation` of the hub's space adyen/DABstep, CC-BY-4.0), written anew
here. That rule takes an answer of many words for right where gold is one of them, and does not look
at signs. So the reward asks for more: the same numbers with their signs, the same items, the same
words.
"""

import json
import math
import re
from difflib import SequenceMatcher
from pathlib import Path

from assay import Answer, Audit, Cheat, Family, Floor, Score, Task, TaskError

_GROUPED = re.compile(r"\$?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+[.,]\d+)")
_NUMBER = re.compile(r"\d*\.\d+|\d+\.?\d*")
_WHOLE = re.compile(r"[-+]?\$?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?%?(?:\s*eur)?")
_LONGEST = 20_000  # characters of an answer; the comparison of texts is quadratic
_ASKED = (
    "{question}\n\n{guidelines}\n\nThe files {files} lie in your work folder. End with one line "
    "`Answer: …` that holds nothing but the answer."
)


def said(text: str) -> str | None:
    """What stands behind `Answer:` in the last such line."""
    found = re.findall(r"(?m)^\s*answer:[ \t]*(.*?)\s*$", text[-_LONGEST:], re.IGNORECASE)
    return found[-1].lower() if found else None


def _first_number(text: str) -> float | None:
    found = _NUMBER.search(text.replace(",", "").replace("$", ""))
    return float(found[0]) if found else None


def _near(one: float, two: float) -> bool:
    """Equal after rounding to the fewer decimals, or within 1e-4."""
    if one >= 1 or two >= 1:
        places = min(len(str(n).partition(".")[2]) for n in (one, two))
        if round(one, places) == round(two, places):
            return True
    return one == two or math.isclose(one, two, rel_tol=1e-4, abs_tol=1e-4)


def _items(text: str) -> list[str]:
    bare = text.strip().removeprefix("[").removesuffix("]")
    return sorted(item.strip() for item in re.split("[,;]", bare) if item.strip())


def _same_words(one: str, two: str) -> bool:
    if re.sub(r"\W", "", one) == re.sub(r"\W", "", two):
        return True
    first, second = re.findall(r"\w+", one), re.findall(r"\w+", two)
    if first and second and 1 in (len(first), len(second)):
        return set(first) <= set(second) or set(second) <= set(first)
    return SequenceMatcher(None, one, two).ratio() > 0.95


def published(one: str, two: str) -> bool:
    """Whether two lower-case answers are equal by the published rule."""
    one, two = one.strip(), two.strip()
    grouped = _GROUPED.fullmatch(one) or _GROUPED.fullmatch(two)
    if not grouped and any(mark in text for text in (one, two) for mark in ";,"):
        first, second = _items(one), _items(two)
        alike = len(first) == len(second)
        return first == second or (alike and all(map(published, first, second)))
    numbers = _first_number(one), _first_number(two)
    if numbers[0] is not None and numbers[1] is not None:
        return _near(numbers[0], numbers[1])
    return not grouped and _same_words(one, two)


def _signed(text: str) -> float | None:
    """The number that a text is, and nothing else."""
    bare = text.strip()
    if not _WHOLE.fullmatch(bare) or not re.search(r"\d", bare):
        return None
    return float(re.sub(r"[,$%\s]|eur", "", bare))


def strict(one: str, two: str) -> bool:
    """Whether the answers are equal and hold nothing else. Only the reward asks for that."""
    numbers = _signed(one), _signed(two)
    if numbers[0] is not None and numbers[1] is not None:
        same_sign = (numbers[0] < 0) == (numbers[1] < 0)
        return same_sign and _near(abs(numbers[0]), abs(numbers[1]))
    first, second = _items(one), _items(two)
    if len(first) > 1 or len(second) > 1:
        return len(first) == len(second) and all(map(strict, first, second))
    return re.sub(r"[^\w-]", "", one) == re.sub(r"[^\w-]", "", two)


def score(task: Task, answer: Answer) -> Score:
    found = said(answer.text)
    if found is None:
        return Score(0.0, 0.0, {"published": 0.0, "strict": 0.0}, "no_answer")
    gold = str(task.gold["answer"]).lower()
    right = published(found, gold)
    exact = right and strict(found, gold)
    why = "ok" if exact else "right by the published rule alone" if right else "wrong"
    parts = {"published": float(right), "strict": float(exact)}
    return Score(float(right), float(exact), parts, why)


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise TaskError(f"{path}: {error.strerror}; give folder=DIR, the dataset's data/") from None
    rows: list[dict[str, str]] = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            rows.append({k: str(row[k]) for k in ("task_id", "question", "guidelines", "level")})
            rows[-1]["answer"] = str(row.get("answer") or "")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise TaskError(f"{path}:{number}: no row of DABstep ({error!r})") from None
    return rows


def build(seed: int, folder: str = "", part: str = "dev") -> dict[str, list[Task]]:
    """The tasks of `tasks/{part}.jsonl` that have an answer. `folder`: the dataset's data/."""
    del seed  # nothing is drawn
    top = Path(folder).resolve()
    rows = _rows(top / "tasks" / f"{part}.jsonl")
    files = {p.name: str(p) for p in sorted((top / "context").glob("*")) if p.is_file()}
    if not files:
        raise TaskError(f"{top / 'context'}: holds no files; the questions are about them")
    tasks: list[Task] = []
    for row in rows:
        if not row["answer"].strip():
            continue  # hidden, or an empty list, which no answer at all would give
        text = _ASKED.format(**row, files=", ".join(files))
        meta = {"published": True, "benchmark": "DABstep", "licence": "CC-BY-4.0"}
        tasks.append(
            Task(
                id=f"dabstep-{row['task_id']}",
                family="dabstep",
                track=row["level"],
                split="eval",
                prompt=[{"role": "user", "content": text}],
                gold={"answer": row["answer"]},
                tools=("python_executor",),
                files=files,
                meta=meta,
            )
        )
    if not tasks:
        raise TaskError(f"{top / 'tasks'}: no row of {part}.jsonl has an answer; give part=dev")
    return {"eval": tasks}


def _every_word(task: Task) -> str:
    """One line with every word of the question: right by the published rule where one is gold."""
    return "Answer: " + " ".join(re.findall(r"\w+", task.prompt[0]["content"]))


FAMILY = Family(
    "dabstep",
    score,
    gold=lambda task: f"Answer: {task.gold['answer']}",
    cheats={
        "not_applicable": lambda task: "Answer: Not Applicable",
        "every_word": Cheat(_every_word, admits=1.0),
    },
    audit=Audit(
        forms={"line": lambda task, text: f"Answer: {text}"},
        floors={"": Floor(outcome=1.0, reward=0.5, beyond=0.0)},
    ),
    build=build,
)
