"""The last stage: the files of a build, and what became of its documents."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from assay.files import atomic_write_set
from assay.task import json_line
from assay.workers import WorkerPool
from configs.loader import dump
from data_gen.cdr.domains import MAPPERS, label, rank_domains
from data_gen.cdr.facts import LONG, TORN, TWICE, UNLICENSED, USED, names_of
from data_gen.cdr.library import LibraryRecipe
from data_gen.cdr.mining import Mined
from data_gen.cdr.out import FILES, Tracks, Unsaid, write_tracks
from data_gen.cdr.recipes import Library
from data_gen.cdr.rows import Row
from data_gen.cdr.sources import Found, Left
from data_gen.cdr.units import FILTER, MAPPER, ORDER, SWAP
from data_gen.cdr.work import Work, said
from data_gen.tally import Input

SOURCES = 12  # of a domain; more (a folder of text files) are one class


@dataclass(frozen=True)
class Built:
    """What a build made, for the last lines of the command."""

    tracks: Tracks | None
    documents: int
    usable: int
    rows: Counter[int]  # by kind of unit
    rows_of: Counter[str]  # by document
    library: Library
    active: dict[str, int]  # documents of a domain with two or more active mappers
    operators: frozenset[str]  # that an atomic row asks for
    families: int  # order families with rows


def merge(work: Work, crew: WorkerPool, out: Path) -> Built:
    """Write everything to `out`; all files take their places together."""
    units, done = str(work.folder / "units.parquet"), work.parts("rows")
    db = work.query(crew.workers, documents=work.documents, units=units, done=done)
    with atomic_write_set(out, stale=FILES) as new:
        dump(work.config, new / "config.yaml")
        with open(new / "pipeline.jsonl", "wb") as file:
            file.writelines(_pipeline(db, work.load("library")))
        tracks = write_tracks(work, db, new) if work.config.tracks else None
    return _built(work, db, tracks)


def _rows(db: Any, query: str, *given: Any) -> Iterator[tuple[Any, ...]]:
    """The rows of a query, which goes on while they are used."""
    own = db.cursor()
    own.execute(query, list(given))
    while chunk := own.fetchmany(1000):
        yield from chunk


def _pipeline(db: Any, library: Library) -> Iterator[bytes]:
    """The lines of pipeline.jsonl. Order pairs come last here."""
    query = f"SELECT id, domain, active FROM documents WHERE state = {USED} ORDER BY number"
    for name, domain, active in _rows(db, query):
        yield json_line(_activation_row(said(name), domain, names_of(active)))
    yield from map(json_line, _library_rows(library))
    order = f"CASE kind WHEN {SWAP} THEN {ORDER} WHEN {ORDER} THEN {SWAP} ELSE kind END"
    query = f"SELECT pipeline FROM done JOIN units USING (unit) ORDER BY {order}, unit"
    for (lines,) in _rows(db, query):
        yield lines


def _activation_row(name: str, domain: str, active: tuple[str, ...]) -> Row:
    return {
        "kind": "pipeline_activation",
        "doc_id": name,
        "domain": label(domain),
        "active": list(active),
        "ranked_domain": _ranked(domain, active),
    }


@lru_cache(maxsize=20_000)
def _ranked(domain: str, active: tuple[str, ...]) -> str | None:
    ranked = rank_domains(active, domain)[0] if len(active) >= 2 else None
    known = ranked is not None and any(op in active for op in MAPPERS[ranked])
    return label(ranked) if ranked and known else None


def _library_rows(library: Library) -> Iterator[Row]:
    """Families and recipes, domain by domain."""
    for mined in library.mined:
        yield from _family_rows(mined)
        own = (entry for entry in library.entries if entry.domain == mined.domain)
        yield from map(_recipe_row, own)


def _family_rows(mined: Mined) -> Iterator[Row]:
    for family in mined.families:
        yield {
            "kind": "pipeline_family",
            "domain": label(mined.domain),
            "family_id": family.id,
            "anchor": list(family.anchor),
            "subset_support": family.subset_support,
            "family_support": family.family_support,
            "num_records": mined.records,
            "threshold": mined.threshold,
        }


def _recipe_row(entry: LibraryRecipe) -> Row:
    recipe = entry.recipe
    row: Row = {
        "kind": "pipeline_recipe",
        "domain": label(entry.domain),
        "recipe_id": recipe.id,
        "family_id": recipe.family_id,
        "support": recipe.support,
        "ordered": list(recipe.ordered),
        "support_records": entry.support_records,
        "order_families": [
            {
                "order_family_id": family.id,
                "filter": family.filter,
                "min_support": family.min_support,
                "slots": {
                    slot: {
                        "step": point.step,
                        "params": point.params,
                        "sequence": list(family.sequences[slot]),
                    }
                    for slot, point in family.slots.items()
                },
            }
            for family in entry.families
        ],
        "main_variants": [
            {
                "recipe_variant_id": variant.id,
                "recipe_type": variant.recipe_type,
                "sequence": list(variant.sequence),
                "filter_params": variant.params,
            }
            for variant in entry.variants
        ],
    }
    return row | ({"composed": True} if recipe.composed else {})


def _built(work: Work, db: Any, tracks: Tracks | None) -> Built:
    plans = work.load("plan").plans
    rows: Counter[int] = Counter()
    used: set[int] = set()
    query = "SELECT kind, plan, count(*) FROM units GROUP BY ALL"
    for kind, plan, count in _rows(db, query):
        rows[kind] += count * (3 if kind == ORDER else 1)
        used.add(plan)
    query = (
        f"SELECT id, sum(CASE kind WHEN {ORDER} THEN 3 ELSE 1 END) FROM units JOIN documents "
        f"USING (number) WHERE kind != {SWAP} GROUP BY id"
    )
    own = Counter({said(name): int(count) for name, count in _rows(db, query)})
    ((documents, usable),) = _rows(
        db, f"SELECT count(*), count(*) FILTER (usable) FROM documents WHERE state = {USED}"
    )
    first = [plans[number][0] for number in used]
    return Built(
        tracks,
        documents,
        usable,
        rows,
        own if tracks is None else tracks.rows_of,
        work.load("library"),
        dict(_rows(db, _ACTIVE)),
        frozenset(one.sequence[0] for one in first if one.kind in (MAPPER, FILTER)),
        len({one.family_id for one in first if one.kind == ORDER}),
    )


_ACTIVE = (
    f"SELECT domain, count(*) FROM documents WHERE state = {USED} AND "
    "bit_count(active::BIGINT) > 1 GROUP BY domain"
)


# --- what became of the documents


@dataclass
class Class:
    """Documents of one domain and source, or rows of one file that hold none."""

    tasks: int = 0
    idle: int = 0  # usable documents that gave no task
    why: Counter[str] = field(default_factory=Counter[str])
    licences: Counter[str] = field(default_factory=Counter[str])

    def add(self, own: Class) -> None:
        self.tasks += own.tasks
        self.idle += own.idle
        self.why += own.why
        self.licences += own.licences

    def input(self, name: str) -> Input:
        why = [f"{count} {kind}" for kind, count in _ranks(self.why)]
        if self.idle:
            why.append(f"{self.idle} usable, but no task drew them")
        first = [licence for licence, _ in _ranks(self.licences)[:3]]
        more = f" and {len(self.licences) - 3} more" if len(self.licences) > 3 else ""
        return Input(name, self.tasks, tuple(why), ", ".join(first) + more)


def _ranks(counts: Counter[str]) -> list[tuple[str, int]]:
    """Commonest first, ties alphabetically."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def rows_left(work: Work, db: Any) -> Iterator[Left]:
    """Rows that hold no document, that are there twice, or of another licence."""
    for (why,) in _rows(db, f"SELECT why FROM documents WHERE state = {TORN} ORDER BY number"):
        yield Left(**json.loads(why))
    query = f"SELECT shard, piece, row, id FROM documents WHERE state = {TWICE} ORDER BY number"
    for shard, piece, row, name in _rows(db, query):
        found = Found(work.pieces(int(shard))[int(piece)], "row", row, None)
        yield found.left(f"id {said(name)!r} occurs twice", "an id that occurs twice")
    query = f"SELECT id, source, licence FROM documents WHERE state = {UNLICENSED} ORDER BY number"
    for name, source, licence in _rows(db, query):
        why = f"licence {said(licence)!r} is left out"
        kind = "a licence that --licence leaves out"
        yield Left(said(name), why, kind, said(source), said(licence))


def left_out(work: Work, db: Any) -> Iterator[Left]:
    """Everything that is not used, kind by kind, each in corpus order."""
    yield from rows_left(work, db)
    limits = work.config.instances
    most, least = limits.max_text_length, limits.min_active
    for value, condition, kind, why in (
        (
            "chars",
            f"state = {LONG}",
            f"longer than {most} characters (instances.max_text_length)",
            f"characters long; the limit is {most}",
        ),
        (
            "bit_count(active::BIGINT)",
            f"state = {USED} AND NOT usable",
            f"fewer than {least} active mappers (instances.min_active)",
            f"active mappers; {least} are wanted",
        ),
    ):
        query = f"SELECT id, source, licence, {value} FROM documents WHERE {condition}"
        for name, source, licence, count in _rows(db, f"{query} ORDER BY number"):
            yield Left(said(name), f"{count} {why}", kind, said(source), said(licence))


def classes_of(work: Work, db: Any, tasks_of: Mapping[str, int]) -> list[Input]:
    """The documents by domain and source; of a domain with many sources together. `tasks_of`: rows
    that a document gave."""
    found: dict[str, Class] = {}
    query = f"SELECT source, licence, usable, id FROM documents WHERE state = {USED}"
    for source, licence, usable, name in _rows(db, query):
        own = found.setdefault(said(source), Class())
        own.licences[said(licence)] += 1
        tasks = tasks_of.get(said(name), 0)
        own.tasks += tasks
        own.idle += usable and not tasks
    for one in left_out(work, db):
        own = found.setdefault(one.group, Class())
        own.why[one.kind] += 1
        own.licences[one.licence] += 1
    sources: Counter[str] = Counter(name.partition(" / ")[0] for name in found)
    listed: dict[str, Class] = {}
    for name, own in found.items():
        domain = name.partition(" / ")[0]
        if (count := sources[domain]) > SOURCES:
            name = f"{domain} / {count} sources"
        listed.setdefault(name, Class()).add(own)
    return [own.input(name) for name, own in listed.items()]


def unsaid_rows(unsaid: Mapping[tuple[str, str], Unsaid]) -> list[Input]:
    """A row of refused.jsonl for every way in which an operator does what its words do not say."""
    return [
        Input(operator, 0, (f"{own.rows} rows in no split: it {does}; first {own.document}",))
        for (operator, does), own in unsaid.items()
    ]


def members(work: Work, db: Any) -> Iterator[Input]:
    """A row of refused.jsonl for everything that is not used."""
    return (Input(one.name, 0, (one.why,), one.licence) for one in left_out(work, db))
