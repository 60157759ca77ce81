"""The merge after the second map: thresholds, who may be chosen for what, and the choice.

For every task the documents used least so far are taken, then those with the smallest hashes (spec
section 8). What was chosen before decides what is chosen next, so this goes through the tracks in
order, in queries that see numbers alone, never a text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from assay.console import Progress
from assay.workers import WorkerPool
from configs.cdr import CdrConfig, SwapConfig
from data_gen.cdr.domains import ALL_MAPPERS
from data_gen.cdr.facts import BITS, CALIBRATED_FILTERS, Replays, bound_filter, filters_of
from data_gen.cdr.instruct import Pool, pool_of
from data_gen.cdr.library import LibraryRecipe, OrderFamily, calibrated, percentile, quantile_of
from data_gen.cdr.paraphrase import paraphrase_units
from data_gen.cdr.recipes import CHANGED, FAILED, FAMILY, Point, point_of, points_of, wanted
from data_gen.cdr.sampling import picked
from data_gen.cdr.sources import Record
from data_gen.cdr.units import (
    SLOT_BITS,
    Asked,
    Instance,
    RowPlan,
    Rule,
    atomic,
    instances,
    main_row,
    order_rows,
    swap_rows,
    swapped,
)
from data_gen.cdr.work import Work, packed, said, write_part
from rewards.gold import Step, bind
from rewards.parse import same_text

RECIPES = 8  # of a wording job
# Units by number: what they are made of, where their filter keeps, and their place in the tracks
# (-1: they are no rows of these).
COLUMNS = {
    **{"unit": "int64", "plan": "int32", "number": "int64", "bits": "int8"},
    **{"kind": "int8", "place": "int64"},
}
Array = np.ndarray[Any, np.dtype[Any]]
Plans = tuple[RowPlan, ...]


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
        chosen.add(swap_rows(entries[number], i), [document], 1)
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
        said, counts = paraphrase_units(picked, config.instruct, config.paraphrase, kept)
        plan = replace(plan, wordings=said, paraphrases=counts)
    return plan


def _pools(job: tuple[list[Asked], Any]) -> dict[Asked, Pool]:
    return {asked: pool_of(asked, job[1]) for asked in job[0]}


@dataclass(frozen=True)
class Seen:
    """Documents side by side, in corpus order: numbers, bits, statistics by point, ids, and what is
    hashed of each (`id||source_name||url`)."""

    numbers: Array
    bits: Array
    values: dict[Point, Array]
    ids: list[bytes]
    keys: list[bytes]
    english: Array

    def ranked(self, mask: Array, salt: str) -> Array:
        """Places of the documents of a mask in the order of a hash, ties in corpus order."""
        places = np.flatnonzero(mask)
        made = hashes(salt, [self.keys[place] for place in places.tolist()])
        return places[np.argsort(made, kind="stable")]


def hashes(salt: str, rests: Sequence[bytes]) -> Array:
    """`stable_id(salt, …)` of each rest (its parts joined by `||`), as unsigned integers."""
    start = hashlib.sha1(f"{salt}||".encode("utf-8", "surrogatepass"))
    digests: list[bytes] = []
    for rest in rests:
        made = start.copy()
        made.update(rest)
        digests.append(made.digest()[:8])
    return np.frombuffer(b"".join(digests), ">u8")


class Chooser:
    """Goes through the tracks as the reference does, and counts how many rows each document has."""

    def __init__(self, db: Any, config: CdrConfig) -> None:
        self.db, self.config = db, config
        (count,) = db.execute("SELECT count(*) FROM documents").fetchone()
        self._usage = np.zeros(count, np.uint16)
        self.plans: list[Plans] = []
        self.units: list[tuple[int, int, int]] = []  # plan, document, bits
        self.swaps: list[Array] = []  # by recipe, the documents that order pairs are looked for in

    def _seen(self, source: str, points: Mapping[Point, str]) -> Seen:
        """`points`: where their statistics are, in SQL."""
        columns = ", ".join(["number", "bits", "english", "id", "id || rest", *points.values()])
        found = self.db.execute(f"SELECT {columns} FROM {source} ORDER BY number").fetchnumpy()
        numbers, bits, english, ids, keys, *values = found.values()
        return Seen(
            numbers,
            bits,
            dict(zip(points, values, strict=True)),
            [bytes(one) for one in ids],
            [bytes(one) for one in keys],
            english.astype(np.bool_),
        )

    def atomic(self) -> None:
        """The units of one operator."""
        most = self.config.instances.per_operator
        points = {(name, 0): f'"{name}"' for name in CALIBRATED_FILTERS}
        source = "(SELECT *, active & changes AS bits FROM documents WHERE usable)"
        seen = self._seen(source, points)
        for name in ALL_MAPPERS:
            places = seen.ranked(seen.bits & BITS[name] != 0, f"atomic:{name}")
            self.take(atomic(name), seen.numbers[places], most, 1)
        for name in sorted(filters_of(self.config)):
            salt, named = f"atomic:{name}:select", f"atomic||{name}"
            fine = ~np.isnan(seen.values[name, 0])
            rule, sides = self._sides(seen, (name, 0), fine, salt, named, atomic_filter=True)
            self._balanced(atomic(name, rule), sides, most)

    def recipe(self, number: int, entry: LibraryRecipe) -> None:
        """The units of a recipe but its order pairs."""
        limits, points = self.config.instances, wanted(entry).points
        steps = {point: f"stats[{place}]" for place, point in enumerate(points, 1)}
        starts = {(name, 0): f'"{name}"' for name in CALIBRATED_FILTERS}
        source = f"(SELECT * FROM traces JOIN documents USING (number) WHERE recipe = {number})"
        seen = self._seen(source, steps | starts)
        clean = entry.variants[0].id
        whole, fine = seen.bits & (CHANGED | FAILED) == CHANGED, seen.bits & FAILED == 0
        places = seen.ranked(whole, clean)
        self.take(main_row(entry, 0), seen.numbers[places], limits.per_variant, 1)
        for place, variant in enumerate(entry.variants[1:], 1):
            point = point_of(variant)
            own = fine & ~np.isnan(seen.values[point])
            rule, sides = self._sides(seen, point, own, f"{variant.id}:select", variant.id)
            self._balanced(main_row(entry, place, rule), sides, limits.per_variant)
        for place, family in enumerate(entry.families):
            self._groups(seen, entry, family, place)
        salt = f"{entry.domain}:{entry.recipe.id}:{clean}"
        ranked = seen.ranked(seen.english, salt)[: self.config.swaps.max_records]
        self.swaps.append(seen.numbers[ranked])

    def take(self, plans: Plans, numbers: Array, most: int, bits: Any) -> None:
        """Units of the documents used least so far, of those in the order of their hash."""
        places = np.argsort(self._usage[numbers], kind="stable")[:most]
        self.add(plans, numbers[places].tolist(), bits if isinstance(bits, int) else bits[places])

    def add(self, plans: Plans, numbers: Sequence[int], bits: Any) -> None:
        np.add.at(self._usage, numbers, len(plans))
        each = np.broadcast_to(bits, len(numbers)).tolist()
        if not self.plans or self.plans[-1] != plans:
            self.plans.append(plans)
        self.units += [
            (len(self.plans) - 1, number, kept) for number, kept in zip(numbers, each, strict=True)
        ]

    def _sides(
        self, seen: Seen, point: Point, fine: Array, salt: str, named: str, **more: Any
    ) -> tuple[Rule, list[Array]]:
        """The threshold of a filter, and the documents that it keeps and drops, each in the order
        of a hash. `named` makes an instance's id from its document's: H(named, id)."""
        values = seen.values[point]
        rule = self._threshold(point[0], values[fine], **more)
        if rule.params is None:
            return rule, []
        kept = keeps(point[0], rule, values)
        sides: list[Array] = []
        for side, mask in (("keep", fine & kept), ("drop", fine & ~kept)):
            places = np.flatnonzero(mask)
            ids = [seen.ids[place] for place in places.tolist()]
            names = hashes(named, ids).tolist()
            rests = [b"%b||%016x" % pair for pair in zip(ids, names, strict=True)]
            order = np.argsort(hashes(f"{salt}:{side}", rests), kind="stable")
            sides.append(seen.numbers[places[order]])
        return rule, sides

    def _threshold(self, name: str, values: Array, **more: Any) -> Rule:
        """The threshold of a filter from its statistics."""
        limits = self.config.instances
        if not len(values):
            return Rule(None, {})
        raw = percentile(values, quantile_of(name, limits.target_drop_rate))
        made = calibrated(name, raw, limits.target_drop_rate, limits.zero_policy)
        meta = {
            "filter_name": name,
            "status_value_key": bound_filter(name).operator.stat_key,
            "value_count": len(values),
        }
        return Rule(made.params, made.meta | meta | more)

    def _balanced(self, plans: Plans, sides: Sequence[Array], most: int) -> None:
        """KEEP and DROP by quota; none when one side is too thin."""
        limits = self.config.instances
        if not sides or len(sides[0]) < limits.min_keep or len(sides[1]) < limits.min_drop:
            return
        drops = max(1, round(most * limits.target_drop_rate))
        self.take(plans, sides[0], max(most - drops, 0), 1)
        self.take(plans, sides[1], drops, 0)

    def _groups(self, seen: Seen, entry: LibraryRecipe, family: OrderFamily, place: int) -> None:
        """Groups whose three results are not all the same."""
        own = [seen.values[point] for point in points_of(family)]
        fine = (seen.bits & FAILED == 0) & ~np.isnan(own).any(axis=0)
        values = np.concatenate([one[fine] for one in own])
        rule = self._threshold(family.filter, values, shared_across_order_slots=True)
        if rule.params is None:
            return
        kept = np.array([keeps(family.filter, rule, one) for one in own])
        same = seen.bits & (FAMILY << place) != 0
        differ = ~kept.all(axis=0) & (kept.any(axis=0) | ~same)
        places = seen.ranked(fine & differ, family.id)
        limits = self.config.instances
        if min(len(places), limits.groups_per_family) >= limits.min_groups:
            bits = np.array(SLOT_BITS) @ kept
            plans = order_rows(entry, family, rule)
            self.take(plans, seen.numbers[places], limits.groups_per_family, bits[places])


def keeps(name: str, rule: Rule, values: Array) -> Array:
    """Which statistics a filter keeps, its operator's defaults behind the calibrated bound."""
    step = bind(Step(name, dict(rule.params or {})))
    low = -np.inf if step.low is None else step.low
    high = np.inf if step.high is None else step.high
    return (values >= low) & (values <= high)


Swapping = tuple[int, LibraryRecipe, SwapConfig, list[tuple[int, str, int, int]]]
Swap = tuple[int, int, int]  # recipe, place of the first of the two mappers, document


def _swaps(
    db: Any, chosen: Chooser, entries: Sequence[LibraryRecipe], crew: WorkerPool
) -> list[Swap]:
    """The order pairs: two neighbouring mappers exchanged, where it changes the result."""
    config = chosen.config.swaps
    wanted = list({number for own in chosen.swaps for number in own.tolist()})
    query = "SELECT number, file, start, size FROM documents WHERE number IN (SELECT unnest(?))"
    places = {row[0]: row for row in db.execute(query, [wanted]).fetchall()}
    jobs = (
        (recipe, entry, config, [places[number] for number in own.tolist()])
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
