"""Our scorers in the shapes that other trainers call: verl's reward loop, TRL's GRPO trainer, and
tools that know prompts and texts.

All score through `score_answer`, the table that our own loops use, so a reward is the same number
wherever it is computed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from assay.family import family_named, family_of, gold_answer, score_answer, use_families
from assay.task import RIGHT, Answer, Score, Task, TaskError, read_tasks, unscored

# Keys of verl's extra_info: the model's last message alone, whether it was cut off, and the files
# that the episode left (name to bytes or text).
SCORED_TEXT = "assay_text"
TRUNCATED = "assay_truncated"
FILES = "assay_files"
# names in `Score.parts` that every rollout of a family is logged with: trainers want the same
# columns of every row
PARTS: Mapping[str, tuple[str, ...]] = {
    "refinement": (
        "rg",
        "rs",
        "status_match",
        "strict_equal",
        "edit_calibration",
        "format",
        "said_drop",
        "progress",
    ),
    "structured": (
        "rg",
        "status_match",
        "strict_equal",
        "json_parsed",
        "field_accuracy",
        "format",
    ),
    "table": ("exists", "usable"),
    "answer": ("answered", "in_order", "subtask_credit", "subtask_reward"),
    "sql": ("runs", "twins", "published", "bird"),
}


def verl_compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any] | None = None,
    weights: Mapping[str, Any] | None = None,
    **unused: Any,
) -> dict[str, float]:
    """verl's `compute_score`. `ground_truth` is a task as JSON text.

    The same keys for every row of a family, numbers only: `score` (the reward), `acc` (the
    outcome), `valid` (0 when scorer or infrastructure failed: then the others are 0), and the
    reward's parts. `weights` are the settings of the run, by family name: objects, or mappings of
    their fields (verl hands over `reward_kwargs`). Never raises: verl drops a rollout whose reward
    raises without a word.

    `solution_str` is the whole decoded response, tool output included, which a model could make
    say anything; with `extra_info["assay_text"]` only what the model said last is scored.
    Tasks that are answered in files need those in `extra_info["assay_files"]`.
    """
    del data_source, unused
    info = extra_info or {}
    try:
        task = task_of(ground_truth)
        family_of(task)
    except Exception:  # a row that cannot be scored is not a wrong answer
        return {"score": 0.0, "acc": 0.0, "valid": 0.0}
    try:
        text = info.get(SCORED_TEXT)
        text = text if isinstance(text, str) else solution_str
        answer = Answer(text, bool(info.get(TRUNCATED, False)), files_of(info.get(FILES)))
        score = score_answer(task, answer, settings_of(weights))
    except Exception as error:
        score = unscored(f"{type(error).__name__}: {error}")
    return numbers(task, score)


def numbers(task: Task, score: Score) -> dict[str, float]:
    """Write a score as verl's reward dict; the parts are those of `PARTS`, so that all rows of a
    family have the same keys."""
    valid = score.outcome is not None and score.reward is not None
    row = {
        "score": float(score.reward or 0.0) if valid else 0.0,
        "acc": float(score.outcome or 0.0) if valid else 0.0,
        "valid": float(valid),
    }
    for name in sorted(PARTS.get(task.family, ())):
        value = score.parts.get(name, 0.0)
        row[f"part_{name}"] = float(value) if math.isfinite(value) else 0.0
    return row


def settings_of(weights: Mapping[str, Any] | None) -> dict[str, Any]:
    """Read settings by family name as each family's own weights. Raises `TaskError` for a family
    that is not known, TypeError for a field that its weights do not have."""
    made: dict[str, Any] = {}
    for name, given in (weights or {}).items():
        kind = family_named(name).weights
        fields = cast("Mapping[str, Any]", given)
        made[name] = kind(**fields) if isinstance(given, Mapping) else given
    return made


def trl_reward(
    completions: Sequence[Any],
    task: Sequence[Any],
    weights: Mapping[str, Any] | None = None,
    files: Sequence[Mapping[str, bytes | str] | None] | None = None,
    **unused: Any,
) -> list[float | None]:
    """A reward function for TRL's `GRPOTrainer`: the dataset needs a column `task` (JSON text).

    Completions are texts, or message lists whose last assistant message is scored; `files` what
    each left in files, for tasks that are answered there (a `rollout_func` returns such columns).
    None marks a rollout without an outcome, which TRL leaves out.
    """
    del unused
    if len(completions) != len(task):
        raise ValueError(f"{len(completions)} completions for {len(task)} tasks; wanted one each")
    left = files if files is not None else [None] * len(task)
    return [
        score_answer(task_of(row), Answer(last_message(said), files=files_of(made)), weights).reward
        for said, row, made in zip(completions, task, left, strict=True)
    ]


def last_message(completion: Any) -> str:
    """Return what the model said last: the text itself, or the last assistant message's content."""
    if isinstance(completion, str):
        return completion
    for message in reversed(cast("Sequence[Mapping[str, Any]]", completion)):
        if message.get("role") == "assistant":
            return str(message.get("content") or "")
    return ""


# ---- what other trainers hand over, as tasks and files


def files_of(found: Any) -> dict[str, bytes]:
    """Read files as bytes; text is UTF-8, and what is no mapping is no files."""
    if not isinstance(found, Mapping):
        return {}
    made = cast("Mapping[str, Any]", found)
    return {
        str(name): body if isinstance(body, bytes) else str(body).encode("utf-8", "surrogatepass")
        for name, body in made.items()
        if body is not None  # Arrow fills names that other rows have
    }


def task_of(row: Any) -> Task:
    """Read a task from JSON text, cached, or from its mapping. Raises `TaskError` or ValueError."""
    if isinstance(row, str):
        return _from_text(row)
    return Task.from_json(cast("Mapping[str, Any]", row))


@lru_cache(maxsize=4096)
def _from_text(text: str) -> Task:
    return Task.from_json(json.loads(text))


# ---- tasks in words
# Tasks that are answered in words, for tools that know prompts and texts: the chat, the gold text,
# the score of a text. What `assay export` writes goes through here.


TASKS, SETTINGS = "tasks.jsonl", "assay.json"  # beside an adapter


@dataclass(frozen=True)
class Words:
    """One task in words: its messages, and the text that scores 1, with the `files` that its tools
    leave beside it."""

    task: Task
    messages: list[dict[str, str]]
    gold: str
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])

    def prompt(self) -> str:
        """The messages as one text."""
        return "\n\n".join(m["content"] for m in self.messages)


@dataclass(frozen=True)
class Message:
    """How tasks are answered in a message whose gold is what an environment leaves in files: the
    message that scores 1, and its `form` in a sentence, which prompts do not say. `places` are
    where prompts say that files lie: name in `Task.files` → path in the solver's folder."""

    gold: Callable[[Task], str]
    form: str = ""
    places: Mapping[str, str] = field(default_factory=dict[str, str])


MESSAGES = {
    "answer": Message(
        lambda task: json.dumps({"answer": task.gold["answer"]}),
        'Answer with one JSON object: {"answer": …}, its value a number, a text or a list.',
        {"lake": "data"},
    )
}


def message_of(task: Task) -> str | None:
    """Return the message that scores 1 for a task whose gold has files too; None where there is
    none."""
    if (known := MESSAGES.get(task.family)) is not None:
        return known.gold(task)
    gold = gold_answer(family_of(task), task)
    if gold is None or not (gold.files and gold.text):
        return None
    score = score_answer(task, Answer(gold.text))
    return gold.text if (score.outcome or 0.0) >= RIGHT else None


def said_gold(task: Task) -> str:
    """Return gold as a text. Raises `TaskError` for a task that is answered in files."""
    if (message := message_of(task)) is not None:
        return message
    gold = gold_answer(family_of(task), task)
    if gold is None or gold.files:
        what = "has to be run first" if gold is None else "is a file"
        raise TaskError(
            f"task {task.id}: its gold {what}, and this form knows texts only; export it to harbor"
        )
    return gold.text


def in_words(task: Task) -> Words:
    """Make the chat and the gold text of a task. Raises `TaskError` as `said_gold` does; a task
    with tools may have gold in the files that they leave."""
    made = gold_answer(family_of(task), task) if task.tools else None
    if made and made.files and message_of(task) is None:
        gold, files = made.text, made.files
    else:
        gold, files = said_gold(task), dict[str, bytes]()
    messages = [dict(m) for m in task.prompt]
    if task.family in MESSAGES:
        last = messages[-1]
        said = f"{last['content']}\n\n{MESSAGES[task.family].form}"
        messages[-1] = {**last, "content": said}
    return Words(task, messages, gold, files)


def score_text(
    task: Task, text: str, truncated: bool = False, files: Mapping[str, bytes] | None = None
) -> Score:
    """Score a message, with the `files` that its episode left, as `assay score` scores a row
    with this output."""
    return score_answer(task, Answer(text, truncated, files=files or {}))


def load(folder: str | Path) -> list[Words]:
    """Read the tasks of an exported folder, its families added. Raises `TaskError`."""
    folder = Path(folder)
    settings: dict[str, Any] = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    use_families(str(spec) for spec in settings["families"])
    return [in_words(task) for task in read_tasks(folder / TASKS)]


def bare(task: Task) -> dict[str, Any]:
    """Write the task as a row without files, which a text does not need."""
    return replace(task, files={}, tools=()).to_json()
