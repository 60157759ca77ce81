"""Units: rows that belong together, made from one operator or recipe and one document.

A `RowPlan` says what a row is whatever its document; with a document it is an `Instance`, whose
texts are made when they are wanted (spec section 8).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from assay.seeds import derive_seed
from configs.cdr import SplitConfig
from data_gen.cdr.documents import Record, Replays
from data_gen.cdr.library import SLOTS, LibraryRecipe, OrderFamily, Rule
from data_gen.overlap import Fingerprint, Print, copies_of
from data_gen.splits import taken
from rewards.cdr.release_files import prompt_key, stable_id
from rewards.gold import RECIPE_PARAMS, Step

MAPPER, FILTER, MAIN, SWAP, ORDER = range(5)  # kinds of units, in the order of the tracks
# of each kind: the release's name, and that in the construction
TRACKS = ("atomic_m", "atomic_f", "agnostic_m", "order_m", "order_f")
MADE_AS = ("atomic", "atomic", "main", "mapper_order_sensitivity", "order_sensitivity")
SLOT_BITS = {"front": 1, "middle": 2, "end": 4}  # of an order group: where its filter keeps
RANKS = {"short": 1, "medium": 2, "long": 3}  # of input lengths
CANONICAL = "original"  # slot of an order pair
RULES = {ORDER: "all_slots_correct", SWAP: "canonical_and_swapped_outputs_correct"}
RELEASED_SLOTS = {"front": "pre", "middle": "mid", "end": "post"}
Asked = tuple[str, tuple[tuple[str, tuple[tuple[str, Any], ...]], ...]]
Plans = tuple["RowPlan", ...]


@dataclass(frozen=True)
class RowPlan:
    """A row of a unit, without its document; `rule`: the threshold of its filter."""

    kind: int
    sequence: tuple[str, ...]
    rule: Rule | None = None
    recipe_id: str | None = None
    variant_id: str | None = None
    recipe_type: str | None = None
    family_id: str | None = None
    slot: str | None = None
    composed: bool = False

    @property
    def track(self) -> str:
        """The release's name of what it is."""
        return TRACKS[self.kind]

    @property
    def filter_params(self) -> dict[str, Any]:
        return {} if self.rule is None else {str(self.filter): self.rule.params}

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
        """The release's names of the canonical row of an order pair are not public; ours are
        H(family, record, "canonical") and the slot `original`."""
        plan, document = self.plan, self.record.id
        if plan.kind == SWAP:
            name = "canonical" if plan.slot == CANONICAL else "swapped"
            return stable_id(plan.family_id, document, name)
        if plan.variant_id is None:
            return stable_id("atomic", plan.sequence[0], document)
        return stable_id(plan.variant_id, document)

    @property
    def group(self) -> str | None:
        family = self.plan.family_id
        return None if family is None else stable_id(family, self.record.id)

    @property
    def key(self) -> str:
        """`recipe_prompt_key`, by the construction-time names."""
        plan = self.plan
        return prompt_key(
            MADE_AS[plan.kind],
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


def atomic(name: str, rule: Rule | None = None) -> Plans:
    return (RowPlan(MAPPER if rule is None else FILTER, (name,), rule),)


def main_row(entry: LibraryRecipe, place: int, rule: Rule | None = None) -> Plans:
    """The row of a variant of a recipe."""
    one, recipe = entry.variants[place], entry.recipe
    named = (recipe.id, one.id, one.recipe_type)
    return (RowPlan(MAIN, one.sequence, rule, *named, composed=recipe.composed),)


def order_rows(entry: LibraryRecipe, family: OrderFamily, rule: Rule) -> Plans:
    """The rows of an order family."""
    recipe = entry.recipe
    return tuple(
        RowPlan(
            *(ORDER, family.sequences[slot], rule, recipe.id, f"{family.id}__{slot}"),
            *(recipe_type, family.id, slot, recipe.composed),
        )
        for slot, recipe_type in SLOTS.items()
    )


def swap_rows(entry: LibraryRecipe, i: int) -> Plans:
    """The canonical and the swapped row of an order pair."""
    recipe = entry.recipe
    family = f"{recipe.id}__mapper_order_family__swap_{i}_{i + 1}"
    orders = {CANONICAL: recipe.ordered, f"swap_{i}_{i + 1}": swapped(recipe.ordered, i)}
    return tuple(
        RowPlan(
            *(SWAP, sequence, None, recipe.id, f"{family}__{slot}"),
            *("clean-only", family, slot, recipe.composed),
        )
        for slot, sequence in orders.items()
    )


def swapped(order: tuple[str, ...], i: int) -> tuple[str, ...]:
    """The sequence with places i and i + 1 exchanged."""
    return (*order[:i], order[i + 1], order[i], *order[i + 2 :])


def instances(plans: Sequence[RowPlan], record: Record, bits: int) -> list[Instance]:
    """The rows of a unit without texts. `bits`: where its filter keeps."""
    return [
        Instance(plan, record, "KEEP" if bits & SLOT_BITS.get(str(plan.slot), 1) else "DROP")
        for plan in plans
    ]


def executed(row: Instance, replays: Replays) -> Instance:
    """The row with the text at the end, or where the filter rejected it."""
    names = row.plan.sequence
    at = next((i for i, name in enumerate(names) if name.endswith("_filter")), len(names))
    states = replays.states(row.record.text, [name for i, name in enumerate(names) if i != at])
    stopped = states[-1] if row.status == "KEEP" else states[at]
    return replace(row, text=stopped, full_run=states[-1] if row.plan.family_id else None)


def bucket(length: int) -> str:
    """Input length: short up to 4,000 characters, medium up to 8,000, else long."""
    return "short" if length <= 4000 else "medium" if length <= 8000 else "long"


def difficulty(input_length: int, recipe_length: int) -> int:
    """1 easy, 2 medium, 3 hard: input and recipe each rank 1 to 3, sums ≤ 3, 4 to 5, 6."""
    recipe = 1 if recipe_length <= 2 else 2 if recipe_length <= 4 else 3
    total = RANKS[bucket(input_length)] + recipe
    return 1 if total <= 3 else 2 if total <= 5 else 3


# --- splits, and balance for training


def splitter(units: Sequence[Unit], config: SplitConfig) -> Callable[[Unit], str]:
    """Unit -> `train`, `validation`, `heldout`, or "" (its recipe is held out but its document is
    not).

    Documents are split domain by domain, copies and near copies of one another together; recipe
    templates of two or more operators as a whole; both by the rank of a hash.
    """
    documents: defaultdict[str, set[str]] = defaultdict(set)
    for unit in units:
        documents[unit.record.domain].add(unit.record.id)
    plans = (unit.rows[0].plan for unit in units)
    templates = {plan.template for plan in plans if len(plan.sequence) > 1}
    first = copies_of({unit.record.id: unit.prints[0] for unit in units})

    def rank(name: str) -> int:
        return derive_seed(config.seed, "split", first[name])

    away: set[str] = set()  # firsts of copies
    aside: set[str] = set()
    for names in documents.values():
        held = taken(names, config.heldout_documents, rank)
        chosen = taken(names - {*held}, config.validation_documents, rank, of=len(names))
        away |= {first[n] for n in held}
        aside |= {first[n] for n in chosen}
    seed = config.seed
    unseen = {*taken(templates, config.heldout_recipes, lambda t: derive_seed(seed, "template", t))}

    def split(unit: Unit) -> str:
        document = first[unit.record.id]
        if document in away:  # before validation: copies may be of two domains
            return "heldout"
        if unit.rows[0].plan.template in unseen:
            return ""
        return "validation" if document in aside else "train"

    return split


def unbalanced(units: Iterable[Unit]) -> list[Unit]:
    """The units to leave out so that every filter of every track keeps about as often as it drops:
    the difference is less than the rows of a unit.

    Units are left out whole, those with most rows of the more frequent status first, then by the
    rank of a hash.
    """
    cells: defaultdict[tuple[str, str], list[tuple[int, str, Unit]]] = defaultdict(list)
    for unit in units:
        first = unit.rows[0]
        if name := first.plan.filter:
            drops = sum(row.status == "DROP" for row in unit.rows)
            rank = stable_id("balance_filtered", first.id)
            cells[first.plan.track, name].append((2 * drops - len(unit.rows), rank, unit))
    left_out: list[Unit] = []
    for cell in cells.values():
        excess = sum(more for more, _, _ in cell)
        sign = 1 if excess > 0 else -1
        excess *= sign
        for more, _, unit in sorted(cell, key=lambda one: (-sign * one[0], one[1])):
            if 0 < sign * more < 2 * excess:  # the rest is nearer to balance without it
                left_out.append(unit)
                excess -= sign * more
    return left_out
