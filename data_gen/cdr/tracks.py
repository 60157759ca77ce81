"""Building the tracks: which record gets which recipe, thresholds, groups, ids (spec section 8).

Selection prefers records that earlier rows used least, so the order of processing matters and is
the reference's: atomic mappers, atomic filters (both alphabetically), then per domain
(alphabetically, internal names) and recipe its main variants and its order families.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from configs.cdr import InstanceConfig
from data_gen.cdr.calibrate import Threshold, calibrate
from data_gen.cdr.domains import ALL_MAPPERS
from data_gen.cdr.library import SLOT_TYPES, SLOTS, LibraryRecipe, OrderFamily, Variant
from data_gen.cdr.records import Record, Replays, bound_filter, supporters
from rewards.cdr.ids import prompt_key, stable_id
from rewards.gold import Step, bind

GROUP_RULE = "all_slots_correct"
SWAP_RULE = "canonical_and_swapped_outputs_correct"


@dataclass(frozen=True)
class Instance:
    """One task before it is worded. `track` is the construction-time name.

    `full_run` is the text with filter decisions ignored, kept for the order tracks alone.
    """

    track: str
    id: str
    record: Record
    sequence: tuple[str, ...]
    status: str
    text: str
    filter_params: dict[str, dict[str, float]] = field(default_factory=dict[str, Any])
    threshold_meta: dict[str, Any] | None = None
    recipe_id: str | None = None
    variant_id: str | None = None
    recipe_type: str | None = None
    family_id: str | None = None
    slot: str | None = None
    group: str | None = None
    full_run: str | None = None
    domain: str = ""
    composed: bool = False

    @property
    def prompt_key(self) -> str:
        return prompt_key(
            self.track, self.domain, self.recipe_type, self.slot, self.sequence, self.filter_params
        )


@dataclass(frozen=True)
class SwapPair:
    """Two neighbouring mappers exchanged on one record, with both texts."""

    record: Record
    recipe_id: str
    family_id: str
    group: str
    swapped_id: str
    canonical: tuple[str, ...]
    swapped: tuple[str, ...]
    canonical_text: str
    swapped_text: str
    edit_distance: int
    domain: str
    composed: bool = False


@dataclass
class Tracks:
    """Builds instances over one set of records; remembers how often each record was used."""

    records: Sequence[Record]  # within the length limit, with enough active mappers
    config: InstanceConfig
    replays: Replays
    usage: Counter[str] = field(default_factory=Counter[str])

    def atomic(self, filters: Iterable[str]) -> list[Instance]:
        """Every mapper, then every filter, over all domains."""
        rows: list[Instance] = []
        for name in ALL_MAPPERS:
            rows += self._marked(self._atomic_mapper(name))
        for name in sorted(filters):
            rows += self._marked(self._atomic_filter(name))
        return rows

    def recipe(self, entry: LibraryRecipe) -> tuple[list[Instance], list[Instance]]:
        """(main rows, order rows) of one recipe."""
        main: list[Instance] = []
        order: list[Instance] = []
        for variant in entry.variants:
            main += self._marked(self._main(entry, variant))
        for family in entry.families:
            order += self._marked(self._order(entry, family))
        return main, order

    def _marked(self, rows: list[Instance]) -> list[Instance]:
        self.usage.update(row.record.id for row in rows)
        return rows

    def _sorted(self, records: Iterable[Record], salt: str) -> list[Record]:
        return sorted(records, key=lambda r: (self.usage[r.id], r.order_key(salt)))

    def _atomic_mapper(self, name: str) -> list[Instance]:
        rows: list[Instance] = []
        for record in self._sorted((r for r in self.records if name in r.active), f"atomic:{name}"):
            if len(rows) >= self.config.per_operator:
                break
            try:
                text = self.replays.apply(name, record.text)
            except ValueError:
                continue
            if text != record.text:
                rows.append(self._atomic(name, record, "KEEP", text))
        return rows

    def _atomic(self, name: str, record: Record, status: str, text: str, **more: Any) -> Instance:
        return Instance(
            "atomic",
            stable_id("atomic", name, record.id),
            record,
            (name,),
            status,
            text,
            domain=record.domain,
            **more,
        )

    def _atomic_filter(self, name: str) -> list[Instance]:
        values = self._values(name, [(record, record.text) for record in self.records])
        threshold = self._calibrate(name, [value for _, _, value in values])
        if threshold is None or threshold.params is None:
            return []
        params, keeps = {name: threshold.params}, _rule(name, threshold.params)
        meta = threshold.meta | _meta(name, len(values), atomic_filter=True)
        rows = [
            self._atomic(
                name,
                record,
                "KEEP" if keeps(value) else "DROP",
                text,
                filter_params=params,
                threshold_meta=meta,
            )
            for record, text, value in values
        ]
        return self._balanced(rows, self.config.per_operator, f"atomic:{name}:select")

    def _values(
        self, name: str, states: Iterable[tuple[Record, str]]
    ) -> list[tuple[Record, str, float]]:
        """(record, text, statistic), without records on which the filter fails."""
        found: list[tuple[Record, str, float]] = []
        for record, text in states:
            try:
                found.append((record, text, self.replays.statistic(name, text)))
            except ValueError:
                continue
        return found

    def _calibrate(self, name: str, values: Sequence[float]) -> Threshold | None:
        if not values:
            return None
        return calibrate(name, values, self.config.target_drop_rate, self.config.zero_policy)

    def _balanced(self, rows: list[Instance], most: int, salt: str) -> list[Instance]:
        """KEEP and DROP rows by quota, each least used first; none when one side is too thin."""
        keep = [row for row in rows if row.status == "KEEP"]
        drop = [row for row in rows if row.status == "DROP"]
        if len(keep) < self.config.min_keep or len(drop) < self.config.min_drop:
            return []
        drops = max(1, round(most * self.config.target_drop_rate))

        def first(part: list[Instance], side: str, count: int) -> list[Instance]:
            part.sort(
                key=lambda row: (
                    self.usage[row.record.id],
                    stable_id(f"{salt}:{side}", row.record.id, row.id),
                )
            )
            return part[:count]

        return first(keep, "keep", most - drops) + first(drop, "drop", drops)

    def _runs(self, entry: LibraryRecipe, salt: str) -> list[tuple[Record, list[str]]]:
        """Candidates in order with the states of the recipe's mappers, failing ones left out."""
        runs: list[tuple[Record, list[str]]] = []
        own = (r for r in self.records if r.domain == entry.domain)
        for record in self._sorted(supporters(list(own), entry.recipe.operators), salt):
            try:
                runs.append((record, self.replays.states(record.text, entry.recipe.ordered)))
            except ValueError:
                continue
        return runs

    def _main(self, entry: LibraryRecipe, variant: Variant) -> list[Instance]:
        runs = self._runs(entry, variant.id)
        made = _Maker(entry, "main", variant.id, variant.recipe_type, variant.sequence)
        if variant.filter is None:
            rows = (
                made(record, "KEEP", states[-1])
                for record, states in runs
                if states[-1] != record.text
            )
            return [row for row, _ in zip(rows, range(self.config.per_variant), strict=False)]
        name, at = variant.filter, variant.sequence.index(variant.filter)
        ends = {record.id: states[-1] for record, states in runs}
        values = self._values(name, [(record, states[at]) for record, states in runs])
        threshold = self._calibrate(name, [value for _, _, value in values])
        if threshold is None or threshold.params is None:
            return []
        keeps = _rule(name, threshold.params)
        made.params = {name: threshold.params}
        made.meta = threshold.meta | _meta(name, len(values))
        rows = [
            made(record, "KEEP", ends[record.id]) if keeps(value) else made(record, "DROP", text)
            for record, text, value in values
        ]
        return self._balanced(rows, self.config.per_variant, f"{variant.id}:select")

    def _order(self, entry: LibraryRecipe, family: OrderFamily) -> list[Instance]:
        """Groups whose three (status, text) pairs are not all the same."""
        steps = {slot: family.slots[slot].step for slot in SLOTS}
        usable: list[tuple[Record, list[str], dict[str, float]]] = []
        for record, states in self._runs(entry, family.id):
            seen = self._values(family.filter, [(record, states[steps[slot]]) for slot in SLOTS])
            if len(seen) == len(SLOTS):
                stats = {slot: value for slot, (_, _, value) in zip(SLOTS, seen, strict=True)}
                usable.append((record, states, stats))
        pooled = [stats[slot] for _, _, stats in usable for slot in SLOTS]
        threshold = self._calibrate(family.filter, pooled)
        if threshold is None or threshold.params is None:
            return []
        keeps = _rule(family.filter, threshold.params)
        meta = threshold.meta | _meta(family.filter, len(pooled), shared_across_order_slots=True)
        groups: list[list[Instance]] = []
        for record, states, stats in usable:
            if len(groups) >= self.config.groups_per_family:
                break
            rows: list[Instance] = []
            for slot in SLOTS:
                made = _Maker(
                    entry,
                    "order_sensitivity",
                    family.variant_id(slot),
                    SLOT_TYPES[slot],
                    family.sequences[slot],
                    {family.filter: threshold.params},
                    meta,
                    family.id,
                    slot,
                    stable_id(family.id, record.id),
                    states[-1],
                )
                keep = keeps(stats[slot])
                text = states[-1] if keep else states[steps[slot]]
                rows.append(made(record, "KEEP" if keep else "DROP", text))
            if len({(row.status, row.text) for row in rows}) > 1:
                groups.append(rows)
        if len(groups) < self.config.min_groups:
            return []
        return [row for rows in groups for row in rows]


@dataclass
class _Maker:
    """What the rows of one variant share."""

    entry: LibraryRecipe
    track: str
    variant_id: str
    recipe_type: str
    sequence: tuple[str, ...]
    params: dict[str, dict[str, float]] = field(default_factory=dict[str, Any])
    meta: dict[str, Any] | None = None
    family_id: str | None = None
    slot: str | None = None
    group: str | None = None
    full_run: str | None = None

    def __call__(self, record: Record, status: str, text: str) -> Instance:
        return Instance(
            track=self.track,
            id=stable_id(self.variant_id, record.id),
            record=record,
            sequence=self.sequence,
            status=status,
            text=text,
            filter_params=self.params,
            threshold_meta=self.meta,
            recipe_id=self.entry.recipe.id,
            variant_id=self.variant_id,
            recipe_type=self.recipe_type,
            family_id=self.family_id,
            slot=self.slot,
            group=self.group,
            full_run=self.full_run,
            domain=self.entry.domain,
            composed=self.entry.recipe.composed,
        )


def _meta(name: str, count: int, **more: Any) -> dict[str, Any]:
    return {
        "filter_name": name,
        "status_value_key": bound_filter(name).operator.stat_key,
        "value_count": count,
    } | more


def _rule(name: str, params: dict[str, float]) -> Any:
    """Statistic -> keep, with the operator's defaults behind the one calibrated bound."""
    return bind(Step(name, dict(params))).keeps
