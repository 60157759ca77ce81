"""Which questions become tasks: stable, unambiguous, not trivial, every step matters, and every
value of the pipeline is computed a second time by SQL.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from data_gen.proof.forms import Shelf
from data_gen.proof.original import NotProvable
from data_gen.queries import duckdb_sql, ops
from data_gen.queries.lake_steps import NAMES_LEAST, enough
from data_gen.queries.ops import Op
from data_gen.queries.pipeline import (
    PipelineFailed,
    Question,
    runs,
    script_values,
    subtask_key,
)
from data_gen.tally import DIFFERS, UNPROVABLE, Refusal
from rewards.krama.answer import score_response
from rewards.krama.judge import deterministic
from rollouts.event_loop import asyncio_run

LEAST_MARGIN = 1e-3  # relative distance to another answer (ties, rounding boundaries)
SHUFFLES = (1, 2)
_FITTED = 10  # rows that a line is fitted to, or a correlation computed of
_ALIKE = 0.5  # outcome of the middle figure, given for every group
_CAUSES = {
    "IndexError": "no row or group is left",
    "KeyError": "a value that the rows left do not have",
}
_BASELINES: tuple[Any, ...] = (0, 1, "", "Yes", [], None)


def reject(question: Question, values: Mapping[str, Any]) -> str:
    """Why values cannot be gold, "" when they can: missing, empty, huge, or a tie."""
    last = question.steps[-1]
    answer: Any = values.get("main-task")
    if values["margin"] < 0:
        return "a group of one row"
    if not values["margin"] >= LEAST_MARGIN:
        return "ambiguous"
    if why := _guessable(question, values):
        return why
    for value in values.values():
        if not _finite(value):
            return "not finite"
    if isinstance(answer, list):
        items = cast("list[Any]", answer)
        if not 2 <= len(items) <= 12 or len({str(i) for i in items}) < 2:
            return "trivial"
    elif isinstance(answer, str):
        if not 0 < len(answer.strip()) <= 80 or answer in question.text or answer == "nan":
            return "trivial"
    else:
        size = abs(float(cast("float", answer)))
        few = last.value.startswith("len(") and size < 2
        if few or size == 1 or not 1e-9 < size < 1e12:
            return "trivial"
    counts = [v for k, v in values.items() if k.startswith("subtask") and isinstance(v, int)]
    least = _FITTED if isinstance(last.op, ops.Fit | ops.Correlate) else 3
    if any(count < least for count in counts):
        return "too few rows"
    return "" if score(question, answer, answer) == 1.0 else "gold does not score 1"


def _guessable(question: Question, values: Mapping[str, Any]) -> str:
    """Why an answer can be had without the numbers: too few groups to choose from, or figures so
    alike that one of them, repeated, is nearly right."""
    last, answer = question.steps[-1], values["main-task"]
    groups = next(
        (values[subtask_key(n, -1)] for n, s in enumerate(question.steps) if s.kind == "group"), 0
    )
    if isinstance(last.op, ops.Best | ops.Nth) and groups < NAMES_LEAST:
        return "too few groups"
    if isinstance(last.op, ops.Top) and not enough(groups, last.op.k):
        return "too few groups"
    if isinstance(last.op, ops.Above) and not 2 <= int(answer) <= groups - 2:
        return "too few groups"
    if isinstance(last.op, ops.Each):
        middle = sorted(answer)[len(answer) // 2]
        if score(question, answer, [middle] * len(answer)) > _ALIKE:
            return "figures too alike"
    return ""


def _finite(value: Any) -> bool:
    if isinstance(value, list):
        return all(_finite(v) for v in cast("list[Any]", value))
    return not isinstance(value, float) or math.isfinite(value)


def score(question: Question, target: Any, answer: Any) -> float:
    """The outcome of `answer` against `target`, by the question's type."""
    kind = question.steps[-1].answer_type
    found = score_response(kind, target, {"answer": answer}, "table3", deterministic).outcome
    return found or 0.0


Checked = tuple[dict[str, Any] | None, str]  # (values of every step, "") or (None, why)


def validate(question: Question, folder: Path) -> Checked:
    """(values of every step, "") or (None, why)."""
    (found,) = validate_all([(question, folder)])
    return found


def validate_all(questions: Sequence[tuple[Question, Path]]) -> list[Checked]:
    """`validate` of many questions, side by side in the sandbox."""

    async def all_() -> list[Checked]:
        return await asyncio.gather(*(_validate(q, folder) for q, folder in questions))

    return asyncio_run(all_())


async def _validate(question: Question, folder: Path) -> Checked:
    """(values of every step, "") or (None, why). Runs the pipeline about six times, in one call.

    The run, a second run and runs on shuffled rows must agree in every step; leaving out an
    optional step (filter, join) must change the answer; no constant answer may score 1.
    """
    optional = [number for number, step in enumerate(question.steps) if step.optional]
    seeds: tuple[int | None, ...] = (None, None, *SHUFFLES)
    wanted = [*((seed, -1) for seed in seeds), *((None, number) for number in optional)]
    values, *others = await runs(question, folder, wanted)
    if isinstance(values, PipelineFailed):
        cause = str(values).partition(":")[0]
        return None, _CAUSES.get(cause, f"pipeline failed ({cause})")
    if why := reject(question, values):
        return None, why
    for seed, again in zip(seeds[1:], others[: len(seeds) - 1], strict=True):
        if isinstance(again, PipelineFailed):
            return None, "unstable"
        if seed is None and again != values:
            return None, "not repeatable"
        if not _agree(question, values, again):
            return None, "unstable"
    for other in others[len(seeds) - 1 :]:
        if not _matters(question, other, values["main-task"]):
            return None, "a step changes nothing"
    if any(score(question, values["main-task"], base) > 0.95 for base in _BASELINES):
        return None, "trivial"
    if question.script and not _prints(question, values, await script_values(question, folder)):
        return None, "the short script differs"
    return {k: v for k, v in values.items() if k != "margin"}, ""


def _agree(question: Question, values: Mapping[str, Any], again: Mapping[str, Any]) -> bool:
    """Every step's value the same; order of rows must not show, not even in the last digits."""
    last = len(question.steps) - 1
    for number, step in enumerate(question.steps):
        key = subtask_key(number, last)
        got = score_response(step.answer_type, values[key], {"answer": again[key]}).outcome
        exact = step.answer_type.endswith("exact") or isinstance(values[key], str)
        if got is None or got < (1.0 if exact else 1 - 1e-6):
            return False
        if isinstance(values[key], list) and not _same_order(values[key], again[key]):
            return False
    return True


def _prints(
    question: Question, values: Mapping[str, Any], lines: list[str] | PipelineFailed
) -> bool:
    """Whether a script printed the value of every step, in their order."""
    if isinstance(lines, PipelineFailed) or len(lines) != len(question.steps):
        return False
    last = len(question.steps) - 1
    return all(
        score_response(s.answer_type, values[subtask_key(n, last)], {"answer": line}).outcome == 1.0
        for n, (s, line) in enumerate(zip(question.steps, lines, strict=True))
    )


def _same_order(one: Sequence[Any], two: Sequence[Any]) -> bool:
    return len(one) == len(two) and all(
        a == b if isinstance(a, str) else math.isclose(a, b, rel_tol=1e-6)
        for a, b in zip(one, two, strict=True)
    )


def _matters(question: Question, left_out: Mapping[str, Any] | PipelineFailed, answer: Any) -> bool:
    if isinstance(left_out, PipelineFailed):
        return True  # a later step needs it
    other = left_out["main-task"]
    if isinstance(answer, float) and isinstance(other, float | int):
        return not math.isclose(answer, other, rel_tol=0.01)
    return score(question, answer, other) < 0.999


_TOLERANCE = 1e-7  # relative; two ways of adding up differ in the last digits


def refusal(question: Question, values: Mapping[str, Any], shelf: Shelf) -> Refusal | None:
    """None when both ways agree on every step; else why the question is refused."""
    steps = question.ops
    if steps is None:
        return Refusal(UNPROVABLE, "a step without a typed form")
    try:
        found = duckdb_sql.values(steps, shelf)
    except NotProvable as error:
        return Refusal(UNPROVABLE, str(error))
    last = len(steps) - 1
    for number, (op, second) in enumerate(zip(steps, found, strict=True)):
        first = values[subtask_key(number, last)]
        if not same(op, first, second):
            kind = question.steps[number].kind
            said = f"step {number + 1} ({kind}) is {first!r}, by SQL {second!r}"
            return Refusal(DIFFERS, said)
    return None


def same(op: Op, first: Any, second: Any) -> bool:
    """Whether two ways gave one value. The order of a list matters where the step has one."""
    if not isinstance(first, list) or not isinstance(second, list):
        return not isinstance(first, list | tuple) and _alike(first, second)
    one, two = cast("list[Any]", first), cast("list[Any]", second)
    if not isinstance(op, ops.Each | ops.Fit):
        one, two = sorted(one, key=str), sorted(two, key=str)
    return len(one) == len(two) and all(map(_alike, one, two))


def _alike(one: Any, two: Any) -> bool:
    if isinstance(one, list) or isinstance(two, list):
        return False
    if isinstance(one, str) or isinstance(two, str):
        return one == two
    return math.isclose(float(one), float(two), rel_tol=_TOLERANCE, abs_tol=1e-12)
