"""Choosing which units are written: the release's caps, and balance for training."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from assay.seeds import derive_seed
from configs.cdr import SelectConfig, SplitConfig
from data_gen.cdr.rows import difficulty
from data_gen.cdr.units import FILTER, MAIN, MAPPER, ORDER, Instance, Unit
from data_gen.overlap import copies_of
from data_gen.splits import taken
from rewards.cdr.release_files import stable_id


class Choice(NamedTuple):
    """What is known of a unit when it is chosen. `length`: characters of its document; `cap`: what
    it counts for, of which there are `most` (0: no limit); `family`: its recipe and order family;
    `cell`: what is balanced; `rank`: its place in the cell."""

    number: int
    rows: int
    length: int
    cap: str
    most: int
    family: tuple[str, str] | None
    cell: tuple[str, int, str, int]
    rank: str


def choice_of(unit: Sequence[Instance], number: int, config: SelectConfig) -> Choice:
    row, record = unit[0].plan, unit[0].record
    drops = sum(one.status == "DROP" for one in unit)
    cell = (
        row.track,
        difficulty(record.length, len(row.sequence)),
        record.domain,
        (drops * 2 > len(unit)) - (drops * 2 < len(unit)),
    )
    return Choice(
        number,
        len(unit),
        record.length,
        *_cap(unit[0], config),
        (str(row.recipe_id), str(row.family_id)) if row.kind == ORDER else None,
        cell,
        stable_id("balance", unit[0].id),
    )


def thin(units: Iterable[Choice], config: SelectConfig) -> list[Choice]:
    """At most so many a variant, an operator, a family and a recipe; 0: no limit."""
    kept: list[Choice] = []
    counts: Counter[str] = Counter()
    families: defaultdict[str, list[str]] = defaultdict(list)
    for unit in units:
        if config.max_chars and unit.length > config.max_chars:
            continue
        if unit.family is not None and config.families_per_recipe:
            recipe, family = unit.family
            known = families[recipe]
            if family not in known:
                if len(known) >= config.families_per_recipe:
                    continue
                known.append(family)
        if unit.most and counts[unit.cap] >= unit.most:
            continue
        counts[unit.cap] += 1
        kept.append(unit)
    return kept


def _cap(row: Instance, config: SelectConfig) -> tuple[str, int]:
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


def balance(units: Sequence[Choice], config: SelectConfig) -> list[Choice]:
    """With `difficulty_balanced`, units of tracks, difficulties, domains and statuses in turns,
    until `max_tasks` rows; a cell that runs dry leaves its turns to the others."""
    if not config.difficulty_balanced:
        return _until(units, config.max_tasks)
    cells: defaultdict[tuple[object, ...], list[Choice]] = defaultdict(list)
    for unit in units:
        cells[unit.cell].append(unit)
    for own in cells.values():
        own.sort(key=lambda unit: unit.rank)
    queues = [cells[key] for key in sorted(cells, key=str)]
    turns = (
        queue[i]
        for i in range(max(map(len, queues), default=0))
        for queue in queues
        if i < len(queue)
    )
    return _until(turns, config.max_tasks)


def _until(units: Iterable[Choice], most: int) -> list[Choice]:
    kept: list[Choice] = []
    rows = 0
    for unit in units:
        if most and rows + unit.rows > most:
            break
        kept.append(unit)
        rows += unit.rows
    return kept


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
    first = copies_of({unit.record.id: unit.input for unit in units})

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


def unbalanced(units: Iterable[Unit]) -> set[int]:
    """Numbers of the units to leave out so that every filter of every track keeps about as often
    as it drops: the difference is less than the rows of a unit.

    Units are left out whole, those with most rows of the more frequent status first, then by the
    rank of a hash.
    """
    cells: defaultdict[tuple[str, str], list[tuple[int, int, str]]] = defaultdict(list)
    for unit in units:
        first = unit.rows[0]
        if name := first.plan.filter:
            drops = sum(row.status == "DROP" for row in unit.rows)
            rank = stable_id("balance_filtered", first.id)
            cells[first.plan.track, name].append((2 * drops - len(unit.rows), unit.number, rank))
    left_out: set[int] = set()
    for cell in cells.values():
        excess = sum(more for more, _, _ in cell)
        sign = 1 if excess > 0 else -1
        excess *= sign
        for more, number, _ in sorted(cell, key=lambda c: (-sign * c[0], c[2])):
            if 0 < sign * more < 2 * excess:  # the rest is nearer to balance without it
                left_out.add(number)
                excess -= sign * more
    return left_out
