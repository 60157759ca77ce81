"""Our scorers in the shapes that other trainers call: verl's reward loop and TRL's GRPO trainer.

All score through `score_answer`, the table that our own loops use, so a reward is the same number
wherever it is computed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

from assay.family import family_named, family_of, score_answer
from assay.task import Answer, Score, Task, unscored

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
