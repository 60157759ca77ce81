"""CDR-Bench's two families: text refined by a recipe, and the JSON tasks of its extension.

No import here is for builders or audits alone: this module and what it imports travel with an
exported task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from assay.family import SOURCE, Answer, Cheat, Family, Score, Task
from assay.task import TaskError
from rewards.cdr.release_files import JSON, MIXED
from rewards.cdr.release_scores import gold_response, profile_of, score_structured
from rewards.cdr.score import (
    always_drop,
    copy_input,
    filter_means_drop,
    gold_answer,
    result_of,
    score_refinement,
)
from rewards.parse import parse_strict
from rewards.weights import RefinementReward, StructuredReward

# order slots of the tracks that move a filter
FILTER_PLACES = {"pre": "before the mappers", "mid": "between them", "post": "after them"}
# Input characters, upper bounds of the slices; 4000 and 8000 end the benchmark's own buckets.
LENGTHS = (500, 1000, 2000, 4000, 8000)


def length_slice(characters: int) -> str:
    """Name the slice of an input by its length in characters (`≤ 500` … `> 8000`)."""
    bound = next((b for b in LENGTHS if characters <= b), None)
    return f"≤ {bound}" if bound else f"> {LENGTHS[-1]}"


def _source(task: Task) -> str:
    gold, meta = task.gold, task.meta
    for value in (meta.get("document"), gold.get("document"), gold.get("source_record_id")):
        if value:
            return str(value)
    return task.group or str(meta.get("instance") or gold.get("instance_id") or task.id)


def _slices(task: Task) -> dict[str, str]:
    """Track, status of gold, whether what is kept passed a filter, input length, style, recipe
    length, domain, subtask and prompt mode, as far as the task says them."""
    gold, meta = task.gold, task.meta
    status = str(gold.get("status") or gold.get("reference_status") or "")
    found = {"track": task.track, SOURCE: _source(task)}
    if status:
        found["gold status"] = status
    if status == "KEEP" and "has_filter" in meta:
        found["kept"] = "with a filter" if meta["has_filter"] else "no filter"
    if isinstance(gold.get("input_text"), str):
        found["input characters"] = length_slice(len(gold["input_text"]))
    steps = gold.get("operator_sequence") or gold.get("recipe") or meta.get("recipe")
    if isinstance(steps, list):
        found["recipe steps"] = str(len(steps))  # pyright: ignore[reportUnknownArgumentType]
    if "recipe" in gold or "operator_sequence" in gold or "has_filter" in meta:
        found["filter"] = "with a filter" if has_filter(task) else "no filter"
    slot = meta.get("order_slot") or gold.get("order_slot")
    if slot in FILTER_PLACES:
        found["filter place"] = FILTER_PLACES[slot]
    if isinstance(gold.get("semantic_operator"), str):
        found["subtask"] = f"{task.track}: {gold['semantic_operator']}"
    for name in ("domain", "style", "difficulty", "mode"):
        value = meta.get(name) or gold.get(name)
        if isinstance(value, str) and value:
            found[name] = value
    return found


def has_filter(task: Task) -> bool:
    """Whether the recipe has a step that may refuse the text."""
    if "has_filter" in task.meta:
        return bool(task.meta["has_filter"])
    steps: list[Any] = task.gold.get("operator_sequence") or task.gold.get("recipe") or []
    names = [str(s.get("operator") if isinstance(s, Mapping) else s) for s in steps]  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    return any(name.endswith("_filter") for name in names)


def _content(task: Task) -> Iterable[str]:
    return [str(task.gold.get("input_text") or "")]


def score_text(task: Task, answer: Answer, weights: RefinementReward) -> Score:
    """Score a refined text in the strict reading (`rewards.cdr.score.score_refinement`)."""
    return score_refinement(task.gold, answer.text, "strict", weights, truncated=answer.truncated)


def score_json(task: Task, answer: Answer, weights: StructuredReward) -> Score:
    """Score a JSON answer in the strict reading (`rewards.cdr.release_scores.score_structured`)."""
    return score_structured(task.gold, answer.text, weights=weights, truncated=answer.truncated)


def score_release_row(
    gold: Mapping[str, Any], row: Mapping[str, Any], weights: RefinementReward | StructuredReward
) -> Score:
    """Score a row of `assay score`: `{output, truncated, parsing}`; `parsing` is `strict` where it
    names none. Gold of the extension's JSON profiles is scored as JSON.

    Raises `TaskError` for a row without an output, ValueError for a parsing that does not exist.
    """
    output, parsing = row.get("output"), str(row.get("parsing") or "strict")
    if not isinstance(output, str):
        raise TaskError("field 'output' is missing or not a string; give the model's answer there")
    cut = bool(row.get("truncated"))
    if isinstance(weights, StructuredReward):
        return score_structured(gold, output, parsing, weights, cut)
    if "reference_text" in gold and profile_of(gold) in (JSON, MIXED):
        return score_structured(gold, output, parsing, None, cut)
    return score_refinement(gold, output, parsing, weights, cut)


def labels(task: Task, answer: Answer) -> tuple[str, str]:
    """(status of gold, status that the answer names or `none`), for `assay eval`."""
    said = parse_strict(result_of(task.gold, answer.text))
    status = task.gold.get("status") or task.gold.get("reference_status") or ""
    return str(status), said.status if said.why == "ok" and said.status else "none"


REFINEMENT = Family(
    name="refinement",
    score=score_text,
    gold=lambda task: gold_answer(task.gold),
    weights=RefinementReward,
    cheats={
        "copy": Cheat(lambda task: copy_input(task.gold), admits=0.5),
        "drop": Cheat(lambda task: always_drop(task.gold), admits=0.5),
        # with the texts of gold, so it admits to anything: its row is there to be compared with
        "filter means drop": Cheat(
            lambda task: filter_means_drop(task.gold, has_filter(task)), admits=1.0
        ),
    },
    slices=_slices,
    content=_content,
    audit="rewards.cdr.audit:TEXT_AUDIT",
)
STRUCTURED = Family(
    name="structured",
    score=score_json,
    gold=lambda task: gold_response(task.gold),
    weights=StructuredReward,
    cheats={"empty object": Cheat(lambda task: "{}", admits=0.05)},
    slices=_slices,
    content=_content,
    audit="rewards.cdr.audit:JSON_AUDIT",
)
