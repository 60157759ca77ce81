"""Scoring one refinement answer: the published metrics, and the shaped reward training sees.

RS (outcome): right status and, after space normalisation, the right text. RG: share of the edit
distance from input to gold that the answer closed; published as it is, it pays 0.96 for an empty
answer to a task that deletes 96 % of its text. The reward therefore never uses RG alone but
`progress`, which an answer earns only by being nearer to gold than the input *and* than nothing.

An answer may write the state after every step before its result (`mode: states` of a task):

    <state>text after step 1</state><check>38 < 50: DROP</check><status>…</status><clean_text>…

A mapper writes the text it leaves in `<state>`, a filter what it measured and its verdict in
`<check>`; after a rejecting filter nothing more is written. The outcome reads the result alone.
Gold holds the executor's states as such entries in `written` (`rewards.cdr.recipes` makes them).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple, cast

from assay.task import Score, TaskError
from assay.thoughts import answer_after_thoughts
from rewards.parse import (
    ANALYSIS_MODES,
    Parsed,
    edit_distance,
    parse,
    parse_strict,
    render,
    same_text,
)
from rewards.weights import RefinementReward

STATUSES = ("KEEP", "DROP")
MAX_OUTPUT_CHARS = 100_000  # longer answers than this, and than ten times the task, are not read


_DEFAULTS = RefinementReward()


class Metrics(NamedTuple):
    """The published per-prediction numbers (distances in characters, the rest in [0, 1])."""

    d_in: int
    d_pred: int
    d_edit: int
    status_match: bool
    rs: bool
    rg: float
    strict_equal: bool
    edit_calibration: float


class _Gold(NamedTuple):
    input_text: str
    status: str
    text: str


@lru_cache(maxsize=256)  # all answers to a task share it
def _to_do(input_text: str, gold_text: str) -> int:
    return edit_distance(input_text, gold_text)


def refinement_metrics(
    input_text: str, gold_status: str, gold_text: str, status: str, text: str
) -> Metrics:
    """Compute RS, RG and the edit distances of one prediction (spec section 12.2); an empty
    `status` matches nothing.

    (It is the release *parser* that reads an answer without a status as KEEP.)
    """
    d_in = _to_do(input_text, gold_text)
    exact = text == gold_text
    d_pred = 0 if exact else d_in if text == input_text else edit_distance(text, gold_text)
    d_edit = d_in if exact else edit_distance(input_text, text)
    match = status.strip().upper() == gold_status.strip().upper()
    rg = 1.0 if d_pred == 0 else min(1.0, max(0.0, (d_in - d_pred) / max(d_in, 1)))
    return Metrics(
        d_in=d_in,
        d_pred=d_pred,
        d_edit=d_edit,
        status_match=match,
        rs=match and (exact or same_text(text, gold_text)),
        rg=rg,
        strict_equal=match and exact,
        edit_calibration=max(0.0, 1.0 - abs(d_edit - d_in) / max(d_edit, d_in, 1)),
    )


def progress(metrics: Metrics, gold_length: int) -> float:
    """Measure how far a text went from both lazy answers, copy and nothing, to gold; in [0, 1].

    The smaller of RG and its twin measured from the empty text, so that neither the input nor ""
    earns anything. Success is all the way; an empty gold has no twin (there "" is the answer).
    """
    if metrics.rs or metrics.rg >= 1.0:
        return 1.0
    if gold_length == 0:
        return metrics.rg
    return max(0.0, min(metrics.rg, 1.0 - metrics.d_pred / gold_length))


def shaped_reward(
    metrics: Metrics, gold_length: int, dropped: bool, weights: RefinementReward
) -> float:
    """Compute the reward in [0, 1] of a well-formed answer from its metrics. `gold_length` is in
    characters; `dropped`: the answer's status is DROP."""
    if not metrics.status_match:
        return max(0.0, weights.format - (weights.wrong_drop if dropped else 0.0))
    if metrics.rs:
        return 1.0
    counted = weights.drop_progress or not dropped
    gained = weights.progress * progress(metrics, gold_length) if counted else 0.0
    return weights.format + weights.status + gained


def score_refinement(
    task_gold: Mapping[str, Any],
    output: str,
    parsing: str = "strict",
    weights: RefinementReward | None = None,
    truncated: bool = False,
) -> Score:
    """Score one answer; `outcome` is RS. Never raises on any `output`.

    `task_gold` has `input_text`, `status` and `text` (or the release's `reference_status` and
    `reference_text`); raises `TaskError` when it has not. `truncated`: the model was cut off by
    its length limit, which in `strict` reading earns 0 whatever it had written, as does an answer
    of absurd length; the `release` reading takes any response as it is, as the release does. In
    both, a thought before the answer is no part of it.
    """
    gold = _read_gold(task_gold)
    weights = weights or _DEFAULTS
    output = answer_after_thoughts(output, lambda: gold_answer(task_gold))
    if parsing == "strict":  # the published reading knows neither bound
        limit = max(MAX_OUTPUT_CHARS, 10 * (len(gold.input_text) + len(gold.text)))
        if len(output) > limit:
            return _nothing("too_long")
        if truncated:
            return _nothing("truncated")
        output = result_of(task_gold, output)
    answer = parse(output, parsing)
    if answer.why != "ok":
        return _nothing(answer.why)
    well_formed = parsing == "strict" or parse_strict(output).why == "ok"
    return _score(gold, answer, well_formed, weights)


def copy_input(task_gold: Mapping[str, Any]) -> str:
    """Baseline: always KEEP, text copied."""
    return render("KEEP", _read_gold(task_gold).input_text)


def always_drop(task_gold: Mapping[str, Any]) -> str:
    """Baseline: always DROP, text copied."""
    return render("DROP", _read_gold(task_gold).input_text)


def filter_means_drop(task_gold: Mapping[str, Any], filtered: bool) -> str:
    """Baseline: the text of gold, with DROP where the recipe has a filter (`filtered`), else KEEP:
    how far the status is known without a look at the text."""
    return render("DROP" if filtered else "KEEP", _read_gold(task_gold).text)


def gold_answer(task_gold: Mapping[str, Any]) -> str:
    """Write the answer that earns 1, with its states where the task asks for them. Raises
    `TaskError` for gold without its fields."""
    gold = _read_gold(task_gold)
    return gold_states(task_gold) + render(gold.status, gold.text)


def _score(gold: _Gold, answer: Parsed, well_formed: bool, weights: RefinementReward) -> Score:
    metrics = refinement_metrics(
        gold.input_text, gold.status, gold.text, answer.status, answer.text
    )
    parts = dict(zip(Metrics._fields, map(float, metrics), strict=True))
    parts["format"] = float(well_formed)
    parts["said_drop"] = float(answer.status == "DROP")
    parts["progress"] = progress(metrics, len(gold.text))
    reward = shaped_reward(metrics, len(gold.text), answer.status == "DROP", weights)
    if not well_formed:  # the forgiving reading may find gold in chatter; the format share is lost
        reward = max(0.0, reward - weights.format)
    why = "ok" if metrics.rs else "wrong_text" if metrics.status_match else "wrong_status"
    return Score(float(metrics.rs), reward, parts, why)


def _nothing(why: str) -> Score:
    names = [name for name in Metrics._fields if not name.startswith("d_")]
    names += ["format", "said_drop", "progress"]
    return Score(0.0, 0.0, dict.fromkeys(names, 0.0), why)


def _read_gold(row: Mapping[str, Any]) -> _Gold:
    """The three fields scoring needs, from a task's gold or a release row."""
    text = _need(row.get("input_text"), "input_text")
    status = _need(row.get("status", row.get("reference_status")), "reference_status")
    gold = _need(row.get("text", row.get("reference_text")), "reference_text")
    if status not in STATUSES and status.strip().upper() not in STATUSES:
        raise TaskError(f"task field 'reference_status' is {status!r}; wanted KEEP or DROP")
    return _Gold(text, status, gold)


def _need(value: Any, name: str) -> str:
    if not isinstance(value, str):
        got = "missing" if value is None else type(value).__name__
        raise TaskError(f"task field {name!r} is {got}; give it as a string")
    return value


# ---- answers with their states

MODE = "states"
MOST = 50  # entries that are read; no recipe is as long
_ENTRY = re.compile(r"\s*<(state|check)>(.*?)</\1>", re.DOTALL)
_ANALYSIS = re.compile(r"\s*<analyze>(.*?)</analyze>", re.DOTALL | re.IGNORECASE)
TAG = re.compile(r"</?(?:state|check)>")

Entry = tuple[str, str]  # (state or check, what stands between the tags)


def split_written(output: str) -> tuple[list[Entry], str]:
    """Split an answer into the entries that lead it and the rest; no entry where none leads it."""
    entries: list[Entry] = []
    at = 0
    while len(entries) < MOST and (match := _ENTRY.match(output, at)):
        entries.append((match[1], match[2]))
        at = match.end()
    return entries, output[at:]


def _lines(gold: Mapping[str, Any]) -> list[str]:
    return [str(line) for line in cast("list[Any]", gold.get("written") or [])]


def result_of(gold: Mapping[str, Any], output: str) -> str:
    """Take the part of an answer that its outcome reads: all of it, but for the states or the
    analysis that a task's mode has before the result."""
    mode = gold.get("mode") or gold.get("prompt_mode")
    if mode == MODE:
        return split_written(output)[1]
    if mode in ANALYSIS_MODES and (match := _ANALYSIS.match(output)):
        return output[match.end() :]
    return output


def gold_states(gold: Mapping[str, Any]) -> str:
    """What a right answer writes before its result: "" in every other mode."""
    return "".join(_lines(gold)) if gold.get("mode") == MODE else ""
