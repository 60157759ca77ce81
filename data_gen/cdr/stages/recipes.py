"""The recipe library of a corpus: mined and composed from signatures, filters attached from the
first supporting documents. Both are bounded by the settings, whatever the corpus holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from configs.cdr import CdrConfig
from data_gen.cdr.compose import compose
from data_gen.cdr.library import LibraryRecipe, attach_filters, support_table
from data_gen.cdr.mining import Mined, MinedRecipe, Signature, mine_counts
from data_gen.cdr.records import Replays
from data_gen.cdr.stages.arrays import Array
from data_gen.cdr.stages.documents import Documents
from data_gen.cdr.stages.facts import DOMAINS, bits_set, filters_of, mask_of, names_of

Table = list[list[float]]
# One document to replay: its number, and the (recipe number, mappers in order) to replay on it.
Support = tuple[int, tuple[tuple[int, Signature], ...]]
# Tables by recipe number of one document.
Tables = list[tuple[int, "Array | None"]]


@dataclass(frozen=True)
class Library:
    """What was mined, and every recipe with what can be made of it, in the order of the tracks."""

    mined: tuple[Mined, ...]
    entries: tuple[LibraryRecipe, ...]


@dataclass
class Drawn:
    """The recipes of one domain before filters are attached, with their supporting documents."""

    mined: Mined
    recipes: list[MinedRecipe]
    support: list[list[int]] = field(default_factory=list[list[int]])


def build_library(
    documents: Documents,
    config: CdrConfig,
    replay: Callable[[Iterable[Support]], Iterator[tuple[int, Tables]]],
) -> Library:
    """The library of all usable documents. `replay` gives the tables of each document asked for,
    in any order."""
    drawn = [draw(documents, domain, config) for domain in used_domains(documents, config)]
    numbered = [(d, place) for d in drawn for place in range(len(d.recipes))]
    wanted: dict[int, list[tuple[int, Signature]]] = {}
    for number, (d, place) in enumerate(numbered):
        for document in d.support[place]:
            wanted.setdefault(document, []).append((number, d.recipes[place].ordered))
    jobs = ((document, tuple(wanted[document])) for document in sorted(wanted))
    tables: dict[tuple[int, int], Array | None] = {}
    for document, found in replay(jobs):
        for number, table in found:
            tables[number, document] = table
    filters = filters_of(config)
    entries = [
        attach_filters(
            d.recipes[place],
            d.mined.domain,
            [_listed(tables[number, document]) for document in d.support[place]],
            filters,
            config.library,
        )
        for number, (d, place) in enumerate(numbered)
    ]
    return Library(tuple(d.mined for d in drawn), tuple(entries))


def _listed(table: Array | None) -> Table | None:
    return None if table is None else table.tolist()


def used_domains(documents: Documents, config: CdrConfig) -> list[str]:
    """Internal names of the domains that a usable document has, alphabetically."""
    found: set[int] = set()
    for _, facts in documents.usable(config):
        found.update(np.unique(facts.domain[facts.read]).tolist())
    return [DOMAINS[place] for place in sorted(found)]


def draw(documents: Documents, domain: str, config: CdrConfig) -> Drawn:
    """Mine and compose the recipes of a domain, and find the first supporters of each."""
    counts = signature_counts(documents, domain, config)
    mined = mine_counts(domain, counts, config.mining)
    sources = Signatures(documents, domain, config)
    made = compose(domain, sources, counts, mined.recipes, config.compose, config.split.seed)
    drawn = Drawn(mined, [*mined.recipes, *made])
    drawn.support = first_supporters(documents, domain, drawn.recipes, config)
    return drawn


def signature_counts(
    documents: Documents, domain: str, config: CdrConfig
) -> Mapping[Signature, int]:
    """How often each signature occurs, in the order of first occurrence."""
    counts: dict[int, int] = {}
    code = DOMAINS.index(domain)
    for _, facts in documents.usable(config):
        own = facts.active[facts.read & (facts.domain == code)]
        values, first, times = np.unique(own, return_index=True, return_counts=True)
        for place in np.argsort(first).tolist():
            mask = int(values[place])
            counts[mask] = counts.get(mask, 0) + int(times[place])
    return {names_of(mask): count for mask, count in counts.items()}


class Signatures(Sequence[Signature]):
    """The signatures a recipe may be composed from, by place in corpus order. Only counts are kept;
    an item is looked up in its part."""

    def __init__(self, documents: Documents, domain: str, config: CdrConfig) -> None:
        self._config, self._code = config, DOMAINS.index(domain)
        self._parts = documents.parts
        counts = [int(self._mask(place).sum()) for place in range(len(self._parts))]
        self._ends = np.cumsum(counts) if counts else np.zeros(0, np.int64)

    def _mask(self, place: int) -> np.ndarray:
        facts = self._parts[place].facts
        long = bits_set(facts.active) >= self._config.compose.min_length
        return facts.usable(self._config) & (facts.domain == self._code) & long

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitem__(self, index: int) -> Signature:  # type: ignore[override]
        place = int(np.searchsorted(self._ends, index, "right"))
        before = int(self._ends[place - 1]) if place else 0
        own = self._parts[place].facts.active[self._mask(place)]
        return names_of(int(own[index - before]))


def first_supporters(
    documents: Documents, domain: str, recipes: Sequence[MinedRecipe], config: CdrConfig
) -> list[list[int]]:
    """For each recipe the numbers of its first `max_support_records` supporting documents."""
    code, most = DOMAINS.index(domain), config.library.max_support_records
    masks = [mask_of(recipe.operators) for recipe in recipes]
    found: list[list[int]] = [[] for _ in recipes]
    for part, facts in documents.usable(config):
        open_ = [place for place, own in enumerate(found) if len(own) < most]
        if not open_:
            break
        places = np.flatnonzero(facts.read & (facts.domain == code))
        active = facts.active[places]
        for place in open_:
            hits = places[(active & np.uint32(masks[place])) == masks[place]]
            found[place] += (hits[: most - len(found[place])] + part.base).tolist()
    return found


def replay_support(
    documents: Documents, job: Support, replays: Replays, filters: Sequence[str]
) -> tuple[int, Tables]:
    """The tables of one document, a column a filter."""
    number, recipes = job
    text = documents.record(number).text
    found: Tables = []
    for recipe, ordered in recipes:
        table = support_table(text, ordered, filters, replays)
        found.append((recipe, None if table is None else np.array(table, np.float64)))
    return number, found
