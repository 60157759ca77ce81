"""The merge after the second map: thresholds, who may be chosen for what, and the choice.

For every task the documents used least so far are taken, then those with the smallest hashes (spec
section 8). What was chosen before decides what is chosen next, so this goes through the tracks in
order, in queries that see numbers alone, never a text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from assay.console import Progress
from assay.workers import WorkerPool
from configs.cdr import CdrConfig, SwapConfig
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
from data_gen.cdr.library import (
    LibraryRecipe,
    OrderFamily,
    Point,
    Rule,
    calibrated,
    percentile,
    quantile_of,
)
from data_gen.cdr.recipes import CHANGED, FAILED, FAMILY
from data_gen.cdr.units import (
    SLOT_BITS,
    Asked,
    Instance,
    Plans,
    atomic,
    instances,
    main_row,
    order_rows,
    picked,
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

    What can be chosen from stands in the table `seen`: documents with bits, what is hashed of each
    (`id`, and `key`: `id||source_name||url`), and a column of statistics for each point.
    """

    def __init__(self, db: Any, config: CdrConfig) -> None:
        self.db, self.config = db, config
        db.execute("CREATE TABLE used AS SELECT number, 0 AS times FROM documents")
        self.plans: list[Plans] = []
        self.units: list[tuple[int, int, int]] = []  # plan, document, bits
        # by recipe, the documents that order pairs are looked for in
        self.swaps: list[list[int]] = []

    def _look(self, source: str, points: Mapping[Point, str]) -> None:
        """`points`: where their statistics are, in SQL."""
        listed = [f"{where} AS {_at(point)}" for point, where in points.items()]
        columns = ", ".join(["number", "bits", "english", "id", "id || rest AS key", *listed])
        self.db.execute(f"CREATE OR REPLACE TABLE seen AS SELECT {columns} FROM {source}")

    def atomic(self) -> None:
        """The units of one operator."""
        most = self.config.instances.per_operator
        points = {(name, 0): f'"{name}"' for name in CALIBRATED_FILTERS}
        self._look("(SELECT *, active & changes AS bits FROM documents WHERE usable)", points)
        for name in ALL_MAPPERS:
            own = self._first(f"bits & {BITS[name]} != 0", f"atomic:{name}", most)
            self._take(atomic(name), own)
        for name in sorted(filters_of(self.config)):
            salts = f"atomic:{name}:select", f"atomic||{name}"
            make = partial(atomic, name)
            self._balanced(make, (name, 0), "true", salts, most, atomic_filter=True)

    def recipe(self, number: int, entry: LibraryRecipe) -> None:
        """The units of a recipe but its order pairs."""
        most = self.config.instances.per_variant
        steps = {point: f"stats[{place}]" for place, point in enumerate(entry.points, 1)}
        starts = {(name, 0): f'"{name}"' for name in CALIBRATED_FILTERS}
        self._look(f"traces JOIN documents USING (number) WHERE recipe = {number}", steps | starts)
        clean = entry.variants[0].id
        whole = f"bits & {CHANGED | FAILED} = {CHANGED}"
        self._take(main_row(entry, 0), self._first(whole, clean, most))
        for place, variant in enumerate(entry.variants):
            if variant.point:
                salts = f"{variant.id}:select", variant.id
                make = partial(main_row, entry, place)
                self._balanced(make, variant.point, f"bits & {FAILED} = 0", salts, most)
        for place, family in enumerate(entry.families):
            self._groups(entry, family, place)
        salt = f"{entry.domain}:{entry.recipe.id}:{clean}"
        ranked = self._first("english", salt, self.config.swaps.max_records, by="")
        self.swaps.append([document for document, _ in ranked])

    def _first(
        self,
        where: str,
        salt: str,
        most: int,
        key: str = "key",
        bits: str = "1",
        by: str = "times,",
    ) -> list[tuple[int, int]]:
        """(document, bits) of those used least so far, then in the order of `stable_id(salt, key)`,
        ties in corpus order."""
        query = (
            f"SELECT number, {bits} FROM seen JOIN used USING (number) WHERE {where} "
            f"ORDER BY {by} left(sha1(encode(?) || {key}), 16), number LIMIT ?"
        )
        return self.db.execute(query, [f"{salt}||", most]).fetchall()

    def _take(self, plans: Plans, chosen: Sequence[tuple[int, int]]) -> None:
        """Units of documents, which have been used for them from now on."""
        if chosen:
            query = "UPDATE used SET times = times + ? WHERE number IN (SELECT unnest(?))"
            self.db.execute(query, [len(plans), [number for number, _ in chosen]])
            self.add(plans, chosen)

    def add(self, plans: Plans, chosen: Sequence[tuple[int, int]]) -> None:
        if not self.plans or self.plans[-1] != plans:
            self.plans.append(plans)
        self.units += [(len(self.plans) - 1, number, bits) for number, bits in chosen]

    def _rule(self, name: str, values: str, where: str, **more: Any) -> Rule | None:
        """The threshold of a filter from its statistics; None where there is none."""
        query = f"SELECT {values} AS found FROM seen WHERE {where}"
        found = self.db.execute(query).fetchnumpy()["found"]
        if not len(found):
            return None
        limits = self.config.instances
        raw = percentile(found, quantile_of(name, limits.target_drop_rate))
        made = calibrated(name, raw, limits.target_drop_rate, limits.zero_policy)
        meta = {
            "filter_name": name,
            "status_value_key": bound_filter(name).operator.stat_key,
            "value_count": len(found),
        }
        return replace(made, meta=made.meta | meta | more) if made.params else None

    def _balanced(
        self,
        make: Callable[[Rule], Plans],
        point: Point,
        where: str,
        salts: tuple[str, str],
        most: int,
        **more: Any,
    ) -> None:
        """KEEP and DROP of a filter by quota; none when one side is too thin. `salts`: of the order
        of a side, and what makes an instance's id from its document's: H(named, id)."""
        limits, (salt, named) = self.config.instances, salts
        where = f"{where} AND NOT isnan({_at(point)})"
        rule = self._rule(point[0], _at(point), where, **more)
        if rule is None:
            return
        drops = max(1, round(most * limits.target_drop_rate))
        key = f"id || encode('||' || left(sha1(encode('{named}||') || id), 16))"
        chosen: list[tuple[int, int]] = []
        for side, bits, wanted, least in (
            ("keep", 1, max(most - drops, 0), limits.min_keep),
            ("drop", 0, drops, limits.min_drop),
        ):
            judged = f"{where} AND {_keeps(point, rule)} = {bits}"
            own = self._first(judged, f"{salt}:{side}", max(wanted, least), key, str(bits))
            if len(own) < least:
                return
            chosen += own[:wanted]
        self._take(make(rule), chosen)

    def _groups(self, entry: LibraryRecipe, family: OrderFamily, place: int) -> None:
        """Groups whose three results are not all the same."""
        points, limits = family.points, self.config.instances
        where = " AND ".join(f"NOT isnan({_at(point)})" for point in points)
        where = f"bits & {FAILED} = 0 AND {where}"
        values = f"unnest([{', '.join(map(_at, points))}])"
        rule = self._rule(family.filter, values, where, shared_across_order_slots=True)
        if rule is None:
            return
        each = zip(SLOT_BITS.values(), points, strict=True)
        bits = " + ".join(f"{bit} * {_keeps(point, rule)}::TINYINT" for bit, point in each)
        differ = f"({bits}) != 7 AND (({bits}) > 0 OR bits & {FAMILY << place} = 0)"
        most = limits.groups_per_family
        chosen = self._first(f"{where} AND {differ}", family.id, most, bits=bits)
        if len(chosen) >= limits.min_groups:
            self._take(order_rows(entry, family, rule), chosen)


def _at(point: Point) -> str:
    """The column of a point."""
    return f'"{point[0]} {point[1]}"'


def _keeps(point: Point, rule: Rule) -> str:
    """Whether a filter keeps, its operator's defaults behind the calibrated bound, in SQL."""
    step = bind(Step(point[0], dict(rule.params or {})))
    low = -inf if step.low is None else step.low
    high = inf if step.high is None else step.high
    return f"({_at(point)} BETWEEN '{low!r}'::DOUBLE AND '{high!r}'::DOUBLE)"


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
