"""The merge after the second map: thresholds, who may be chosen for what, and the choice.

For every task the documents used least so far are taken, then those with the smallest hashes (spec
section 8). What was chosen before decides what is chosen next, so this goes through the tracks in
order, over numbers alone, never a text: one query for what a recipe did to its documents.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha1
from itertools import groupby
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from assay.console import Progress
from assay.workers import Named, WorkerPool
from configs.cdr import CdrConfig, SelectConfig, SwapConfig
from data_gen.cdr.documents import (
    ALL_MAPPERS,
    BITS,
    CALIBRATED_FILTERS,
    Record,
    Replays,
    bound_filter,
    filters_of,
)
from data_gen.cdr.instruct import Pool, pool_of
from data_gen.cdr.recipes import (
    CHANGED,
    FAILED,
    FAMILY,
    SLOTS,
    Array,
    LibraryRecipe,
    OrderFamily,
    Point,
)
from data_gen.cdr.units import (
    CANONICAL,
    FILTER,
    MAIN,
    MAPPER,
    ORDER,
    SLOT_BITS,
    SWAP,
    Asked,
    Instance,
    Plans,
    RowPlan,
    Rule,
    calibrated,
    difficulty,
    instances,
    percentile,
    quantile_of,
)
from data_gen.cdr.work import Work, packed, said, write_part
from rewards.cdr.release_files import stable_id
from rewards.gold import Step, bind
from rewards.parse import same_text

RECIPES = 8  # of a wording job
# Units by number: what they are made of, where their filter keeps, and their place in the tracks
# (-1: they are no rows of these).
COLUMNS = {
    **{"unit": "int64", "plan": "int32", "number": "int64", "bits": "int8"},
    **{"kind": "int8", "place": "int64"},
}
PART = 512  # units of a file, or some more: those of a document are not parted
# Of a unit: its lines of pipeline.jsonl, why it is refused, the operator that does another thing
# than its words say and what, what its texts are compared by, and where its rows are.
WORDED = {
    **{"unit": "int64", "pipeline": "binary", "refused": "string", "operator": "string"},
    **{"does": "string", "digests": ["string"], "signs": ["binary"]},
    **{"start": "int64", "size": "int64"},
}
Chosen = tuple[int, str, int, int, bytes, int, int, int, int, int]


@dataclass(frozen=True)
class Plan:
    """What units are made of, their wordings, and what an endpoint was asked for."""

    plans: list[Plans]
    pools: dict[Asked, Pool] = field(default_factory=dict[Asked, Pool])
    wordings: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    paraphrases: dict[str, Any] | None = None


def make_plan(work: Work, crew: WorkerPool, kept: Path) -> None:
    """Choose all units, and those that are worded. `kept`: the folder that holds the answers of an
    endpoint from run to run."""
    path = work.folder / "units.parquet"
    if path.is_file():
        return
    db = work.query(crew.workers, all_documents=work.documents, traced=work.parts("traces"))
    db.execute("CREATE TABLE documents AS SELECT * EXCLUDE (filename) FROM all_documents")
    db.execute("CREATE TABLE traces AS SELECT * FROM traced ORDER BY recipe, number")
    chosen = Chooser(db, work.config)
    chosen.atomic()
    entries = work.load("library").entries
    with Progress("plan", "recipes", len(entries)) as progress:
        for number, entry in enumerate(entries):
            chosen.recipe(number, entry)
            progress.add(1)
    for number, i, document in _swaps(db, chosen, entries, crew):
        chosen.add(swap_rows(entries[number], i), [(document, 1)])
    plan = Plan(chosen.plans)
    places: dict[int, int] = {}
    if work.config.tracks:
        rows = _planned(db, chosen)
        numbers = picked(rows, work.config.select)
        places = {number: place for place, number in enumerate(numbers)}
        plan = _worded(work, plan, [rows[number] for number in numbers], crew, kept)
    work.save("plan", plan)
    kinds = [rows[0].kind for rows in plan.plans]
    units = [
        (unit, *one, kinds[one[0]], places.get(unit, -1)) for unit, one in enumerate(chosen.units)
    ]
    write_part(path, COLUMNS, units)


def _planned(db: Any, chosen: Chooser) -> dict[int, list[Instance]]:
    """The rows of all units without texts, by their number."""
    numbers = list({number for _, number, _ in chosen.units})
    query = "SELECT number, id, domain, chars FROM documents WHERE number IN (SELECT unnest(?))"
    records = {
        number: Record(said(name), domain, "", chars=chars)
        for number, name, domain, chars in db.execute(query, [numbers]).fetchall()
    }
    return {
        unit: instances(chosen.plans[plan], records[number], bits)
        for unit, (plan, number, bits) in enumerate(chosen.units)
    }


def _worded(
    work: Work, plan: Plan, picked: list[list[Instance]], crew: WorkerPool, kept: Path
) -> Plan:
    """Word every recipe that is asked for, once."""
    config = work.config
    asked = list(dict.fromkeys(row.asked for rows in picked for row in rows))
    chunks = [asked[first : first + RECIPES] for first in range(0, len(asked), RECIPES)]
    with Progress("wordings", "recipes", len(asked)) as progress:
        for own in crew.map(_pools, ((chunk, config.instruct) for chunk in chunks)):
            plan.pools.update(own)
            progress.add(len(own))
    if config.paraphrase.url:
        from data_gen.cdr.paraphrase import paraphrase_units

        said, counts = paraphrase_units(picked, config.instruct, config.paraphrase, kept)
        plan = replace(plan, wordings=said, paraphrases=counts)
    return plan


def _pools(job: tuple[list[Asked], Any]) -> dict[Asked, Pool]:
    return {asked: pool_of(asked, job[1]) for asked in job[0]}


class Chooser:
    """Goes through the tracks as the reference does, and counts how many rows each document has.

    What can be chosen from stands in `_seen`, columns of documents in corpus order: their numbers
    and bits, what is hashed of each (`id`, and `key`: `id||source_name||url`), and the statistics
    at each point. Places are those in these columns.
    """

    def __init__(self, db: Any, config: CdrConfig) -> None:
        self.db, self.config = db, config
        (count,) = db.execute("SELECT count(*) FROM documents").fetchone()
        self._times = np.zeros(count, np.int64)
        self._seen: dict[str, Array] = {}
        self.plans: list[Plans] = []
        self.units: list[tuple[int, int, int]] = []  # plan, document, bits
        # by recipe, the documents that order pairs are looked for in
        self.swaps: list[list[int]] = []

    def _look(self, source: str, points: Mapping[Point, str]) -> None:
        """`points`: where their statistics are, in SQL."""
        listed = [f'{where} AS "{_at(point)}"' for point, where in points.items()]
        columns = ", ".join(["number", "bits", "english", "id", "id || rest AS key", *listed])
        found = self.db.execute(f"SELECT {columns} FROM {source} ORDER BY number").fetchnumpy()
        self._seen = {name: np.asarray(column) for name, column in found.items()}

    def atomic(self) -> None:
        """The units of one operator."""
        most = self.config.instances.per_operator
        points = {(name, 0): f'"{name}"' for name in CALIBRATED_FILTERS}
        self._look("(SELECT *, active & changes AS bits FROM documents WHERE usable)", points)
        bits = self._seen["bits"]
        for name in ALL_MAPPERS:
            self._take(atomic(name), self._first(bits & BITS[name] != 0, f"atomic:{name}", most))
        for name in sorted(filters_of(self.config)):
            salts = f"atomic:{name}:select", f"atomic||{name}"
            make = partial(atomic, name)
            whole = np.ones(len(bits), np.bool_)
            self._balanced(make, (name, 0), whole, salts, most, atomic_filter=True)

    def recipe(self, number: int, entry: LibraryRecipe) -> None:
        """The units of a recipe but its order pairs."""
        most = self.config.instances.per_variant
        steps = {point: f"stats[{place}]" for place, point in enumerate(entry.points, 1)}
        starts = {(name, 0): f'"{name}"' for name in CALIBRATED_FILTERS}
        self._look(f"traces JOIN documents USING (number) WHERE recipe = {number}", steps | starts)
        bits = self._seen["bits"]
        clean = entry.variants[0].id
        whole, fine = bits & (CHANGED | FAILED) == CHANGED, bits & FAILED == 0
        self._take(main_row(entry, 0), self._first(whole, clean, most))
        for place, variant in enumerate(entry.variants):
            if variant.point:
                salts = f"{variant.id}:select", variant.id
                make = partial(main_row, entry, place)
                self._balanced(make, variant.point, fine, salts, most)
        for place, family in enumerate(entry.families):
            self._groups(entry, family, place, fine)
        salt = f"{entry.domain}:{entry.recipe.id}:{clean}"
        english = np.flatnonzero(self._seen["english"])
        order = np.argsort(_hashes(salt, self._seen["key"][english]), kind="stable")
        ranked = english[order[: self.config.swaps.max_records]]
        self.swaps.append(self._seen["number"][ranked].tolist())

    def _first(self, mask: Array, salt: str, most: int, named: str = "") -> Array:
        """Places of the documents of a mask that are used least so far, then in the order of
        `stable_id(salt, key)`, ties in corpus order. `named`: instead of its key a document has an
        instance's id, made from its own: H(named, id)."""
        places = np.flatnonzero(mask)
        times = self._times[self._seen["number"][places]]
        if 0 < most < len(places):  # of those used more often nothing has to be hashed
            near = times <= np.partition(times, most - 1)[most - 1]
            places, times = places[near], times[near]
        keys = self._seen["key"][places]
        if named:
            ids = self._seen["id"][places]
            keys = [
                b"%b||%016x" % one for one in zip(ids, _hashes(named, ids).tolist(), strict=True)
            ]
        return places[np.lexsort((_hashes(salt, keys), times))[:most]]

    def _take(self, plans: Plans, places: Array, bits: Array | None = None) -> None:
        """Units of documents, which have been used for them from now on. `bits`: of each; 1."""
        numbers = self._seen["number"][places]
        self._times[numbers] += len(plans)
        each = [1] * len(places) if bits is None else bits.tolist()
        self.add(plans, list(zip(numbers.tolist(), each, strict=True)))

    def add(self, plans: Plans, chosen: Sequence[tuple[int, int]]) -> None:
        """Units of documents with their bits."""
        if chosen and (not self.plans or self.plans[-1] != plans):
            self.plans.append(plans)
        self.units += [(len(self.plans) - 1, number, bits) for number, bits in chosen]

    def _rule(self, name: str, values: Array, **more: Any) -> Rule | None:
        """The threshold of a filter from its statistics; None where there is none."""
        if not len(values):
            return None
        limits = self.config.instances
        raw = percentile(values, quantile_of(name, limits.target_drop_rate))
        made = calibrated(name, raw, limits.target_drop_rate, limits.zero_policy)
        meta = {
            "filter_name": name,
            "status_value_key": bound_filter(name).operator.stat_key,
            "value_count": len(values),
        }
        return replace(made, meta=made.meta | meta | more) if made.params else None

    def _balanced(
        self,
        make: Callable[[Rule], Plans],
        point: Point,
        mask: Array,
        salts: tuple[str, str],
        most: int,
        **more: Any,
    ) -> None:
        """KEEP and DROP of a filter by quota; none when one side is too thin. `salts`: of the order
        of a side, and what makes an instance's id from its document's."""
        limits, (salt, named) = self.config.instances, salts
        values = self._seen[_at(point)]
        mask = mask & ~np.isnan(values)
        rule = self._rule(point[0], values[mask], **more)
        if rule is None:
            return
        kept = _keeps(point[0], rule, values)
        drops = max(1, round(most * limits.target_drop_rate))
        chosen: list[Array] = []
        for side, own, wanted, least in (
            ("keep", kept, max(most - drops, 0), limits.min_keep),
            ("drop", ~kept, drops, limits.min_drop),
        ):
            places = self._first(mask & own, f"{salt}:{side}", max(wanted, least), named)
            if len(places) < least:
                return
            chosen.append(places[:wanted])
        places = np.concatenate(chosen)
        self._take(make(rule), places, kept[places].astype(np.int8))

    def _groups(self, entry: LibraryRecipe, family: OrderFamily, place: int, mask: Array) -> None:
        """Groups whose three results are not all the same."""
        own, limits = [self._seen[_at(point)] for point in family.points], self.config.instances
        mask = mask & ~np.isnan(own).any(axis=0)
        values = np.concatenate([one[mask] for one in own])
        rule = self._rule(family.filter, values, shared_across_order_slots=True)
        if rule is None:
            return
        kept = np.array([_keeps(family.filter, rule, one) for one in own])
        same = self._seen["bits"] & (FAMILY << place) != 0
        differ = ~kept.all(axis=0) & (kept.any(axis=0) | ~same)
        chosen = self._first(mask & differ, family.id, limits.groups_per_family)
        if len(chosen) >= limits.min_groups:
            bits = np.array([*SLOT_BITS.values()]) @ kept[:, chosen]
            self._take(order_rows(entry, family, rule), chosen, bits)


def _at(point: Point) -> str:
    """The column of a point."""
    return f"{point[0]} {point[1]}"


def _keeps(name: str, rule: Rule, values: Array) -> Array:
    """Which statistics a filter keeps, its operator's defaults behind the calibrated bound."""
    step = bind(Step(name, dict(rule.params or {})))
    low = -inf if step.low is None else step.low
    high = inf if step.high is None else step.high
    return (values >= low) & (values <= high)


def _hashes(salt: str, rests: Iterable[bytes]) -> Array:
    """`stable_id(salt, …)` of each rest (its parts joined by `||`), as unsigned integers."""
    start = sha1(f"{salt}||".encode("utf-8", "surrogatepass"))
    digests: list[bytes] = []
    for rest in rests:
        made = start.copy()
        made.update(rest)
        digests.append(made.digest()[:8])
    return np.array(digests, "S8").view(">u8")


Swapping = tuple[int, LibraryRecipe, SwapConfig, list[tuple[int, str, int, int]]]
Swap = tuple[int, int, int]  # recipe, place of the first of the two mappers, document


def _swaps(
    db: Any, chosen: Chooser, entries: Sequence[LibraryRecipe], crew: WorkerPool
) -> list[Swap]:
    """The order pairs: two neighbouring mappers exchanged, where it changes the result."""
    config = chosen.config.swaps
    wanted = list({number for own in chosen.swaps for number in own})
    query = "SELECT number, file, start, size FROM documents WHERE number IN (SELECT unnest(?))"
    places = {row[0]: row for row in db.execute(query, [wanted]).fetchall()}
    jobs = (
        (recipe, entry, config, [places[number] for number in own])
        for recipe, (entry, own) in enumerate(zip(entries, chosen.swaps, strict=True))
    )
    found: list[Swap] = []
    with Progress("order pairs", "recipes", len(entries)) as progress:
        for own in crew.map(_swaps_of, jobs):
            found += own
            progress.add(1)
            if config.total and len(found) >= config.total:
                break
    return found[: config.total or None]


def _swaps_of(job: Swapping) -> list[Swap]:
    """At most `per_recipe` pairs whose space-normalised texts differ; records outside, swaps in."""
    recipe, entry, config, places = job
    order = entry.recipe.ordered
    found: list[Swap] = []
    for number, file, start, size in places:
        text, replays = packed(file, start, size)["text"], Replays()
        try:
            states = replays.states(text, order)
            for i in range(len(order) - 1):
                other = replays.states(states[i], swapped(order, i)[i:])[-1]
                if not same_text(other, states[-1]):
                    found.append((recipe, i, number))
                if len(found) == config.per_recipe:
                    return found
        except (ValueError, RecursionError):
            continue
    return found


# --- the rows of a unit


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


# --- which units are worded: the release's caps, and balance for training

Numbered = tuple[int, Sequence[Instance]]  # a unit by its number


def picked(units: dict[int, list[Instance]], config: SelectConfig) -> list[int]:
    """The units to word, in the order of the tracks: none of a recipe with a filter outside the
    order tracks, unless `filter_variants`; of the others so many as the caps allow, in balance."""
    order = sorted(units, key=lambda unit: (units[unit][0].plan.kind, unit))
    kept = [
        (number, units[number])
        for number in order
        for plan in (units[number][0].plan,)
        if plan.kind != MAIN or plan.filter is None or config.filter_variants
    ]
    return [number for number, _ in balance(thin(kept, config), config)]


def thin(units: Iterable[Numbered], config: SelectConfig) -> Iterator[Numbered]:
    """At most so many a variant, an operator, a family and a recipe; 0: no limit."""
    counts: Counter[str] = Counter()
    families: defaultdict[str | None, set[str | None]] = defaultdict(set)
    for number, unit in units:
        plan = unit[0].plan
        if config.max_chars and unit[0].record.length > config.max_chars:
            continue
        if plan.kind == ORDER and config.families_per_recipe:
            known = families[plan.recipe_id]
            if plan.family_id not in known and len(known) >= config.families_per_recipe:
                continue
            known.add(plan.family_id)
        name, most = _cap(unit[0], config)
        if most and counts[name] >= most:
            continue
        counts[name] += 1
        yield number, unit


def _cap(row: Instance, config: SelectConfig) -> tuple[str, int]:
    """What a unit counts for, of which there are so many."""
    plan = row.plan
    if plan.kind == MAPPER:
        return f"operator {plan.sequence[0]}", config.per_operator
    if plan.kind == FILTER:  # half each, so that KEEP and DROP stay balanced
        return f"operator {plan.sequence[0]} {row.status}", (config.per_operator + 1) // 2
    if plan.kind == MAIN:
        return f"variant {plan.variant_id}", config.per_variant
    if plan.kind == ORDER:
        return f"family {plan.family_id}", config.groups_per_family
    return "order_m", 0


def balance(units: Iterable[Numbered], config: SelectConfig) -> Iterator[Numbered]:
    """With `difficulty_balanced`, units of tracks, difficulties, domains and statuses in turns,
    until `max_tasks` rows; a cell that runs dry leaves its turns to the others."""
    if config.difficulty_balanced:
        cells: defaultdict[str, list[Numbered]] = defaultdict(list)
        for number, unit in units:
            cells[_cell(unit)].append((number, unit))
        for own in cells.values():
            own.sort(key=lambda one: stable_id("balance", one[1][0].id))
        queues = [cells[name] for name in sorted(cells)]
        most = max(map(len, queues), default=0)
        units = (queue[i] for i in range(most) for queue in queues if i < len(queue))
    rows = 0
    for number, unit in units:
        rows += len(unit)
        if config.max_tasks and rows > config.max_tasks:
            break
        yield number, unit


def _cell(unit: Sequence[Instance]) -> str:
    row, record = unit[0].plan, unit[0].record
    drops = sum(one.status == "DROP" for one in unit)
    more = (drops * 2 > len(unit)) - (drops * 2 < len(unit))
    return str((row.track, difficulty(record.length, len(row.sequence)), record.domain, more))


# --- the chosen units, handed to the last map


def word_shard(work: Work, shard: int, crew: WorkerPool) -> None:
    """Execute and word the units of a shard's documents."""
    db = work.query(documents=work.documents, units=str(work.folder / "units.parquet"))
    chosen: list[Chosen] = db.execute(
        "SELECT number, file, start, size, id, active, unit, plan, bits, place FROM units JOIN "
        "documents USING (number) WHERE shard = ? ORDER BY number, unit",
        [shard],
    ).fetchall()
    sent, make = work.sent(), Named("data_gen.cdr.rows:word_part")
    jobs = ((sent, own) for own in _parts(chosen))
    work.map("rows", shard, crew, make, jobs, WORDED, len(chosen))


def _parts(chosen: Sequence[Chosen]) -> Iterator[list[Chosen]]:
    part: list[Chosen] = []
    for _, own in groupby(chosen, lambda unit: unit[0]):
        part += own
        if len(part) >= PART:
            yield part
            part = []
    if part:
        yield part
