"""From a chosen unit to its instances: what it is first, its texts when they are wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from data_gen.cdr.domains import ALL_MAPPERS
from data_gen.cdr.library import SLOT_TYPES, SLOTS, LibraryRecipe
from data_gen.cdr.records import Record, Replays
from data_gen.cdr.stages.choose import FILTER, MAIN, MAPPER, ORDER, Unit
from data_gen.cdr.stages.facts import CALIBRATED_FILTERS
from data_gen.cdr.stages.measure import SLOT_BITS, Params
from data_gen.cdr.stages.recipes import Library
from data_gen.cdr.swaps import swap_pair, swapped
from data_gen.cdr.tracks import Instance, SwapPair
from rewards.cdr.release_files import stable_id


@dataclass(frozen=True)
class Rule:
    """A calibrated filter without its documents."""

    params: Params | None
    meta: dict[str, Any]


@dataclass(frozen=True)
class RecipeRules:
    """Of a recipe's variants with a filter, and of its order families."""

    variants: tuple[Rule, ...]
    families: tuple[Rule, ...]


@dataclass(frozen=True)
class Rules:
    """All thresholds: of the atomic filters alphabetically, and recipe by recipe."""

    atomic: tuple[Rule, ...]
    recipes: tuple[RecipeRules, ...]


@dataclass(frozen=True)
class Maker:
    """Makes the instances of units."""

    library: Library
    rules: Rules

    def instances(self, unit: Unit, record: Record) -> list[Instance]:
        """The rows of a unit that is no order pair, their texts empty."""
        status = "KEEP" if unit.bits else "DROP"
        if unit.kind == MAPPER:
            return [_atomic(ALL_MAPPERS[unit.one], record, status)]
        if unit.kind == FILTER:
            name = sorted(CALIBRATED_FILTERS)[unit.one]
            return [_atomic(name, record, status, **_calibrated(name, self.rules.atomic[unit.one]))]
        entry, rules = self.library.entries[unit.one], self.rules.recipes[unit.one]
        if unit.kind == MAIN:
            return [_main(entry, rules, unit.two, record, status)]
        if unit.kind == ORDER:
            return _order(entry, rules.families[unit.two], unit, record)
        raise AssertionError(f"a unit of kind {unit.kind} has no instances of its own")

    def executed(self, unit: Unit, record: Record, replays: Replays) -> list[Instance]:
        """The same with their texts."""
        return [_with_text(row, record.text, replays) for row in self.instances(unit, record)]

    def pair(self, unit: Unit, record: Record, replays: Replays) -> SwapPair:
        """An order pair with both texts."""
        entry = self.library.entries[unit.one]
        one, other = (
            replays.states(record.text, order)[-1]
            for order in (entry.recipe.ordered, swapped(entry.recipe.ordered, unit.two))
        )
        return swap_pair(entry, record, unit.two, one, other)

    def light_pair(self, unit: Unit, record: Record) -> SwapPair:
        """An order pair whose texts are empty."""
        return swap_pair(self.library.entries[unit.one], record, unit.two, "", "")


def _calibrated(name: str, rule: Rule) -> dict[str, Any]:
    return {"filter_params": {name: rule.params}, "threshold_meta": rule.meta}


def _atomic(name: str, record: Record, status: str, **more: Any) -> Instance:
    made = stable_id("atomic", name, record.id)
    return Instance("atomic", made, record, (name,), status, "", domain=record.domain, **more)


def _main(
    entry: LibraryRecipe, rules: RecipeRules, place: int, record: Record, status: str
) -> Instance:
    variant = entry.variants[place]
    rule: dict[str, Any] = {}
    if variant.filter is not None:
        rule = _calibrated(variant.filter, rules.variants[place - 1])
    return Instance(
        "main",
        stable_id(variant.id, record.id),
        record,
        variant.sequence,
        status,
        "",
        recipe_id=entry.recipe.id,
        variant_id=variant.id,
        recipe_type=variant.recipe_type,
        domain=entry.domain,
        composed=entry.recipe.composed,
        **rule,
    )


def _order(entry: LibraryRecipe, rule: Rule, unit: Unit, record: Record) -> list[Instance]:
    family = entry.families[unit.two]
    return [
        Instance(
            "order_sensitivity",
            stable_id(family.variant_id(slot), record.id),
            record,
            family.sequences[slot],
            "KEEP" if unit.bits & bit else "DROP",
            "",
            recipe_id=entry.recipe.id,
            variant_id=family.variant_id(slot),
            recipe_type=SLOT_TYPES[slot],
            family_id=family.id,
            slot=slot,
            group=stable_id(family.id, record.id),
            full_run="",
            domain=entry.domain,
            composed=entry.recipe.composed,
            **_calibrated(family.filter, rule),
        )
        for slot, bit in zip(SLOTS, SLOT_BITS, strict=True)
    ]


def _with_text(row: Instance, text: str, replays: Replays) -> Instance:
    """The text at the end, or where the filter rejected it; of order rows also that of the full
    run."""
    names: Sequence[str] = row.sequence
    at = next((i for i, name in enumerate(names) if name.endswith("_filter")), len(names))
    states = replays.states(text, [name for i, name in enumerate(names) if i != at])
    stopped = states[-1] if row.status == "KEEP" else states[at]
    full = None if row.full_run is None else states[-1]
    return replace(row, text=stopped, full_run=full)
