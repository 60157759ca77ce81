"""Error analyses of scored predictions (spec section 15): failure modes, stop behaviour, order
confusion, operator progress.

The authors assigned failure modes with the help of a judge and a table that is not public. The
rules here are the specification's deterministic stand-in; the first that applies decides.
"""

from __future__ import annotations

import re
import string
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import mean, median
from typing import Any, cast

from rapidfuzz.distance import Levenshtein

from rewards.cdr.release_files import slot_name
from rewards.gold import OPERATORS, RECIPE_PARAMS, BoundStep, GoldError, Step, bind, run_bound
from rewards.parse import normalise

Row = Mapping[str, Any]
MODES = (
    "Filter Threshold",
    "Instruction Misread",
    "Formatting Drift",
    "Order Violation",
    "Missed Operator",
    "Under-application",
    "Over-application",
    "Semantic Rewrite",
    "Other",
)
_LOOSE = str.maketrans("", "", string.punctuation + string.whitespace)
_REWRITTEN = 0.02  # share of word 3-grams that occur in neither input nor reference


def steps_of(row: Row) -> list[BoundStep]:
    """The row's recipe. Public rows carry no filter parameters: such filters are left out.

    Raises `GoldError` for an operator that does not exist.
    """
    params = cast("dict[str, dict[str, Any]]", row.get("filter_params_by_name") or {})
    steps: list[BoundStep] = []
    for name in cast("list[str]", row.get("operator_sequence") or []):
        known = OPERATORS.get(name)
        if known is not None and known.kind == "filter" and name not in params:
            continue
        steps.append(bind(Step(name, dict(params.get(name) or RECIPE_PARAMS.get(name, {})))))
    return steps


def failure_mode(row: Row, status: str, text: str, siblings: Sequence[str] = ()) -> str:
    """The class of one wrong prediction; `siblings` are the golds of the row's other orders."""
    reference, source = str(row["reference_text"]), str(row["input_text"])
    names = cast("list[str]", row.get("operator_sequence") or [])
    if status.strip().upper() != str(row["reference_status"]).strip().upper():
        has_filter = any(name.endswith("_filter") for name in names)
        return "Filter Threshold" if has_filter else "Instruction Misread"
    if _loose(text) == _loose(reference):
        return "Formatting Drift"
    said = normalise(text)
    if said in {normalise(other) for other in siblings}:
        return "Order Violation"
    try:
        mappers = [s for s in steps_of(row) if s.operator.kind == "mapper"]
    except GoldError:
        mappers = []
    if said == normalise(source) or said in _one_left_out(source, row, mappers):
        return "Missed Operator"
    active = _still_active(mappers, text)
    if active and _deletions(source, text) <= _deletions(source, reference):
        return "Under-application"
    if not active and _lacks_more_than_it_adds(reference, text):
        return "Over-application"
    if _rewritten(text, source, reference) > _REWRITTEN:
        return "Semantic Rewrite"
    return "Other"


def _loose(text: str) -> str:
    return text.lower().translate(_LOOSE)


def _one_left_out(source: str, row: Row, mappers: Sequence[BoundStep]) -> set[str]:
    found: set[str] = set()
    try:
        steps = steps_of(row)
        for i, step in enumerate(steps):
            if step.operator.kind == "mapper":
                done = run_bound(source, [*steps[:i], *steps[i + 1 :]])
                found.add(normalise(done.text))
    except (GoldError, ValueError):
        pass
    return found


def _still_active(mappers: Sequence[BoundStep], text: str) -> bool:
    for step in mappers:
        try:
            if step.call(text, **step.params) != text:
                return True
        except (GoldError, ValueError):
            continue
    return False


def _deletions(source: str, text: str) -> Counter[str]:
    """Characters of `source` that an alignment with `text` leaves out."""
    ops = Levenshtein.opcodes(source, text)
    return Counter(
        c
        for op in ops
        if op.tag in ("delete", "replace")
        for c in source[op.src_start : op.src_end]
    )


def _lacks_more_than_it_adds(reference: str, text: str) -> bool:
    deleted = inserted = 0
    for op in Levenshtein.opcodes(reference, text):
        deleted += op.src_end - op.src_start if op.tag in ("delete", "replace") else 0
        inserted += op.dest_end - op.dest_start if op.tag in ("insert", "replace") else 0
    return deleted > inserted


def _rewritten(text: str, *known: str) -> float:
    grams = _grams(text)
    seen = set[tuple[str, ...]]().union(*(set(_grams(k)) for k in known))
    return sum(g not in seen for g in grams) / len(grams) if grams else 0.0


def _grams(text: str) -> list[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return list(zip(words, words[1:], words[2:], strict=False))


def operator_progress(row: Row, status: str, text: str) -> float | None:
    """Completed steps over all: a mapper is complete when it changes nothing on the prediction, a
    filter when it decides on it as in the reference run. None without an executable recipe."""
    try:
        steps = steps_of(row)
        run = run_bound(str(row["input_text"]), steps)
        decided = {e["operator"]: e["keep"] for e in run.trace if e["kind"] == "filter"}
        done = 0
        for step in steps:
            if step.operator.kind == "mapper":
                done += step.call(text, **step.params) == text
            else:
                done += step.judge(text)[0] == decided.get(step.operator.name, True)
        return done / len(steps) if steps else None
    except (GoldError, ValueError, RecursionError):
        return None


def analyse(predictions: Sequence[Row]) -> dict[str, Any]:
    """All analyses over release prediction rows; counts, shares and sample sizes."""
    modes: Counter[str] = Counter()
    progress: list[float] = []
    scored = wrong = 0
    for row, others, variant in _answers(predictions):
        scored += 1
        status, text = _said(variant)
        share = operator_progress(row, status, text)
        progress += [] if share is None else [share]
        if not _right(row, status, text):
            wrong += 1
            golds = [str(o["reference_text"]) for o in others]
            modes[failure_mode(row, status, text, golds)] += 1
    return {
        "predictions": scored,
        "failures": wrong,
        "failure_modes": {name: modes[name] for name in MODES if modes[name]},
        "operator_progress": mean(progress) if progress else None,
        "stop_behaviour": stop_behaviour(predictions),
        "order_confusion": order_confusion(predictions),
    }


def stop_behaviour(predictions: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """Of order_f answers whose gold drops the text: by slot, the shares that are nearer to the text
    where the recipe stops, and to that of the full run, how much nearer, and `rs`, the share that
    is right (paper Fig. 6)."""
    stops: defaultdict[str, list[tuple[str, int, bool]]] = defaultdict(list)
    for row, _, variant in _answers(predictions):
        _stop(row, *_said(variant), stops)
    return {slot: _stop_summary(rows) for slot, rows in sorted(stops.items())}


def order_confusion(predictions: Sequence[Row]) -> dict[str, Any]:
    """Of wrong answers to a swapped order: the shares that are nearer to the canonical order's gold
    and to their own."""
    confusion: Counter[str] = Counter()
    for row, others, variant in _answers(predictions):
        status, text = _said(variant)
        if not _right(row, status, text) and (side := _order_side(row, text, others)):
            confusion[side] += 1
    return _shares(confusion)


def _answers(predictions: Sequence[Row]) -> Iterator[tuple[Row, list[Row], Row]]:
    """(row, the other rows of its order group, answer) of every valid answer that is a text."""
    by_group: defaultdict[str, list[Row]] = defaultdict(list)
    for row in predictions:
        if row.get("order_group_instance_id"):
            by_group[str(row["order_group_instance_id"])].append(row)
    for row in predictions:
        if row.get("scoring_profile") not in (None, "", "text_refinement"):
            continue
        group = by_group.get(str(row.get("order_group_instance_id")), [])
        others = [other for other in group if other is not row]
        for variant in cast("list[dict[str, Any]]", row.get("variant_predictions") or []):
            if variant.get("valid_prediction", True):
                yield row, others, variant


def _said(variant: Row) -> tuple[str, str]:
    return str(variant.get("predicted_status") or ""), str(
        variant.get("predicted_clean_text") or ""
    )


def _right(row: Row, status: str, text: str) -> bool:
    same = status.strip().upper() == str(row["reference_status"]).strip().upper()
    return same and normalise(text) == normalise(str(row["reference_text"]))


def _stop(
    row: Row, status: str, text: str, stops: defaultdict[str, list[tuple[str, int, bool]]]
) -> None:
    """order_f rows whose gold is DROP and whose full run differs from the stop text."""
    full, stop = row.get("reference_text_full_run"), str(row["reference_text"])
    track = str(row.get("source_track") or row.get("benchmark_track"))
    if track != "order_f" or str(row["reference_status"]).upper() != "DROP":
        return
    if not full or full == stop:
        return
    near = Levenshtein.distance(text, stop)
    far = Levenshtein.distance(text, str(full))
    side = "stop" if near < far else "full" if near > far else "tie"
    stops[str(slot_name(row.get("order_slot")))].append(
        (side, far - near, _right(row, status, text))
    )


def _stop_summary(rows: Sequence[tuple[str, int, bool]]) -> dict[str, Any]:
    gaps = [gap for _, gap, _ in rows]
    shares = _shares(Counter(side for side, _, _ in rows))
    return (
        shares
        | {"rs": mean(float(right) for *_, right in rows)}
        | {"mean_gap": mean(gaps), "median_gap": median(gaps)}
    )


def _order_side(row: Row, text: str, others: Sequence[Row]) -> str:
    """Wrong answers to a swapped order: nearer to the canonical gold or to their own?"""
    slot = str(row.get("order_slot") or "")
    if not slot.startswith("swap") or not others:
        return ""
    own = Levenshtein.distance(text, str(row["reference_text"]))
    canonical = Levenshtein.distance(text, str(others[0]["reference_text"]))
    return "canonical" if canonical < own else "swapped" if own < canonical else "tie"


def _shares(counts: Counter[str]) -> dict[str, Any]:
    total = sum(counts.values())
    return {"n": total} | {name: count / total for name, count in sorted(counts.items())}


def error_text(found: Mapping[str, Any]) -> str:
    """The analyses as a few lines of plain text."""
    lines = [f"{found['failures']} of {found['predictions']} predictions wrong"]
    total = max(int(found["failures"]), 1)
    for name, count in sorted(found["failure_modes"].items(), key=lambda p: -p[1]):
        lines.append(f"  {name:<20} {count:>6} {100 * count / total:5.1f} %")
    if found["operator_progress"] is not None:
        lines.append(f"operator progress {found['operator_progress']:.3f}")
    for slot, row in found["stop_behaviour"].items():
        lines.append(
            f"stop behaviour {slot}: n {row['n']}, stop {row.get('stop', 0.0):.2f}, "
            f"full run {row.get('full', 0.0):.2f}, tie {row.get('tie', 0.0):.2f}, "
            f"median gap {row['median_gap']:g}"
        )
    row = found["order_confusion"]
    if row["n"]:
        lines.append(
            f"order confusion (swapped, wrong): n {row['n']}, nearer to the canonical order "
            f"{row.get('canonical', 0.0):.2f}, to the swapped {row.get('swapped', 0.0):.2f}"
        )
    return "\n".join(lines)
