"""The `release` reading: KramaBench's published harness as it really computes, defects included.

For comparison with published numbers, never for rewards. Follows the release's behaviour as the
specification notes give it (section 4): the metrics on typed values ("direct"), the harness that
turns both sides into text first, and the printed total. Metrics raise what the release raises.
The one thing not reproduced is `eval` of model text: a Python literal is read as one, anything
else fails as an expression would.
"""

from __future__ import annotations

import json
import math
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, cast

from assay.syntax import python_literal
from rewards.krama.judge import Judge, JudgeError, NoJudge

TOLERANCE = 1e-6  # relative, for exact numbers (specification notes, sections 4.2 and 13)
Metric = Callable[[Any, Any, Judge], float | int | bool | None]

COUNTED = ("success", "rae_score", "string_bootstrap", "f1")  # the metrics of the printed total


# ---- the published benchmark: which files a model is shown, its size

Mode = Literal["full", "oracle", "oracle*", "trimmed", "obscured"]
MODES: tuple[Mode, ...] = ("full", "oracle", "oracle*", "trimmed", "obscured")

# domain → (tasks, sub-tasks), as in the paper's Table 2 and in the release of June 2025
COUNTS = {
    "archeology": (12, 71),
    "astronomy": (12, 68),
    "biomedical": (9, 38),
    "environment": (20, 148),
    "legal": (30, 188),
    "wildfire": (21, 120),
}

# Tasks that list a source which is not in the release's own lake under any spelling: a name of
# another version of a file, a pattern, or words. That such a source is not found says nothing.
LISTS_WHAT_IS_NOT_THERE = frozenset(
    {
        "astronomy-hard-7",
        "astronomy-hard-12",
        "legal-hard-24",
        "wildfire-hard-19",
        "wildfire-hard-21",
    }
)

# ---- metrics


class TypeCheckError(TypeError):
    """What the release's run-time type checker raises for a judge argument that is no text."""


def str_to_float(text: str) -> float:
    """Read a number by the published rule: a trailing % divides by 100, else `float()`.

    No thousands separators, currencies or units. Raises ValueError.
    """
    if text.endswith("%"):
        return float(text.strip("%")) / 100
    return float(text)


def _success(said: Any, want: Any, _: Judge) -> float | bool | int:
    try:
        if isinstance(want, float):
            found = str_to_float(said) if isinstance(said, str) else said
            return abs(found - want) / abs(want) < TOLERANCE
        if isinstance(want, str):
            return int(said.strip().lower() == want.strip().lower())
        return int(said == want)
    except Exception:  # the release answers 0 for whatever goes wrong
        return 0


def _difference(measure: Callable[[Any, Any], Any], otherwise: float | None) -> Metric:
    """A metric of |prediction - target| and the target; `otherwise` where there is no number."""

    def metric(said: Any, want: Any, _: Judge) -> float | None:
        try:
            found = str_to_float(said) if isinstance(said, str) else said
            target = str_to_float(want) if isinstance(want, str) else want
            return measure(abs(found - target), target)
        except Exception:
            return otherwise

    return metric


def _list_target(said: Any, want: Any) -> Any:
    return json.loads(want) if isinstance(said, list) and isinstance(want, str) else want


def _combine(recall: float, precision: float) -> float:
    if precision + recall == 0:
        return 0.0
    return 2 * precision * recall / (precision + recall)


def _f1(said: Any, want: Any, _: Judge) -> float:
    try:
        target = _list_target(said, want)
        if len(target) == 0:
            return float(len(said) == 0)
        return _walk(said, target, _hit_exact)
    except Exception:
        return 0.0


def _hit_exact(said: Any, want: Any) -> bool:
    if isinstance(want, str):
        return want.strip().lower() == str(said).strip().lower()
    if isinstance(want, float):
        found = str_to_float(said) if isinstance(said, str) else said
        return abs(found - want) / abs(want) < TOLERANCE
    return bool(said == want)


def _walk(said: Sequence[Any], want: Sequence[Any], hit: Callable[[Any, Any], bool]) -> float:
    """F1 over elements (characters, where both are text); only text matches count for precision."""
    places: set[int] = set()
    recalled = 0
    known: dict[
        str, int | None
    ] = {}  # characters repeat; a text target always finds the same place
    for target in want:
        place = known.get(target, -1) if isinstance(target, str) else -1
        if place == -1:
            place = next((j for j, element in enumerate(said) if hit(element, target)), None)
            if isinstance(target, str):
                known[target] = place
        if place is not None:
            recalled += 1
            if isinstance(target, str):
                places.add(place)
    return _combine(recalled / len(want), len(places) / len(said) if len(said) > 0 else 0)


def _f1_approximate(said: Any, want: Any, judge: Judge) -> float:
    try:
        target = _list_target(said, want)
        if len(target) == 0:
            return float(len(said) == 0)
        if isinstance(target, str):
            target = json.loads(target)
        if isinstance(said, str):
            try:
                said = json.loads(said)
            except json.JSONDecodeError:
                with warnings.catch_warnings():  # of "2nd", taken for a bad number
                    warnings.simplefilter("ignore")
                    said = python_literal(said)

        def hit(element: Any, wanted: Any) -> bool:
            if isinstance(wanted, str):
                return bool(judge(str(element), wanted).yes)
            found = str_to_float(element) if isinstance(element, str) else element
            return 1 / (1 + abs(found - wanted) / abs(wanted)) < 0.1

        return _walk(list(said), target, hit)
    except Exception:
        return 0.0


def rouge1(said: str, want: str) -> tuple[float, float, float]:
    """Compute ROUGE-1 (precision, recall, F), each in [0, 1], over lower-case `[a-z0-9]+` words,
    no stemming (specification notes, section 4)."""
    left, right = (Counter(re.findall(r"[a-z0-9]+", text.lower())) for text in (said, want))
    shared = sum((left & right).values())
    precision = shared / max(sum(left.values()), 1)
    recall = shared / max(sum(right.values()), 1)
    return precision, recall, _combine(recall, precision)


def _rouge(said: Any, want: Any, _: Judge) -> float:
    return rouge1(said, want)[2]


def _overlap(said: Any, want: Any, _: Judge, side: int) -> float:
    """Precision (0) or recall (1): ROUGE-1 on two texts, set overlap on two lists, else 0."""
    if isinstance(said, str) and isinstance(want, str):
        return rouge1(said, want)[side]
    target = _list_target(said, want)
    if isinstance(said, list) and isinstance(target, list):
        left = {e.strip().lower() for e in cast("list[Any]", said)}
        right = {e.strip().lower() for e in cast("list[Any]", target)}
        whole = (left, right)[side]
        return len(left & right) / len(whole) if whole else 0.0
    return 0.0


def bleu(said: Any, want: Any, _: Judge | None = None) -> float:
    """Sentence BLEU of Papineni et al. 2002 over the items of two sequences (text: characters).

    Four n-gram orders, equal weights, no smoothing except the smallest float for an order without
    a match, as NLTK has it. 0 when no single item matches. The items of an object are its keys.
    """
    if len(said) == 0:
        return 0
    said, want = (
        list(cast("Mapping[Any, Any]", s)) if isinstance(s, Mapping) else s for s in (said, want)
    )
    logs: list[float] = []
    for order in range(1, 5):
        left, right = (
            Counter(tuple(seq[i : i + order]) for i in range(len(seq) - order + 1))
            for seq in (said, want)
        )
        hits = sum((left & right).values())
        if order == 1 and hits == 0:
            return 0
        share = hits / max(1, sum(left.values())) if hits else sys.float_info.min
        logs.append(0.25 * math.log(share))
    brevity = 1.0 if len(said) > len(want) else math.exp(1 - len(want) / len(said))
    return brevity * math.exp(math.fsum(logs))


def _paraphrase(said: Any, want: Any, judge: Judge) -> int | None:
    """1 or 0; None for a call that failed or a reply without yes or no."""
    try:
        if not (isinstance(said, str) and isinstance(want, str)):
            judge("", "")  # a missing judge is noticed before the types are
            raise TypeCheckError(f"{type(said).__name__} against {type(want).__name__}")
        verdict = judge(said, want).yes
    except NoJudge as error:
        raise RuntimeError(str(error)) from None
    except JudgeError:
        return None
    return None if verdict is None else int(verdict)


METRICS: dict[str, dict[str, Metric]] = {
    "numeric_exact": {"success": _success},
    "string_exact": {"success": _success},
    "numeric_approximate": {
        "mean_absolute_error": _difference(lambda gap, _: gap, None),
        "mean_squared_error": _difference(lambda gap, _: gap * gap, None),
        "mean_relative_absolute_error": _difference(lambda gap, want: gap / abs(want), 1.0),
    },
    "string_approximate": {"bleu": bleu, "rouge": _rouge, "llm_paraphrase": _paraphrase},
    "list_exact": {
        "f1": _f1,
        "precision": partial(_overlap, side=0),
        "recall": partial(_overlap, side=1),
    },
    "list_approximate": {"f1_approximate": _f1_approximate},
}


def direct(answer_type: str, target: Any, answer: Any, judge: Judge) -> dict[str, Any]:
    """Compute the metrics of an answer type on typed values; a metric that raises gives
    `{"raises": name}`."""
    values: dict[str, Any] = {}
    for name, metric in METRICS[answer_type].items():
        try:
            values[name] = metric(answer, target, judge)
        except Exception as error:  # what it raises is the result
            values[name] = {"raises": type(error).__name__}
    return values


def harness(answer_type: str, target: Any, response: Any, judge: Judge) -> dict[str, Any]:
    """Compute the metrics as the harness stores them: both sides as stripped `str()`, failures
    0.0 (specification notes, section 4)."""
    metrics = METRICS[answer_type]
    if not isinstance(response, Mapping) or "answer" not in response:
        return dict.fromkeys(metrics, 0.0)
    answer = str(cast("Mapping[str, Any]", response)["answer"]).strip()
    values = direct(answer_type, str(target).strip(), answer, judge)
    return {name: 0.0 if isinstance(v, dict) else v for name, v in values.items()}


def total(answers: Sequence[Mapping[str, Any]]) -> float:
    """The printed total of one workload, from the metrics of each of its answers.

    Sum of the counted metrics' values that are present, over all their rows (section 4.8); NaN
    when one counted metric has rows but no value. Raises TypeError when a paraphrase verdict is
    missing, ZeroDivisionError when nothing counts.
    """
    columns: dict[str, list[float | None]] = {name: [] for name in COUNTED}
    for values in answers:
        for name in ("success", "f1"):
            if name in values:
                columns[name].append(values[name])
        if "bleu" in values:
            columns["string_bootstrap"].append(_bootstrap(values))
        elif "mean_relative_absolute_error" in values:
            columns["rae_score"].append(1 / (1 + values["mean_relative_absolute_error"]))
    score, support = 0.0, 0
    for values in (v for v in columns.values() if v):
        present = [float(v) for v in values if v is not None and not math.isnan(v)]
        score += sum(present) if present else math.nan
        support += len(values)
    return score / support


def _bootstrap(values: Mapping[str, Any]) -> float:
    """1 for a yes; else ROUGE where BLEU is above 0.2; else 0. TypeError without a verdict."""
    if values["llm_paraphrase"] is None:
        raise TypeError("int() of a missing paraphrase verdict")
    if int(values["llm_paraphrase"]) > 0:
        return 1.0
    return float(values["rouge"]) if values["bleu"] > 0.2 else 0.0
