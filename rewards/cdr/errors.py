"""Error analyses of scored predictions (spec section 15): failure modes, stop behaviour, order
confusion, operator progress.

The authors assigned failure modes with the help of a judge and a table that is not public. The
rules here are the specification's deterministic stand-in; the first that applies decides.
"""

from __future__ import annotations

import re
import string
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
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
    """Bind the row's recipe. Public rows carry no filter parameters: such filters are left out.

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
    """Classify one wrong prediction into a class of `MODES` (spec section 15); the first rule
    that applies decides. `siblings`: the golds of the row's other orders."""
    reference, source = str(row["reference_text"]), str(row["input_text"])
    names = cast("list[str]", row.get("operator_sequence") or [])
    if not _same_status(row, status):
        has_filter = any(name.endswith("_filter") for name in names)
        return "Filter Threshold" if has_filter else "Instruction Misread"
    if _loose(text) == _loose(reference):
        return "Formatting Drift"
    said = normalise(text)
    if said in {normalise(other) for other in siblings}:
        return "Order Violation"
    try:
        steps = steps_of(row)
    except GoldError:
        steps = []
    if said == normalise(source) or said in _one_left_out(source, steps):
        return "Missed Operator"
    active = any(s.operator.kind == "mapper" and _changes(s, text) for s in steps)
    if active and _deletions(source, text) <= _deletions(source, reference):
        return "Under-application"
    if not active and len(reference) > len(text):  # an alignment deletes more than it inserts
        return "Over-application"
    if _rewritten(text, source, reference) > _REWRITTEN:
        return "Semantic Rewrite"
    return "Other"


def _loose(text: str) -> str:
    return text.lower().translate(_LOOSE)


def _one_left_out(source: str, steps: Sequence[BoundStep]) -> set[str]:
    """What the recipe gives without one of its mappers, for each of them."""
    found: set[str] = set()
    with suppress(GoldError, ValueError):
        for i, step in enumerate(steps):
            if step.operator.kind == "mapper":
                done = run_bound(source, [*steps[:i], *steps[i + 1 :]])
                found.add(normalise(done.text))
    return found


def _changes(step: BoundStep, text: str) -> bool:
    try:
        return step.call(text, **step.params) != text
    except (GoldError, ValueError):
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


def _rewritten(text: str, *known: str) -> float:
    """The share of a text's word 3-grams that occur in none of `known`."""
    grams = _grams(text)
    seen = set(chain.from_iterable(map(_grams, known)))
    return sum(g not in seen for g in grams) / len(grams) if grams else 0.0


def _grams(text: str) -> list[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return list(zip(words, words[1:], words[2:], strict=False))


def operator_progress(row: Row, status: str, text: str) -> float | None:
    """Compute the share of completed steps, in [0, 1]: a mapper is complete when it changes
    nothing on the prediction, a filter when it decides on it as in the reference run (spec
    section 15). None without an executable recipe."""
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
    """Run all analyses over release prediction rows: counts, shares in [0, 1] and sample sizes."""
    modes: Counter[str] = Counter()
    answers = [*_answers(predictions)]
    shares = [operator_progress(row, status, text) for row, _, status, text, _ in answers]
    progress = [share for share in shares if share is not None]
    for row, others, status, text, right in answers:
        if not right:
            golds = [str(other["reference_text"]) for other in others]
            modes[failure_mode(row, status, text, golds)] += 1
    return {
        "predictions": len(answers),
        "failures": modes.total(),
        "failure_modes": {name: modes[name] for name in MODES if modes[name]},
        "operator_progress": mean(progress) if progress else None,
        "stop_behaviour": stop_behaviour(predictions),
        "order_confusion": order_confusion(predictions),
    }


def stop_behaviour(predictions: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """Of order_f answers whose gold drops the text, and whose full run differs: by slot, the shares
    that are nearer to the text where the recipe stops, and to that of the full run, how many edits
    nearer, and `rs`, the share that is right (paper Fig. 6)."""
    stops: defaultdict[str, list[tuple[int, bool]]] = defaultdict(list)
    for row, _, _, text, right in _answers(predictions):
        full, stop = row.get("reference_text_full_run"), str(row["reference_text"])
        track = str(row.get("source_track") or row.get("benchmark_track"))
        dropped = str(row["reference_status"]).upper() == "DROP"
        if track == "order_f" and dropped and full and full != stop:
            gap = Levenshtein.distance(text, str(full)) - Levenshtein.distance(text, stop)
            stops[str(slot_name(row.get("order_slot")))].append((gap, right))
    return {
        slot: _shares("stop" if gap > 0 else "full" if gap < 0 else "tie" for gap, _ in rows)
        | {"rs": mean(float(right) for _, right in rows)}
        | {"mean_gap": mean(gap for gap, _ in rows), "median_gap": median(gap for gap, _ in rows)}
        for slot, rows in sorted(stops.items())
    }


def order_confusion(predictions: Sequence[Row]) -> dict[str, Any]:
    """Of wrong answers to a swapped order: the shares that are nearer to the canonical order's gold
    and to their own."""
    sides: list[str] = []
    for row, others, _, text, right in _answers(predictions):
        if not right and others and str(row.get("order_slot") or "").startswith("swap"):
            own = Levenshtein.distance(text, str(row["reference_text"]))
            canonical = Levenshtein.distance(text, str(others[0]["reference_text"]))
            sides.append(
                "canonical" if canonical < own else "swapped" if own < canonical else "tie"
            )
    return _shares(sides)


def _answers(
    predictions: Sequence[Row],
) -> Iterator[tuple[Row, list[Row], str, str, bool]]:
    """(row, the other rows of its order group, status, text, whether it is right) of every valid
    answer that is a text."""
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
                status = str(variant.get("predicted_status") or "")
                text = str(variant.get("predicted_clean_text") or "")
                right = _same_status(row, status) and normalise(text) == normalise(
                    str(row["reference_text"])
                )
                yield row, others, status, text, right


def _same_status(row: Row, status: str) -> bool:
    return status.strip().upper() == str(row["reference_status"]).strip().upper()


def _shares(sides: Iterable[str]) -> dict[str, Any]:
    counts = Counter(sides)
    total = counts.total()
    return {"n": total} | {name: count / total for name, count in sorted(counts.items())}


def error_text(found: Mapping[str, Any]) -> str:
    """Write the result of `analyse` as a few lines of plain text."""
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
