"""PII redaction from AI4Privacy's data (pii-masking-400k and its relatives).

Read are `source_text`, `privacy_mask` (a list of {label, start, end, value}, or the same as JSON or
Python text), `language` and `uid`.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from assay.files import yaml_beside
from assay.syntax import python_literal
from data_gen.cdr.semantic.rows import Row, Unusable, distinct, in_turns, make_row, name_of

_GROUPS: Mapping[str, str] = yaml_beside(__file__, "words.yaml")["pii_groups"]
GROUPS = {group: labels.split() for group, labels in _GROUPS.items()}
LEAST_GROUPS = 2
MOST = 500  # published size


def group_of(label: str) -> str | None:
    """The group of a label, whose running number (GIVENNAME1) does not matter."""
    name = re.sub(r"[^A-Z]", "", label.upper())
    return next((g for g, names in GROUPS.items() if name in names), None)


def sample_of(row: Mapping[str, Any]) -> Row:
    """One English text with its entities. Raises `Unusable`."""
    if not str(row.get("language") or "en").lower().startswith("en"):
        raise Unusable("not English")
    text = row.get("source_text", row.get("unmasked_text"))
    if not isinstance(text, str) or not text.strip():
        raise Unusable("no source_text")
    found = [e | {"group": g} for e in _mask(row.get("privacy_mask")) if (g := _group(e))]
    for entity in found:
        start, end = entity.get("start"), entity.get("end")
        if not isinstance(start, int) or not isinstance(end, int) or not 0 <= start < end:
            raise Unusable("a privacy_mask entry without start and end")
        if "value" in entity and text[start:end] != entity["value"]:
            raise Unusable("privacy_mask does not fit source_text")
    if len({e["group"] for e in found}) < LEAST_GROUPS:
        raise Unusable(f"fewer than {LEAST_GROUPS} groups of entities")
    return {"id": name_of(row, text), "text": text, "entities": found}


def _group(entity: Row) -> str | None:
    return group_of(str(entity.get("label")))


def _mask(value: Any) -> list[Row]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            try:
                value = python_literal(value)
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                raise Unusable("privacy_mask cannot be read") from None
    if not isinstance(value, list) or not all(
        isinstance(e, dict) for e in cast("list[Any]", value)
    ):
        raise Unusable("no privacy_mask")
    return cast("list[Row]", value)


def choose(samples: Iterable[Row], most: int = MOST, seed: int = 42) -> list[Row]:
    """Stratified by the number of groups present."""
    strata: defaultdict[int, list[Row]] = defaultdict(list)
    for sample in distinct(samples):
        strata[len({e["group"] for e in sample["entities"]})].append(sample)
    return in_turns(strata, most, seed)


def redact(text: str, entities: Sequence[Mapping[str, Any]], groups: Sequence[str]) -> str:
    """The text after one step a group, in their order. A step replaces each entity of its group
    that is still whole by `[LABEL_N]`, N counting the label's distinct values in order of
    appearance; what an earlier step has replaced is gone for the later ones.

    Of overlapping entities of one group the one that begins first is taken, the longer one of two
    that begin together.
    """
    taken: list[tuple[int, int, str]] = []
    for group in groups:
        own = [e for e in entities if e["group"] == group]
        for entity in sorted(own, key=lambda e: (int(e["start"]), -int(e["end"]))):
            start, end = int(entity["start"]), int(entity["end"])
            if all(end <= first or last <= start for first, last, _ in taken):
                taken.append((start, end, str(entity["label"]).upper()))
    numbers: dict[tuple[str, str], int] = {}
    counts: defaultdict[str, int] = defaultdict(int)
    out, at = "", 0
    for start, end, label in sorted(taken):  # a label is of one group: steps share no count
        key = (label, text[start:end])
        if key not in numbers:
            counts[label] += 1
            numbers[key] = counts[label]
        out += text[at:start] + f"[{label}_{numbers[key]}]"
        at = end
    return out + text[at:]


_NUMBERS = (
    "its label and running number in brackets, such as [EMAIL_1]; numbers count the different "
    "values of a label from 1 in order of appearance, and the same value keeps its number."
)


def rows_of(sample: Row) -> list[Row]:
    """One atomic row a group present, and one compositional row: a step a group, in the order of
    `GROUPS`. The published order is not public; this one is ours."""
    present = {e["group"] for e in sample["entities"]}
    groups = [group for group in GROUPS if group in present]
    found = [_row(sample, [group], f"redact_{group}") for group in groups]
    return [*found, _row(sample, groups, "redact_all")]


def _row(sample: Row, groups: Sequence[str], operator: str) -> Row:
    mine = [e for e in sample["entities"] if e["group"] in groups]
    named = [f"{group} information ({_labels(mine, group)})" for group in groups]
    atomic = operator != "redact_all"
    ask = f"Replace every piece of {named[0]} by {_NUMBERS} Leave the rest as it is."
    if not atomic:
        first, *others = (f"{n}. Redact every piece of {what}." for n, what in enumerate(named, 1))
        ask = (
            f"Work in this order, each step on the text that the one before it left. "
            f"{' '.join([first, *others])} To redact is to replace by {_NUMBERS} What an earlier "
            "step has replaced stays as it is, and so does the rest of the text."
        )
    return make_row(
        "pii",
        "atomic" if atomic else "compositional",
        sample,
        ask,
        operator,
        text=redact(sample["text"], sample["entities"], groups),
        meta={"groups": list(groups), "entities": len(mine)},
        steps=[f"redact_{group}" for group in groups],
    )


def _labels(entities: Sequence[Mapping[str, Any]], group: str) -> str:
    return ", ".join(sorted({str(e["label"]).upper() for e in entities if e["group"] == group}))
