"""Scoring one KramaBench answer: six answer types, in two readings.

`table3` is the paper's Table 3 as written (specification notes, section 13): the default outcome
and the reward. `release` is what the published harness computes, for comparison with published
numbers (`rewards.krama.release`). Neither executes a model's text.

What a model wrote is read as numbers and lists, and list elements are paired. `close` and `equal`
are Table 3's. `exactly` is what a reward asks beyond them: whole numbers, and so dates and times
written as numbers, are equal only to themselves.
"""

from __future__ import annotations

import bisect
import heapq
import json
import math
import re
import unicodedata
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Literal, cast

from assay.family import THOUGHT
from assay.syntax import python_literal
from assay.task import RIGHT, Score, TaskError
from rewards.krama.judge import Judge, JudgeError, NoJudge, deterministic
from rewards.krama.release import METRICS, TOLERANCE, harness, str_to_float, total

Reading = Literal["table3", "release"]
READINGS: tuple[Reading, ...] = ("table3", "release")
ANSWER_TYPES = tuple(METRICS)
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
    if answer_type not in METRICS:
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
    if answer_type.startswith("numeric") and (want := number(target)) is not None:
        if (said := number(answer)) is None:
            return 0.0
        return relative_score(said, want) if approximate else float(close(said, want))
    if approximate and answer_type.startswith("string"):
        return float(not isinstance(answer, dict) and _says(judge, answer, target))
    return _text(answer, target)


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
    if "e" in repr(want):
        return float(close(said, want))
    digits = repr(want).partition(".")[2]
    places = 0 if digits in ("", "0") else len(digits)
    return float(close(said, want) or abs(said - want) <= 0.5 * 10**-places * (1 + 1e-9))


def _release(answer_type: str, target: Any, response: Any, judge: Judge) -> Score:
    """The harness's values and the total it prints for a workload of this one task."""
    values = harness(answer_type, target, response, judge)
    parts = {
        name: float(v) for name, v in values.items() if v is not None and math.isfinite(float(v))
    }
    try:
        value = total([values])
    except (TypeError, ZeroDivisionError) as error:
        return Score(None, None, parts, f"release_raises_{type(error).__name__}")
    if math.isnan(value):
        return Score(None, None, parts, "release_total_is_nan")
    return Score(value, value, parts, "ok" if value == 1.0 else "partly" if value else "wrong")


# ---- reading and pairing

_LITERAL_MAX = 4_000_000  # characters; beyond that only JSON is tried


def number(value: Any) -> float | None:
    """A finite number from an int, a float (not a bool) or text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = str_to_float(value.strip()) if isinstance(value, str) else float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


_WHOLE = re.compile(r"[+-]?\d{1,300}")
# YYYYMMDD, alone or with hours and minutes, or seconds too
_DATE = re.compile(
    r"(?:1[5-9]|20|21)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])"
    r"(?:(?:[01]\d|2[0-3])[0-5]\d(?:[0-5]\d)?)?"
)


def whole(value: Any) -> int | None:
    """The whole number that a value or a text is, without rounding; else None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        return int(value)
    found = value if isinstance(value, int) else number(value)
    return int(found) if found is not None and found == int(found) else None


def date_like(value: Any) -> bool:
    """Whether a whole number is written as a date is."""
    found = whole(value)
    return found is not None and _DATE.fullmatch(str(found)) is not None


def text_key(value: Any) -> str:
    """Fold a text for comparison: as `str()` shows it under NFC, stripped, in lower case."""
    return unicodedata.normalize("NFC", str(value)).strip().lower()


def close(said: float, want: float) -> bool:
    """Tell whether a number is within `TOLERANCE` of the wanted one, relative to it; a target of
    zero wants zero."""
    return said == want if want == 0 else abs(said - want) / abs(want) < TOLERANCE


def relative_score(said: float, want: float) -> float:
    """Compute 1 / (1 + |p - t| / |t|), in (0, 1] (the paper's Table 3); for a target of zero 1
    only for 0, else 0."""
    return float(said == 0) if want == 0 else 1 / (1 + abs(said - want) / abs(want))


def as_list(value: Any) -> list[Any] | None:
    """A list from a list, a tuple, or text holding one (JSON, then Python literal).

    Other text and scalars are a list of one, blank text an empty list; None and objects are no
    list (None).
    """
    if isinstance(value, list | tuple):
        return list(cast("Sequence[Any]", value))
    if value is None or isinstance(value, dict):
        return None
    if not isinstance(value, str):
        return [value]
    if not value.strip():
        return []
    found = _parse(value)
    if isinstance(found, set):  # its own order would change from process to process
        return sorted(cast("set[Any]", found), key=repr)
    if isinstance(found, list | tuple):
        return list(cast("Sequence[Any]", found))
    return None if isinstance(found, dict) else [value]  # NaN, None or "x" are words here


_NOTHING = object()


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    if len(text) > _LITERAL_MAX:
        return _NOTHING
    try:
        with warnings.catch_warnings():  # of "2nd", which the parser takes for a bad number
            warnings.simplefilter("ignore")
            return python_literal(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return _NOTHING


Same = Callable[[Any, Any], bool]


def numbers_close(said: Any, want: Any) -> bool:
    """Tell whether both are numbers, within `TOLERANCE` of the wanted one."""
    found, wanted = number(said), number(want)
    return found is not None and wanted is not None and close(found, wanted)


def exactly(said: Any, want: Any) -> bool:
    """Tell whether two values are equal as a reward asks: whole numbers only to themselves,
    others within `TOLERANCE`; a fraction may differ from a whole number by what rounding does."""
    one, two = whole(said), whole(want)
    if one is not None and two is not None:
        return one == two
    if isinstance(want, int) or date_like(want):
        found = number(said)
        return found is not None and abs(found - want) <= min(1e-9 * abs(want), 0.01)
    return numbers_close(said, want)


def equal(said: Any, want: Any, numbers: Same = numbers_close) -> bool:
    """Tell whether an element equals one of an exact list: numbers within 1e-6, text folded,
    rows element by element."""
    if isinstance(want, list | tuple):
        return rows_alike(said, cast("Sequence[Any]", want), partial(equal, numbers=numbers))
    if isinstance(want, int | float) and not isinstance(want, bool):
        return numbers(said, want)
    if want is None or isinstance(want, dict):
        return bool(said == want)
    return (
        not isinstance(said, list | tuple | dict)
        and said is not None
        and (text_key(said) == text_key(want))
    )


def rows_alike(said: Any, want: Sequence[Any], same: Same) -> bool:
    """Tell whether `said` is a row as long as `want` whose elements are pairwise `same`."""
    if not isinstance(said, list | tuple) or len(cast("Sequence[Any]", said)) != len(want):
        return False
    pairs = zip(cast("Sequence[Any]", said), want, strict=True)
    return all(same(a, b) for a, b in pairs)


def pairs_found(
    said: Sequence[Any], want: Sequence[Any], same: Same, reach: float, loose_text: bool = False
) -> int:
    """Count the targets that find a partner: each takes the first free element that is `same`.

    `reach` is the widest relative distance at which `same` may hold for numbers. `loose_text`:
    `same` may hold for texts that differ, so every free element is asked (a judge). Elements are
    looked up by their first scalar, so long exact lists cost n log n.
    """
    leaves = [_leaf(element) for element in said]
    free = dict.fromkeys(range(len(said)))
    # places that are free, by the text and by the number of their first scalar
    by_text: defaultdict[str, list[int]] = defaultdict(list)
    by_number: defaultdict[float, list[int]] = defaultdict(list)
    for place, leaf in enumerate(leaves):
        by_text[text_key(leaf)].append(place)
        if (value := number(leaf)) is not None:
            by_number[value].append(place)
    values = sorted(by_number)

    def places(target: Any) -> Iterable[int]:
        """Free places in order that may hold the target."""
        leaf = _leaf(target)
        if isinstance(leaf, bool) or not isinstance(leaf, int | float):
            if loose_text:  # a judge may cost a request each
                return islice(free, 4 * len(want) + 50)
            return by_text.get(text_key(leaf), ())
        if (middle := number(leaf)) is None:
            return ()
        spread = abs(middle) * reach * (1 + 1e-9)
        low = bisect.bisect_left(values, middle - spread)
        high = bisect.bisect_right(values, middle + spread)
        return heapq.merge(*(by_number[value] for value in values[low:high]))

    for target in want:
        place = next((p for p in places(target) if same(said[p], target)), None)
        if place is not None:
            del free[place]
            by_text[text_key(leaves[place])].remove(place)
            if (value := number(leaves[place])) is not None:
                by_number[value].remove(place)
    return len(said) - len(free)


def _leaf(value: Any) -> Any:
    """The first scalar of nested rows; None for an empty one."""
    while isinstance(value, list | tuple):
        if not value:
            return None
        value = cast("Sequence[Any]", value)[0]
    return value


# ---- why an answer failed
# Why an answer failed, decided without a judge (specification notes, section 11).


_SCALES = (100.0, 0.01, 1000.0, 0.001, 1e6, 1e-6, -1.0)


def category(
    gold: Mapping[str, Any],
    answer: Any,
    outcome: float | None,
    ended: str,
    code: str,
    gold_files: Sequence[str],
) -> str:
    """Name why an answer failed (specification notes, section 11): right, partly, no_reply,
    thought_did_not_end, contract_broken, code_fails, time_limit, gold_file_never_opened,
    ran_no_answer, wrong_type, scale_slip, rounding_slip, other_wrong, recalled or infrastructure.

    `ended` is the agent's own word on how its last try went.
    """
    if outcome is None:
        return "infrastructure"
    if outcome >= RIGHT:
        return "right"
    if _recalled(gold, answer):
        return "recalled"
    if outcome > 0:
        return "partly"
    by_end = {"no_reply": "no_reply", "no_code": "contract_broken", "timeout": "time_limit"}
    by_end |= {THOUGHT: THOUGHT}
    if answer is None:
        if ended in by_end:
            return by_end[ended]
        if ended in ("error", "memory", "disk"):
            return "code_fails"
        return "contract_broken" if ended == "ran" else "ran_no_answer"
    return _wrong_value(gold, answer, code, gold_files)


def _recalled(gold: Mapping[str, Any], answer: Any) -> bool:
    """Whether an answer is right for the task as it was before its lake was obscured."""
    plain = gold.get("plain_answer")
    if plain is None or answer is None:
        return False
    found = score_response(str(gold["answer_type"]), plain, {"answer": answer}).outcome
    return found is not None and found >= RIGHT


def _wrong_value(gold: Mapping[str, Any], answer: Any, code: str, gold_files: Sequence[str]) -> str:
    if gold_files and code and not any(_opened(name, code) for name in gold_files):
        return "gold_file_never_opened"
    target, kind = gold["answer"], str(gold["answer_type"])
    want, said = number(target), number(answer)
    if kind.startswith("numeric") and want is not None and said is None:
        return "wrong_type"
    if (kind.startswith("list") or isinstance(target, list)) and as_list(answer) is None:
        return "wrong_type"
    if want is not None and said is not None:
        if rounding_slip(target, answer) == 1.0 or (want and abs(said - want) < 0.01 * abs(want)):
            return "rounding_slip"
        if any(close(said * factor, want) for factor in _SCALES):
            return "scale_slip"
    return "other_wrong"


def _opened(name: str, code: str) -> bool:
    """Whether a file can be named by the code: its base name, or the steady parts of it."""
    base = name.rpartition("/")[2]
    if base in code:
        return True
    steady = [p for p in re.split(r"\d+", base.rpartition(".")[0] or base) if len(p) > 3]
    return bool(steady) and all(part in code for part in steady)
