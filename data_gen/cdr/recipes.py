"""The merge after the first map: documents get their numbers, and recipes are mined, composed and
given filters from their first supporting documents."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from math import nan
from pathlib import Path
from typing import Any

from assay.console import Progress
from assay.workers import WorkerPool
from configs.cdr import CdrConfig
from data_gen.cdr.documents import (
    LONG,
    TORN,
    TWICE,
    UNLICENSED,
    USED,
    Replays,
    filters_of,
    labels_of,
    mask_of,
    names_of,
)
from data_gen.cdr.library import (
    LibraryRecipe,
    Mined,
    MinedRecipe,
    Signature,
    attach_filters,
    compose,
    mine_counts,
    support_table,
)
from data_gen.cdr.work import Row, Work, packed, quoted, raw, read, said, write_part
from data_gen.readers import CorpusError

SUPPORTS = 16  # documents of one replaying job
Table = list[list[float]] | None


@dataclass(frozen=True)
class Library:
    """What was mined, and every recipe with what can be made of it, in the order of the tracks."""

    mined: tuple[Mined, ...]
    entries: tuple[LibraryRecipe, ...]


def merge_library(work: Work, crew: WorkerPool) -> None:
    """Number the documents, mine the recipes and attach filters to them."""
    if (work.folder / "library").is_file():
        return
    number_documents(work)
    work.save("library", build_library(work, crew))


def number_documents(work: Work) -> None:
    """Write `documents.parquet`: all rows of the corpora in reading order. An id that an earlier
    document has gets another one (of another file, reading otherwise) or is left out."""
    files = work.parts("facts")
    db = work.query(facts=files)
    counts = dict(db.execute("SELECT filename, count(*) FROM facts GROUP BY ALL").fetchall())
    _refuse_unusable(work, db)
    db.execute("CREATE TABLE files (filename VARCHAR, shard INTEGER, base BIGINT)")
    base = 0
    for file in files:
        db.execute(
            "INSERT INTO files VALUES (?, ?, ?)", [file, int(Path(file).parent.name[-5:]), base]
        )
        base += counts.get(file, 0)
    db.execute(
        f"CREATE VIEW numbered AS SELECT base + file_row_number AS number, shard, "
        f"filename AS file, f.* EXCLUDE (filename, file_row_number) "
        f"FROM {read(files, ', file_row_number = true')} f JOIN files USING (filename)"
    )
    db.execute("CREATE TABLE again (number BIGINT, other BLOB)")
    for again in _again(work, db):
        db.execute("INSERT INTO again VALUES (?, ?)", again)
    least = work.config.instances.min_active
    db.execute(f"""
        COPY (
            SELECT n.* REPLACE (coalesce(other, id) AS id, CASE WHEN twice THEN {TWICE} ELSE state
                END::TINYINT AS state),
                state = {USED} AND NOT twice AND bit_count(active::BIGINT) >= {least} AS usable
            FROM (SELECT *, a.number IS NOT NULL AND a.other IS NULL AS twice
            FROM numbered n LEFT JOIN again a USING (number)) n
            ORDER BY number
        ) TO {quoted(str(work.folder / "documents.parquet"))} (FORMAT parquet, COMPRESSION zstd)""")


def _refuse_unusable(work: Work, db: Any) -> None:
    """Raise `CorpusError` when there is no document, or none of the licences asked for."""
    query = "SELECT state, count(*) FROM facts GROUP BY state"
    found: Counter[int] = Counter(dict(db.execute(query).fetchall()))
    if not found.total() - found[TORN]:
        places = ", ".join(sorted({source.name for source in work.sources})[:3])
        first = db.execute("SELECT why FROM facts LIMIT 1").fetchone()
        why = ""
        if first:
            left: dict[str, str] = json.loads(first[0])
            why = f"; first problem: {left['name']}: {left['why']}"
        raise CorpusError(f"{places}: no usable document{why}")
    if work.config.licences and not found[USED] + found[LONG]:
        query = f"SELECT licence FROM facts WHERE state = {UNLICENSED}"
        there = Counter(said(licence) for (licence,) in db.execute(query).fetchall())
        raise CorpusError(
            f"no document has a licence of {', '.join(work.config.licences)}; there is "
            + ", ".join(f"{name} ({count} documents)" for name, count in there.most_common(8))
        )


def _again(work: Work, db: Any) -> Iterator[tuple[int, bytes | None]]:
    """The documents whose id an earlier one has, with another id for those of another file that
    read otherwise."""
    labels = labels_of(work.sources)
    pieces = [work.pieces(shard) for shard in range(work.shards)]
    query = f"""
        SELECT n.number, n.id, n.shard, n.piece, n.file, n.start, n.size,
            f.shard, f.piece, f.file, f.start, f.size
        FROM (SELECT *, min(number) OVER (PARTITION BY id) AS first FROM numbered
            WHERE state != {TORN}) n JOIN numbered f ON n.first = f.number
        WHERE n.number != n.first ORDER BY n.number"""
    taken: set[str] = set()
    for number, name, *places in db.execute(query).fetchall():
        both = places[:5], places[5:]
        label, first = (
            labels[pieces[int(shard)][int(piece)].source.place] for shard, piece, *_ in both
        )
        texts = [packed(file, start, size).get("text") for *_, file, start, size in both]
        other = f"{label}#{said(name)}"  # corpora that both number their rows have the same ids
        alike = label == first or texts[0] == texts[1] or other in taken
        if not alike:
            taken.add(other)
        yield number, None if alike else raw(other)


def build_library(work: Work, crew: WorkerPool) -> Library:
    """The library of all usable documents."""
    db = work.query(crew.workers, documents=str(work.folder / "documents.parquet"))
    config = work.config
    domains = db.execute("SELECT DISTINCT domain FROM documents WHERE usable ORDER BY 1").fetchall()
    drawn = [draw(db, domain, config) for (domain,) in domains]
    recipes = [recipe for _, own in drawn for recipe in own]
    support = [
        _first_supporters(db, mined.domain, one, config) for mined, own in drawn for one in own
    ]
    wanted: dict[int, list[tuple[int, Signature]]] = {}
    for number, documents in enumerate(support):
        for document in documents:
            wanted.setdefault(document, []).append((number, recipes[number].ordered))
    tables = _replayed(db, wanted, config, crew)
    domain_of = [mined.domain for mined, own in drawn for _ in own]
    entries = [
        attach_filters(
            recipe,
            domain_of[number],
            [tables[number, document] for document in support[number]],
            filters_of(config),
            config.library,
        )
        for number, recipe in enumerate(recipes)
    ]
    return Library(tuple(mined for mined, _ in drawn), tuple(entries))


def draw(db: Any, domain: str, config: CdrConfig) -> tuple[Mined, list[MinedRecipe]]:
    """Mine and compose the recipes of a domain."""
    usable = "FROM documents WHERE usable AND domain = ?"
    query = f"SELECT active, count(*) {usable} GROUP BY 1 ORDER BY min(number)"  # first occurrence
    counts = {names_of(mask): n for mask, n in db.execute(query, [domain]).fetchall()}
    mined = mine_counts(domain, counts, config.mining)
    long = f"AND bit_count(active::BIGINT) >= {config.compose.min_length} ORDER BY number"
    masks = db.execute(f"SELECT active {usable} {long}", [domain]).fetchnumpy()["active"]
    made = compose(domain, masks, counts, mined.recipes, config.compose, config.split.seed)
    return mined, [*mined.recipes, *made]


def _first_supporters(db: Any, domain: str, recipe: MinedRecipe, config: CdrConfig) -> list[int]:
    """Numbers of the first documents that support a recipe."""
    mask = mask_of(recipe.operators)
    query = (
        f"SELECT number FROM documents WHERE usable AND domain = ? AND active & {mask} = {mask} "
        f"ORDER BY number LIMIT {config.library.max_support_records}"
    )
    return [number for (number,) in db.execute(query, [domain]).fetchall()]


Support = tuple[int, str, int, int, list[tuple[int, Signature]]]  # document, its place, recipes


def _replayed(
    db: Any, wanted: dict[int, list[tuple[int, Signature]]], config: CdrConfig, crew: WorkerPool
) -> dict[tuple[int, int], Table]:
    """The support tables of recipes by recipe and document."""
    query = (
        "SELECT number, file, start, size FROM documents WHERE number IN (SELECT unnest(?)) "
        "ORDER BY number"
    )
    rows = db.execute(query, [list(wanted)]).fetchall()
    supports: list[Support] = [(*row, wanted[row[0]]) for row in rows]
    jobs = (
        (supports[first : first + SUPPORTS], filters_of(config))
        for first in range(0, len(supports), SUPPORTS)
    )
    found: dict[tuple[int, int], Table] = {}
    with Progress("library", "documents", len(supports)) as progress:
        for tables in crew.map(_replay, jobs):
            found |= tables
            progress.add(len({document for _, document in tables}))
    return found


def _replay(job: tuple[list[Support], tuple[str, ...]]) -> dict[tuple[int, int], Table]:
    supports, filters = job
    found: dict[tuple[int, int], Table] = {}
    for document, file, start, size, recipes in supports:
        text, replays = packed(file, start, size)["text"], Replays()
        for number, ordered in recipes:
            found[number, document] = support_table(text, ordered, filters, replays)
    return found


# --- the second map: what every recipe does to every document that supports it

FAILED, CHANGED, FAMILY = 1, 2, 4  # bits of a trace; FAMILY << i: texts of family i are all equal
TRACES = {"recipe": "int32", "number": "int64", "bits": "uint32", "stats": ["float64"]}
Place = tuple[str, int, int, int, str, int]  # file, start, size, number, domain, active mappers


def trace_shard(work: Work, shard: int, crew: WorkerPool) -> None:
    """Run every recipe on the documents of a shard."""
    db = work.query(documents=work.documents)
    rows = db.execute(
        "SELECT file, start, size, number, domain, active FROM documents "
        "WHERE usable AND shard = ? ORDER BY number",
        [shard],
    ).fetchall()
    sent = work.sent()
    jobs = ((sent, list(own)) for _, own in groupby(rows, lambda row: row[0]))
    work.map("traces", shard, crew, trace_part, jobs, TRACES, len(rows))


def trace_part(path: Path, job: tuple[Work, list[Place]]) -> int:
    """Write the traces of some documents. Recipes share prefixes, so what mappers and filters do
    to one document is remembered while its recipes run, and forgotten after it."""
    work, places = job
    entries: list[LibraryRecipe] = work.load("library").entries
    recipes = [(number, one, mask_of(one.recipe.operators)) for number, one in enumerate(entries)]
    rows: list[Row] = []
    for file, start, size, document, domain, active in places:
        text, replays = packed(file, start, size)["text"], Replays()
        rows += [
            (number, document, *trace(text, one, replays))
            for number, one, mask in recipes
            if one.domain == domain and active & mask == mask
        ]
    write_part(path, TRACES, rows)
    return len(places)


def trace(text: str, entry: LibraryRecipe, replays: Replays) -> tuple[int, list[float]]:
    """(bits, statistics at the recipe's points) of one recipe on one text."""
    try:
        states = replays.states(text, entry.recipe.ordered)
    except (ValueError, RecursionError):
        return FAILED, [nan] * len(entry.points)
    bits = CHANGED if states[-1] != text else 0
    for place, family in enumerate(entry.families):
        if text == states[family.slots["middle"].step] == states[-1]:
            bits |= FAMILY << place
    return bits, [replays.statistic(name, states[step]) for name, step in entry.points]
