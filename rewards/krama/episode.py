"""Family "answer": what an episode hands in, scored with sub-task credit beside the outcome.

No import here is for builders or audits alone: this module and what it imports travel with an
exported task."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from assay.task import Answer, Score, Task, TaskError
from rewards.krama.answer import ANSWER_TYPES, READINGS, score_response
from rewards.krama.judge import Judge, deterministic, judge_of, says_much_more, scripted
from rewards.weights import AnswerReward

STAYS_HOME = ("assay.http_client",)  # for a judge that a setting names; an export does without
ANSWER, PIPELINE = "answer.json", "pipeline.py"  # what an environment leaves
_FENCE = re.compile(r"```(?:json)?\s*(?=\{)")
_FENCE_END = re.compile(r"\}\s*```")
MAX_CHARS = 200_000  # of a message; the answer stands at its end


def printed(value: Any, **more: Any) -> Answer:
    """Make the answer that an environment leaves when a script printed this value; both readings
    see it. `more` stands beside it."""
    response = {"answer": value}
    left = {"response": response, "published": response, **more}
    return Answer(files={ANSWER: json.dumps(left).encode()})


def read_text(text: str) -> dict[str, Any]:
    """Read the response in a message without files: the last `<answer>…</answer>`, or the last
    JSON object with the key `answer`; `{}` when there is neither."""
    text = text[-MAX_CHARS:]
    if tagged := _between(text, re.compile("<answer>"), re.compile("</answer>"), 0):
        inner = tagged[-1].rpartition("<answer>")[2].strip()  # a family of models adds its own
        return _object(inner) or {"answer": inner}
    for body in reversed([*_between(text, _FENCE, _FENCE_END, 1), text.strip()]):
        if found := _object(body):
            return found
    return {}


def _object(text: str) -> dict[str, Any]:
    """A JSON object with the key `answer`; `{}` for anything else."""
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    held = isinstance(found, dict) and "answer" in found
    return cast("dict[str, Any]", found) if held else {}


def _between(text: str, opens: re.Pattern[str], closes: re.Pattern[str], keep: int) -> list[str]:
    """What stands between each opening and the next closing, whose first `keep` characters belong
    to it. Linear in the text: the search ends at the first opening that is never closed."""
    found: list[str] = []
    at = 0
    while opening := opens.search(text, at):
        closing = closes.search(text, opening.end())
        if closing is None:
            break
        found.append(text[opening.end() : closing.start() + keep])
        at = closing.end()
    return found


def score_episode(
    gold: Mapping[str, Any],
    text: str,
    files: Mapping[str, bytes],
    truncated: bool,
    weights: AnswerReward | None = None,
    judge: Judge = deterministic,
) -> Score:
    """Score what an episode left in files, or else what its message says. The outcome is in [0, 1]
    by the reading of `weights`; the reward adds sub-task credit, which stands apart in `parts`:
    `subtask_credit` is the share of sub-answers found, `subtask_reward` what it added.

    Raises `TaskError` for gold without `answer_type` and `answer`.
    """
    weights = weights or AnswerReward()
    if "answer" not in gold or "answer_type" not in gold:
        raise TaskError("gold of family 'answer' needs 'answer_type' and 'answer'")
    left = _left(files)
    response: Any = left.get("response", {})
    if not left and not truncated:
        response = read_text(text)
    if weights.reading == "release" and left:
        response = left.get("published", {})
    kind, ordered = str(gold["answer_type"]), gold.get("ordered") is True
    score = score_response(kind, gold["answer"], response, weights.reading, judge, ordered)
    score = _of_names(score, gold, response)
    if score.outcome is None:
        return score
    parts = dict(score.parts)
    reward = score.reward or 0.0
    steps = cast("Sequence[Mapping[str, Any]]", gold.get("subtasks") or [])
    values: Any = left.get("values")
    credit = subtask_credit(steps, cast("list[Any]", values) if isinstance(values, list) else [])
    if credit is not None:
        parts["subtask_credit"] = credit
        parts["subtask_reward"] = (1 - score.outcome) * weights.subtasks * credit
        reward += parts["subtask_reward"]
    made = Score(score.outcome, reward, parts, score.why)
    return _unpaid(made) if gold.get("doubt") else made


def subtask_credit(steps: Sequence[Mapping[str, Any]], values: Sequence[Any]) -> float | None:
    """Compute the share of gold sub-answers that a pipeline printed, in [0, 1]; None without
    sub-tasks.

    Each printed value confirms one sub-task at most, and only the first 2n + 2 values count, so
    printing everything there is earns nothing more. Scored as the answers themselves are.
    """
    if not steps:
        return None
    free = list(values[: 2 * len(steps) + 2])
    hits = 0
    for step in steps:
        for place, value in enumerate(free):
            kind, ordered = str(step["answer_type"]), step.get("ordered") is True
            score = score_response(kind, step["answer"], {"answer": value}, ordered=ordered)
            if score.outcome == 1.0 and score.reward:
                hits += 1
                del free[place]
                break
    return hits / len(steps)


def _left(files: Mapping[str, bytes]) -> dict[str, Any]:
    try:
        found: Any = json.loads(files.get(ANSWER, b"null"))
    except (ValueError, RecursionError):
        return {"response": {}}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def untagged(value: Any) -> Any:
    """Undo the vectors' spelling of what JSON lacks: `{"$float": "nan"}`, `{"$tuple": […]}`."""
    if isinstance(value, list):
        return [untagged(v) for v in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    row = cast("dict[str, Any]", value)
    if set(row) == {"$float"} and row["$float"] in ("nan", "inf", "-inf"):
        return float(row["$float"])
    if set(row) == {"$tuple"} and isinstance(row["$tuple"], list):
        return tuple(untagged(v) for v in cast("list[Any]", row["$tuple"]))
    return {k: untagged(v) for k, v in row.items()}


def score_row(row: Mapping[str, Any], judge: Judge = deterministic) -> Score:
    """Score one row: `{reading, judge, task: {answer_type, answer}, response}`.

    `judge` "yes" or "no" replays a verdict; null or absent asks the judge given here (the
    deterministic one by default). Raises `TaskError` naming the field that cannot be used.
    """
    task, reading = row.get("task"), row.get("reading", "table3")
    if not isinstance(task, Mapping) or "answer" not in task:
        raise TaskError("field 'task' needs 'answer_type' and 'answer'")
    if reading not in READINGS:
        raise TaskError(f"field 'reading' is {reading!r}; wanted table3 or release")
    if "response" in row:
        response = untagged(row["response"])
    elif isinstance(row.get("output"), str):
        response = {"answer": row["output"]}
    else:
        raise TaskError("field 'response' is missing; give {\"answer\": …} there")
    mode = row.get("judge")
    if mode is not None:
        try:
            judge = scripted(str(mode))
        except ValueError as error:
            raise TaskError(f"field {error}") from None
    gold = cast("Mapping[str, Any]", task)
    answer_type = gold.get("answer_type")
    if not isinstance(answer_type, str):
        raise TaskError("field 'task' has no 'answer_type'; give one of " + ", ".join(ANSWER_TYPES))
    ordered = gold.get("ordered") is True
    target = untagged(gold["answer"])
    score = score_response(answer_type, target, response, reading, judge, ordered)
    score = _of_names(score, gold, response)
    return _unpaid(score) if gold.get("doubt") else score


def _of_names(score: Score, gold: Mapping[str, Any], response: Any) -> Score:
    """The same outcome, and no reward for a text that may list every name there is, where gold says
    `names_only` (generated tasks): more than 2 words, and more than half as many as the target has,
    beside the target's."""
    if not gold.get("names_only") or not isinstance(response, Mapping):
        return score
    answer: Any = cast("Mapping[str, Any]", response).get("answer")
    if not score.reward or not isinstance(answer, str):
        return score
    if not says_much_more(answer, str(gold["answer"])):
        return score
    return Score(score.outcome, 0.0, score.parts, score.why)


def _unpaid(score: Score) -> Score:
    """The same outcome without a reward, for gold that is doubted."""
    if score.outcome is None:
        return score
    return Score(score.outcome, 0.0, {**score.parts, "doubted": 1.0}, score.why)


def score_lake(task: Task, answer: Answer, weights: AnswerReward) -> Score:
    """Score the answer that an episode left, or the one that its last message says."""
    judge = judge_of(weights.judge_url, weights.judge_model)
    return score_episode(task.gold, answer.text, answer.files, answer.truncated, weights, judge)


def score_lake_row(gold: Mapping[str, Any], row: Mapping[str, Any], weights: AnswerReward) -> Score:
    """Score a row of `assay score`: `{response, reading}`, the reading of the settings where it
    names none. Raises `TaskError` for a row that cannot be used."""
    judge = judge_of(weights.judge_url, weights.judge_model)
    return score_row({"reading": weights.reading, **row, "task": gold}, judge)
