"""Choosing which units are written: the release's caps, balance for training, and splits."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from assay.seeds import derive_seed
from configs.cdr import SelectConfig, SplitConfig
from data_gen.cdr.rows import difficulty
from data_gen.cdr.units import FILTER, MAIN, MAPPER, ORDER, Instance, Unit
from data_gen.overlap import copies_of
from data_gen.splits import taken
from rewards.cdr.release_files import stable_id

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
