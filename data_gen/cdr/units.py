"""Units: rows that belong together, made from one operator or recipe and one document.

A `RowPlan` says what a row is whatever its document; with a document it is an `Instance`, whose
texts are made when they are wanted (spec section 8).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from data_gen.cdr.facts import Replays
from data_gen.cdr.library import SLOT_TYPES, SLOTS, LibraryRecipe, OrderFamily
from data_gen.cdr.sources import Record
from data_gen.overlap import Fingerprint, Print
from rewards.cdr.release_files import prompt_key, stable_id
from rewards.gold import RECIPE_PARAMS, Step

TRACKS = ("atomic_m", "atomic_f", "agnostic_m", "order_m", "order_f")
MAPPER, FILTER, MAIN, SWAP, ORDER = range(5)  # kinds of units, in the order of the tracks
SLOT_BITS = (1, 2, 4)  # of an order group: kept in front, in the middle, at the end
RULES = {ORDER: "all_slots_correct", SWAP: "canonical_and_swapped_outputs_correct"}
RELEASED_SLOTS = {"front": "pre", "middle": "mid", "end": "post"}
Asked = tuple[str, tuple[tuple[str, tuple[tuple[str, Any], ...]], ...]]


@dataclass(frozen=True)
class Rule:
    """A filter with its threshold; `params` is None where there is none."""

    params: dict[str, float] | None
    meta: dict[str, Any]


@dataclass(frozen=True)
class RowPlan:
    """A row of a unit, without its document. `track`: the release's name; `made_as`: the name in
    the construction; `names`: what the id is made of before the document's, `after`: behind it."""

    kind: int
    track: str
    made_as: str
    names: tuple[str, ...]
    sequence: tuple[str, ...]
    after: tuple[str, ...] = ()
    bit: int = 1
    filter_params: dict[str, Any] = field(default_factory=dict[str, Any])
    threshold_meta: dict[str, Any] | None = None
    recipe_id: str | None = None
    variant_id: str | None = None
    recipe_type: str | None = None
    family_id: str | None = None
    slot: str | None = None
    composed: bool = False

    @property
    def filter(self) -> str | None:
        """The filter of the recipe, which has one at most."""
        return next((name for name in self.sequence if name.endswith("_filter")), None)

    @property
    def steps(self) -> list[Step]:
        """The recipe, with the parameters gold was made with."""
        params = {**RECIPE_PARAMS, **self.filter_params}
        return [Step(name, dict(params.get(name, {}))) for name in self.sequence]

    @property
    def template(self) -> str:
        """The operators, whatever their order and thresholds: what recipe splits go by."""
        return " ".join(sorted(name.rpartition("_")[0] for name in self.sequence))


@dataclass(frozen=True)
class Instance:
    """A row of a unit before it is worded. `full_run`: the text with filter decisions ignored, of
    the order tracks alone."""

    plan: RowPlan
    record: Record
    status: str
    text: str = ""
    full_run: str | None = None

    @cached_property
    def id(self) -> str:
        return stable_id(*self.plan.names, self.record.id, *self.plan.after)

    @property
    def group(self) -> str | None:
        family = self.plan.family_id
        return None if family is None else stable_id(family, self.record.id)

    @property
    def key(self) -> str:
        """`recipe_prompt_key`, by the construction-time names."""
        plan = self.plan
        return prompt_key(
            plan.made_as,
            self.record.domain,
            plan.recipe_type,
            plan.slot,
            plan.sequence,
            plan.filter_params,
        )

    @property
    def asked(self) -> Asked:
        """What its wordings depend on: key and recipe."""
        return self.key, tuple(map(frozen, self.plan.steps))


@dataclass
class Unit:
    """A unit that was worded: why it is refused (""); the operator that does another thing than its
    words say, and what; what its input and the text of each row are compared by; where its rows are
    packed; and the split that it goes to ("": none)."""

    number: int
    rows: list[Instance]
    refused: str
    unsaid: tuple[str, str]
    prints: list[Print]
    place: tuple[str, int, int]
    side: str = ""

    @property
    def record(self) -> Record:
        return self.rows[0].record

    @cached_property
    def compared(self) -> list[Fingerprint]:
        """Its rows as they are compared with those of other splits."""
        return [
            Fingerprint(row.id, row.record.id, self.prints[0], own, " ".join(row.plan.sequence))
            for row, own in zip(self.rows, self.prints[1:], strict=False)
        ]


def frozen(step: Step) -> tuple[str, tuple[tuple[str, Any], ...]]:
    """A step that can be looked up."""
    return step.operator, tuple(sorted(step.params.items()))


def atomic(name: str, rule: Rule | None = None) -> tuple[RowPlan]:
    kind, track = (MAPPER, "atomic_m") if rule is None else (FILTER, "atomic_f")
    return (RowPlan(kind, track, "atomic", ("atomic", name), (name,), **_calibrated(name, rule)),)


def main_row(entry: LibraryRecipe, place: int, rule: Rule | None = None) -> tuple[RowPlan]:
    """The row of a variant of a recipe."""
    variant = entry.variants[place]
    return (
        RowPlan(
            MAIN,
            "agnostic_m",
            "main",
            (variant.id,),
            variant.sequence,
            recipe_id=entry.recipe.id,
            variant_id=variant.id,
            recipe_type=variant.recipe_type,
            composed=entry.recipe.composed,
            **_calibrated(str(variant.filter), rule),
        ),
    )


def order_rows(entry: LibraryRecipe, family: OrderFamily, rule: Rule) -> tuple[RowPlan, ...]:
    """The rows of an order family."""
    return tuple(
        RowPlan(
            ORDER,
            "order_f",
            "order_sensitivity",
            (family.variant_id(slot),),
            family.sequences[slot],
            bit=bit,
            recipe_id=entry.recipe.id,
            variant_id=family.variant_id(slot),
            recipe_type=SLOT_TYPES[slot],
            family_id=family.id,
            slot=slot,
            composed=entry.recipe.composed,
            **_calibrated(family.filter, rule),
        )
        for slot, bit in zip(SLOTS, SLOT_BITS, strict=True)
    )


def swap_rows(entry: LibraryRecipe, i: int) -> tuple[RowPlan, ...]:
    """The canonical and the swapped row of an order pair.

    The release's names of the canonical row are not public; ours are H(family, record,
    "canonical") and the slot `original`.
    """
    family = f"{entry.recipe.id}__mapper_order_family__swap_{i}_{i + 1}"
    order = entry.recipe.ordered
    return tuple(
        RowPlan(
            SWAP,
            "order_m",
            "mapper_order_sensitivity",
            (family,),
            sequence,
            after=(name,),
            recipe_id=entry.recipe.id,
            variant_id=f"{family}__{slot}",
            recipe_type="clean-only",
            family_id=family,
            slot=slot,
            composed=entry.recipe.composed,
        )
        for name, slot, sequence in (
            ("canonical", "original", order),
            ("swapped", f"swap_{i}_{i + 1}", swapped(order, i)),
        )
    )


def swapped(order: tuple[str, ...], i: int) -> tuple[str, ...]:
    """The sequence with places i and i + 1 exchanged."""
    return (*order[:i], order[i + 1], order[i], *order[i + 2 :])


def _calibrated(name: str, rule: Rule | None) -> dict[str, Any]:
    return (
        {} if rule is None else {"filter_params": {name: rule.params}, "threshold_meta": rule.meta}
    )


def instances(plans: Sequence[RowPlan], record: Record, bits: int) -> list[Instance]:
    """The rows of a unit without texts. `bits`: where its filter keeps."""
    return [Instance(plan, record, "KEEP" if bits & plan.bit else "DROP") for plan in plans]


def executed(row: Instance, replays: Replays) -> Instance:
    """The row with the text at the end, or where the filter rejected it."""
    names = row.plan.sequence
    at = next((i for i, name in enumerate(names) if name.endswith("_filter")), len(names))
    states = replays.states(row.record.text, [name for i, name in enumerate(names) if i != at])
    stopped = states[-1] if row.status == "KEEP" else states[at]
    return replace(row, text=stopped, full_run=states[-1] if row.plan.family_id else None)
