"""Scoring one KramaBench answer: six answer types, in two readings.

`table3` is the paper's Table 3 as written (specification notes, section 13): the default outcome
and the reward. `release` is what the published harness computes, for comparison with published
numbers (`rewards.krama.release`). Neither executes a model's text.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, cast

from assay.task import RIGHT, Score, TaskError
from rewards.krama import release as release
from rewards.krama.judge import (
    Judge,
    JudgeError,
    NoJudge,
    deterministic,
    says_much_more,
    scripted,
)
from rewards.krama.match import (
    TOLERANCE,
    as_list,
    close,
    date_like,
    equal,
    exactly,
    number,
    pairs_found,
    relative_score,
    rows_alike,
    text_key,
)

Reading = Literal["table3", "release"]
READINGS: tuple[Reading, ...] = ("table3", "release")
ANSWER_TYPES = tuple(release.METRICS)
_NEAR = 1 / 9  # |p - t| / |t| below this is a relative score above 0.9


def score_response(
    answer_type: str,
    target: Any,
    response: Any,
    reading: Reading = "table3",
    judge: Judge = deterministic,
    ordered: bool = False,
) -> Score:
    """Score a response object `{"answer": …}` against its target. Never raises for the response.

    `ordered`: the question fixes the order of a list, which the reward of Table 3's reading asks
    for; the outcome is the set F1 of the paper. A judge that fails gives an outcome of None. Raises
    `TaskError` for an unknown answer type.
    """
    if answer_type not in release.METRICS:
        raise TaskError(
            f"answer_type {answer_type!r} is none of {', '.join(ANSWER_TYPES)}; correct the task"
        )
    try:
        if reading == "release":
            return _release(answer_type, target, response, judge)
        return _table3(answer_type, target, response, judge, ordered)
    except JudgeError as error:
        return Score(None, None, {}, f"judge_failed: {error}")
    except (RecursionError, ValueError):  # nested beyond `str()`, or digits beyond its limit
        return Score(0.0, 0.0, {"answered": 1.0}, "unreadable")


def _table3(answer_type: str, target: Any, response: Any, judge: Judge, ordered: bool) -> Score:
    if not isinstance(response, Mapping) or "answer" not in response:
        return Score(0.0, 0.0, {"answered": 0.0}, "no_answer")
    answer = cast("Mapping[str, Any]", response)["answer"]
    paths: list[str] = []
    value = table3(answer_type, target, answer, _recorded(judge, paths))
    parts = {"answered": float(answer is not None)}
    slip = rounding_slip(target, answer)
    if slip is not None:
        parts["right_after_rounding"] = slip
    reward = earned(answer_type, target, answer, value, ordered)
    why = _why(answer_type, target, answer, value, paths)
    if ordered and value > 0:
        parts["in_order"] = float(in_order(answer_type, target, answer))
        if value >= RIGHT and not parts["in_order"]:
            return Score(value, reward, parts, "wrong_order")
    if value >= RIGHT and not reward:
        why = "right_within_tolerance_only"
    return Score(value, reward, parts, why)


NEAR_ENOUGH = 0.1  # relative error at which an approximate number stops earning
MOST_PARTIAL = 0.5  # what a list that is not right can earn
HALF = 0.5  # of a list's elements, net of wrong ones: up to there it earns nothing


def earned(
    answer_type: str, target: Any, answer: Any, outcome: float, ordered: bool = False
) -> float:
    """What training pays for an answer with this outcome under Table 3.

    The benchmark's partial scores can be guessed: "0" scores 0.5 on every approximate number, and
    the list of all groups scores high wherever most of them are asked for. So a number earns by
    its nearness within a tenth of the target, and a whole number or a date only as itself where it
    has to be exact. A list earns by its right elements less twice its wrong ones, from half of the
    wanted ones on: one frequent element pays nothing; where the question fixes an order, an element
    is right at its place alone. A right answer earns 1; text is right or wrong.
    """
    if isinstance(target, list | tuple) or answer_type.startswith("list"):
        return _list_earned(answer_type, as_list(target) or [], as_list(answer), outcome, ordered)
    wanted, given = number(target), number(answer)
    if not answer_type.startswith("numeric") or wanted is None:
        wrong = ordered and not in_order(answer_type, target, answer)
        return outcome if outcome >= RIGHT and not wrong else 0.0
    if given is None:
        return 0.0
    if answer_type != "numeric_approximate" or date_like(target):
        return float(outcome > 0 and exactly(answer, target))
    if outcome >= RIGHT or not wanted:
        return outcome if outcome >= RIGHT else 0.0
    return max(0.0, 1.0 - abs(given - wanted) / abs(wanted) / NEAR_ENOUGH)


def in_order(answer_type: str, target: Any, answer: Any) -> bool:
    """Whether the answer names everything at its place: elements of a list, or the names that a
    text joins by commas (True where it spells one of them in another way)."""
    if isinstance(target, list | tuple) or answer_type.startswith("list"):
        want, said = as_list(target) or [], as_list(answer) or []
        pairs = zip(said, want, strict=False)
        approximate = answer_type.endswith("approximate")
        return len(said) == len(want) and all(_right(a, b, approximate) for a, b in pairs)
    text = text_key(answer)
    places = [text.find(text_key(name)) for name in str(target).split(", ")]
    return -1 in places or places == sorted(places)


def _list_earned(
    answer_type: str, want: list[Any], said: list[Any] | None, outcome: float, ordered: bool
) -> float:
    if not said or not want:
        return outcome if outcome >= RIGHT else 0.0
    approximate = answer_type.endswith("approximate")
    found = round(outcome * (len(said) + len(want)) / 2)
    if ordered:
        right = sum(_right(a, b, approximate) for a, b in zip(said, want, strict=False))
    elif not approximate:
        right = pairs_found(said, want, partial(equal, numbers=exactly), TOLERANCE)
    elif all(isinstance(v, int | float) and number(v) is not None for v in want):
        right = min(found, _paired(said, want))
    else:  # texts, of which a judge has said how many are right
        right = found
    if right == len(want) == len(said):
        return 1.0
    net = right - 2 * (len(said) - right)
    return MOST_PARTIAL * max(0.0, (net / len(want) - HALF) / (1 - HALF))


def _right(said: Any, want: Any, approximate: bool) -> bool:
    """Whether an element is right: near, in a list of approximate numbers that are no dates."""
    given, wanted = number(said), number(want)
    if not approximate or isinstance(want, str) or given is None or wanted is None:
        return equal(said, want, exactly)
    return exactly(said, want) if date_like(want) else relative_score(given, wanted) > 0.9


def _paired(said: list[Any], want: list[Any]) -> int:
    """How many numbers pair up with one of the wanted, by size. A number that is repeated counts as
    often as the most frequent of the wanted: a mean of all is none of them."""
    most = max(Counter(want).values())
    given = Counter(found for v in said if (found := number(v)) is not None)
    free = sorted(v for v, times in given.items() for _ in range(min(times, most)))
    right = at = 0
    for wanted in sorted(want):
        while at < len(free) and free[at] < wanted and not _right(free[at], wanted, True):
            at += 1
        if at < len(free) and _right(free[at], wanted, True):
            right += 1
            at += 1
    return right


def _recorded(judge: Judge, paths: list[str]) -> Judge:
    def ask(said: str, want: str) -> Any:
        verdict = judge(said, want)
        paths.append(verdict.path)
        return verdict

    return ask


def _why(kind: str, target: Any, answer: Any, value: float, paths: Sequence[str]) -> str:
    if answer is None:
        return "no_answer"
    if value == 0.0 and kind.startswith("numeric") and not isinstance(target, list):
        if number(target) is not None and number(answer) is None:
            return "no_number"
    elif (kind.startswith("list") or isinstance(target, list)) and as_list(answer) is None:
        return "no_list"
    how = f" ({paths[-1]})" if kind == "string_approximate" and paths else ""
    return ("ok" if value >= RIGHT else "partly" if value > 0 else "wrong") + how


def table3(answer_type: str, target: Any, answer: Any, judge: Judge = deterministic) -> float:
    """The score in [0, 1] of a typed answer, by the paper's Table 3 without the release's defects.

    Raises `JudgeError` when a judge is needed and fails.
    """
    if answer is None:
        return 0.0
    approximate = answer_type.endswith("approximate")
    if isinstance(target, list | tuple) or answer_type.startswith("list"):
        return _list(as_list(answer), as_list(target) or [], approximate, judge)
    if answer_type.startswith("numeric"):
        return _number(answer, target, approximate)
    if approximate:
        return float(not isinstance(answer, dict) and _says(judge, answer, target))
    return _text(answer, target)


def _number(answer: Any, target: Any, approximate: bool) -> float:
    want, said = number(target), number(answer)
    if want is None:
        return _text(answer, target)
    if said is None:
        return 0.0
    return relative_score(said, want) if approximate else float(close(said, want))


def _text(answer: Any, target: Any) -> float:
    if isinstance(answer, list | tuple | dict):
        return 0.0
    return float(text_key(answer) == text_key(target))


def _says(judge: Judge, answer: Any, target: Any) -> bool:
    try:
        return judge(str(answer), str(target)).yes is True
    except NoJudge:
        return False


def _list(said: list[Any] | None, want: Sequence[Any], approximate: bool, judge: Judge) -> float:
    """F1 = 2 TP / (len P + len T); both empty is 1, no list at all is 0."""
    if said is None:
        return 0.0
    if not said and not want:
        return 1.0

    def near(element: Any, target: Any) -> bool:
        if isinstance(target, list | tuple):
            return rows_alike(element, cast("Sequence[Any]", target), near)
        if isinstance(target, int | float) and not isinstance(target, bool):
            found, wanted = number(element), number(target)
            return found is not None and wanted is not None and relative_score(found, wanted) > 0.9
        if target is None or isinstance(target, dict) or isinstance(element, list | tuple | dict):
            return bool(element == target)
        return element is not None and _says(judge, element, target)

    if approximate:
        found = pairs_found(said, want, near, _NEAR, loose_text=True)
    else:
        found = pairs_found(said, want, equal, TOLERANCE)
    return 2 * found / (len(said) + len(want))


def rounding_slip(target: Any, answer: Any) -> float | None:
    """1.0 when a number is right once rounded to the target's digits, 0.0 when not; else None.

    Reported beside the outcome (specification notes, section 12), never part of it.
    """
    want, said = number(target), number(answer)
    if want is None or said is None:
        return None
    digits = repr(want).partition(".")[2]
    if "e" in digits or "e" in repr(want):
        return float(close(said, want))
    places = 0 if digits in ("", "0") else len(digits)
    return float(close(said, want) or abs(said - want) <= 0.5 * 10**-places * (1 + 1e-9))


def _release(answer_type: str, target: Any, response: Any, judge: Judge) -> Score:
    """The harness's values and the total it prints for a workload of this one task."""
    values = release.harness(answer_type, target, response, judge)
    parts = {
        name: float(v) for name, v in values.items() if v is not None and math.isfinite(float(v))
    }
    try:
        value = release.total([values])
    except (TypeError, ZeroDivisionError) as error:
        return Score(None, None, parts, f"release_raises_{type(error).__name__}")
    if math.isnan(value):
        return Score(None, None, parts, "release_total_is_nan")
    return Score(value, value, parts, "ok" if value == 1.0 else "partly" if value else "wrong")


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
    """One `assay score` row: `{reading, judge, task: {answer_type, answer}, response}`.

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
    score = of_names(score, gold, response)
    return unpaid(score) if gold.get("doubt") else score


def of_names(score: Score, gold: Mapping[str, Any], response: Any) -> Score:
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


def unpaid(score: Score) -> Score:
    """The same outcome without a reward, for gold that is doubted."""
    if score.outcome is None:
        return score
    return Score(score.outcome, 0.0, {**score.parts, "doubted": 1.0}, score.why)
