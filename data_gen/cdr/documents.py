"""From raw corpora to what is known of every document, the first map.

Whatever `data_gen.readers` reads are rows. One needs a text (`text`, `content` or `raw_content`);
`id`, `domain`, `source`, `source_name`, `url`, `language` and `licence` (or `license`) are kept.
Without a domain a row takes its file's: from the name (web, latex, rag, privacy), else from the
ending (.html, .tex), else it is ranked by what its text activates.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from itertools import islice
from math import nan
from pathlib import Path
from typing import Any, cast

from assay.files import yaml_beside
from assay.task import TaskError
from assay.workers import WorkerPool
from configs.cdr import CdrConfig, FieldsConfig
from data_gen.cdr.work import Work, packed, quoted, raw, read, said, write_packed, write_part
from data_gen.readers import (
    LOST,
    TEXT_ENDINGS,
    CorpusError,
    Piece,
    Source,
    find_sources,
    raw_rows,
    rows_before,
)
from rewards.cdr.release_files import stable_id
from rewards.gold import RECIPE_PARAMS, BoundStep, GoldError, Profile, Step, bind

# --- the four domains: their operators in execution order, and which one a record is of

_TABLES: dict[str, Any] = yaml_beside(__file__, "domains.yaml")
INTERNAL: Mapping[str, str] = _TABLES["internal"]
LABELS = {internal: label for label, internal in INTERNAL.items()}
MAPPERS: dict[str, Sequence[str]] = _TABLES["mappers"]  # in execution order
ALL_MAPPERS = tuple(sorted({name for names in MAPPERS.values() for name in names}))
FILTERS: tuple[str, ...] = tuple(_TABLES["filters"])
LISTED_FILTERS: Sequence[str] = _TABLES["listed_filters"]  # their lists are not public
NOT_IN_PAPER: Sequence[str] = _TABLES["not_in_paper"]
# The paper's 29 operators: 22 mappers and 7 filters (Table 4).
PAPER = frozenset({*ALL_MAPPERS, *FILTERS} - {*NOT_IN_PAPER, *LISTED_FILTERS})


def chosen_operators(only: Sequence[str]) -> frozenset[str]:
    """The operators that the setting `operators.only` names: `paper` stands for the paper's 29,
    nothing for all. Raises `TaskError` for a name that no task can be made of."""
    known = frozenset({*ALL_MAPPERS, *FILTERS} - {*LISTED_FILTERS})
    if not only:
        return known
    for name in only:
        if name != "paper" and name not in known:
            raise TaskError(
                f"operators.only names {name!r}; give `paper`, or operators such as "
                f"{', '.join(sorted(known)[:3])} (rewards/gold/operators.yaml)"
            )
    named = frozenset(name for name in only if name != "paper")
    return named | PAPER if "paper" in only else named


def internal_name(domain: str) -> str:
    """The benchmark's name of a domain given by either name; other names stay as they are."""
    return INTERNAL.get(domain, domain)


def label(domain: str) -> str:
    """The corpus's name of a domain given by either name."""
    return LABELS.get(domain, domain)


def execution_order(domain: str, operators: Iterable[str]) -> tuple[str, ...]:
    """The domain's own mappers in configured order, then foreign ones alphabetically."""
    chosen = set(operators)
    own = [name for name in MAPPERS.get(internal_name(domain), ()) if name in chosen]
    return (*own, *sorted(chosen.difference(own)))


def rank_domains(active: Collection[str], source: str) -> list[str]:
    """Internal domain names, best first, for a record's active mappers (spec section 5).

    Compared in this order, more is better: active mappers of the domain, those of that domain
    only, being the source domain; then the order of the domains.
    """
    owners = {op: sum(op in MAPPERS[d] for d in MAPPERS) for op in ALL_MAPPERS}

    def score(domain: str) -> tuple[int, ...]:
        own = [op for op in MAPPERS[domain] if op in active]
        return -len(own), -sum(owners[op] == 1 for op in own), -(domain == source)

    return sorted(MAPPERS, key=score)


def assign_domain(active: Collection[str], source: str) -> str | None:
    """The best domain with at least one active mapper, or None."""
    best = rank_domains(active, internal_name(source))[0]
    return best if any(op in active for op in MAPPERS[best]) else None


# --- rows of the corpora

Row = dict[str, Any]
TEXT_FIELDS = ("text", "content", "raw_content")
KEPT = ("id", "domain", "source", "source_name", "url", "language")
PLAIN = FieldsConfig()
_LOST = "a character that was lost when the text was decoded"


@dataclass(frozen=True)
class Left:
    """A document that is not used. `kind` is the reason without its details, to be counted;
    `name` says where it stands in a corpus, without the place of the corpus."""

    name: str
    why: str
    kind: str
    group: str  # the class of documents, or the file, that it belongs to
    licence: str = "unknown"

    def __str__(self) -> str:
        return f"{self.name}: {self.why}; left out"


@dataclass(frozen=True)
class Found:
    """One row of a corpus, or what stands there instead: `row` is None and `why` says it.

    `unit` and `number` say where in its piece: `row` 3, or `line` 3 of what is no JSON.
    """

    piece: Piece
    unit: str
    number: int
    row: Row | None
    why: str = ""

    @property
    def where(self) -> str:
        """Its place in the corpus, the same wherever the corpus lies and however it is cut."""
        number = self.number + rows_before(self.piece)
        return f"{self.piece.source.name} {self.unit} {number}"

    def left(self, why: str = "", kind: str = "") -> Left:
        """As a document that is not used."""
        why = why or self.why
        return Left(self.where, why, kind or why.partition(" (")[0], self.piece.source.name)


def sources_of(corpora: Sequence[str | Path]) -> list[Source]:
    """The files of corpora in reading order: of each corpus those named after a domain first, in
    domain order. Raises `CorpusError` when one is missing."""
    order = {name: i for i, name in enumerate(INTERNAL)}
    return [
        source
        for corpus in corpora
        for source in sorted(
            find_sources(str(corpus)),
            key=lambda one: (order.get(_stem(one), len(order)), one.place),
        )
    ]


def found_in(
    pieces: Sequence[Piece], fields: FieldsConfig = PLAIN, encoding: str = ""
) -> Iterator[Found]:
    """Every row of the pieces, in order, with an id; `encoding`: of what is no UTF-8."""
    for piece in pieces:
        torn: list[Found] = []

        def note(number: int, why: str, torn: list[Found] = torn, piece: Piece = piece) -> None:
            torn.append(Found(piece, "line", number, None, why))

        for number, given in raw_rows(piece, note, encoding):
            yield from torn
            torn.clear()
            row = _normal(given, piece.source, fields)
            if row is None:
                names = fields.text or " or ".join(TEXT_FIELDS)
                yield Found(piece, "row", number, None, f"no text in {names}")
            elif (at := row["text"].find(LOST)) >= 0:
                yield Found(piece, "row", number, None, f"{_LOST} (U+FFFD at character {at})")
            else:
                names = (row[name] for name in ("id", "source_name", "url") if name in row)
                name = next(names, None) or stable_id(row["text"], digits=20)
                yield Found(piece, "row", number, row | {"id": name})
        yield from torn


def labels_of(sources: Sequence[Source]) -> dict[str, str]:
    """A name for every file by its place, no two alike, the same wherever the corpora lie."""
    count: Counter[str] = Counter()
    found: dict[str, str] = {}
    for source in sources:
        count[source.name] += 1
        number = count[source.name]
        found[source.place] = source.name if number < 2 else f"{source.name} {number}"
    return found


def _stem(source: Source) -> str:
    stem = source.path.name.split(".")[0].lower()
    return LABELS.get(stem, stem)


def _field(row: Row, name: str) -> Any:
    """A field by its name, or by a path such as `meta.url`."""
    value: Any = row.get(name)
    if value is None and "." in name:
        value = row
        for part in name.split("."):
            value = cast("Row", value).get(part) if isinstance(value, dict) else None
    return value


def _normal(raw: Any, source: Source, fields: FieldsConfig) -> Row | None:
    given: Row = cast("Row", raw) if isinstance(raw, dict) else {}
    texts = (_field(given, name) for name in ((fields.text,) if fields.text else TEXT_FIELDS))
    text = next((value for value in texts if isinstance(value, str)), None)
    if not text or not text.strip():
        return None
    row: Row = {"text": text}
    for name in KEPT:
        value = _field(given, getattr(fields, name) or name)
        if value not in (None, ""):
            row[name] = str(value)
    licence = _field(given, fields.licence or "licence") or given.get("license")
    row["licence"] = str(licence or "unknown")
    if "domain" not in row:
        places = (_stem(source), source.path.parent.name.lower())
        named = [place for place in places if internal_name(place) in LABELS]
        guess = label(named[0]) if named else TEXT_ENDINGS.get(source.path.suffix, "")
        if guess:
            row["domain"] = guess
    return row


def record_of(row: Row, active: list[str], domains: str) -> Record:
    domain = internal_name(str(row.get("domain", "")))
    if domains == "ranked" or domain not in LABELS:
        domain = assign_domain(active, domain) or (domain if domain in LABELS else "knowledge_base")
    return Record(
        id=str(row["id"]),
        domain=domain,
        text=row["text"],
        active=frozenset(active),
        source_name=row.get("source_name"),
        url=row.get("url"),
        language=row.get("language"),
        source=str(row.get("source", "unknown")),
        licence=str(row.get("licence", "unknown")),
        label=label(domain),
    )


@dataclass(frozen=True)
class Record:
    """One document. `domain` is the internal name; `active` the mappers that change its text."""

    id: str
    domain: str
    text: str
    active: frozenset[str] = frozenset()
    source_name: str | None = None
    url: str | None = None
    language: str | None = None
    source: str = "unknown"
    licence: str = "unknown"
    label: str = ""  # the domain as the corpus names it
    chars: int | None = None  # how long the text is, where it is not at hand

    @property
    def length(self) -> int:
        """Characters of the text."""
        return len(self.text) if self.chars is None else self.chars


def is_english(record: Record) -> bool:
    """By the record's language if it states one, else by its letters (spec section 8)."""
    if record.language:
        return record.language.lower().startswith("en")
    text = record.text
    cjk = sum("\u4e00" <= c <= "\u9fff" or "\u3040" <= c <= "\u30ff" for c in text)
    latin = sum(c.isascii() and c.isalpha() for c in text)
    letters = sum(c.isalpha() for c in text)
    few = cjk < 3 and cjk <= 0.005 * max(len(text), 1)
    return few and latin >= 20 and latin >= 0.8 * letters


# --- what is kept of each document

# Without the two filters that count words of a list: their lists are not public.
CALIBRATED_FILTERS = tuple(name for name in FILTERS if name not in LISTED_FILTERS)
BITS = {name: 1 << place for place, name in enumerate(ALL_MAPPERS)}
USED, LONG, UNLICENSED, TWICE, TORN = range(5)  # state of a row; TORN: it holds no document

# Of a row of the corpora: where it is packed; its id and what is hashed behind it; `active`:
# mappers that change the text in the support scan, `changes`: in the profile gold is made with;
# `english`: order pairs may be made from it; `source`: the class of documents; `piece` and `row`:
# where it was read; `why`: what stands there instead of a document; statistics of the text itself,
# NaN where a filter fails or the document has too few active mappers.
COLUMNS = {
    **{"start": "int64", "size": "int64", "state": "int8", "id": "binary", "rest": "binary"},
    **{"chars": "int64", "domain": "string", "active": "uint32", "changes": "uint32"},
    **{"english": "bool_", "source": "binary", "licence": "binary", "piece": "int32"},
    **{"row": "int64", "why": "string", **dict.fromkeys(CALIBRATED_FILTERS, "float64")},
}
Read = tuple[dict[str, Any], int, int, int, str]  # row, state, piece, number, why


def mappers_of(config: CdrConfig) -> tuple[str, ...]:
    """The mappers that tasks are made of, alphabetically."""
    chosen = chosen_operators(config.operators.only)
    return tuple(name for name in ALL_MAPPERS if name in chosen)


def filters_of(config: CdrConfig) -> tuple[str, ...]:
    """The filters that tasks are made of."""
    chosen = chosen_operators(config.operators.only)
    return tuple(name for name in CALIBRATED_FILTERS if name in chosen)


def mask_of(names: Iterable[str]) -> int:
    """A set of mappers as bits."""
    return sum(BITS[name] for name in set(names))


def names_of(mask: int) -> tuple[str, ...]:
    """The mappers of a mask, alphabetically."""
    return tuple(name for name, bit in BITS.items() if mask & bit)


def scan_shard(work: Work, shard: int, crew: WorkerPool) -> None:
    """Write the facts of a shard."""
    pieces = work.pieces(shard)
    places = {id(piece): number for number, piece in enumerate(pieces)}
    config = work.config
    found = found_in(pieces, config.fields, config.encoding)
    rows = (_read(one, places[id(one.piece)], config) for one in found)
    parts = iter(lambda: list(islice(rows, work.part)), [])
    work.map("facts", shard, crew, scan_part, ((config, part) for part in parts), COLUMNS)


def _read(found: Found, piece: int, config: CdrConfig) -> Read:
    """The row and its state; of what is not used the text's length stays, not the text."""
    row = found.row
    if row is None:
        return {}, TORN, piece, found.number, json.dumps(asdict(found.left()))
    length = len(row["text"])
    licence, patterns = row["licence"].lower(), map(str.lower, config.licences)
    licensed = not config.licences or any(fnmatchcase(licence, one) for one in patterns)
    state = USED if licensed else UNLICENSED
    if state == USED and length > config.instances.max_text_length:
        state = LONG
    if state != USED:
        row = {name: value for name, value in row.items() if name != "text"} | {"chars": length}
    return row, state, piece, found.number, ""


def scan_part(path: Path, job: tuple[CdrConfig, list[Read]]) -> int:
    """Write what is known of some rows."""
    config, rows = job
    places = write_packed(path, [row for row, *_ in rows])
    facts = [(*place, *_facts(*one, config)) for place, one in zip(places, rows, strict=True)]
    return write_part(path, COLUMNS, facts)


def _facts(
    row: dict[str, Any], state: int, piece: int, number: int, why: str, config: CdrConfig
) -> tuple[Any, ...]:
    if state == TORN:
        empty = (b"", b"", 0, "", 0, 0, False, b"", b"")
        return state, *empty, piece, number, why, *[nan] * len(CALIBRATED_FILTERS)
    text = row.get("text", "")
    mappers = mappers_of(config)
    active = active_mappers(text, config.scan_profile, mappers) if state == USED else []
    record = record_of(row | {"text": text}, active, config.domains)
    domain = record.label if state == USED else row.get("domain")
    enough = state == USED and len(active) >= config.instances.min_active
    mask = mask_of(active)
    return (
        state,
        raw(record.id),
        raw(f"||{record.source_name}||{record.url}"),
        row.get("chars", len(text)),
        record.domain,
        mask,
        mask if config.scan_profile == "bench" else _changes(record),
        config.swaps.language != "en" or is_english(record),
        raw(f"{domain or 'no domain'} / {row.get('source') or 'unknown'}"),
        raw(record.licence),
        piece,
        number,
        why,
        *(statistic(name, text) if enough else nan for name in CALIBRATED_FILTERS),
    )


def _changes(record: Record) -> int:
    """Of the active mappers those that change the text in the profile of gold."""
    return mask_of(active_mappers(record.text, "bench", record.active))


# --- what operators do to a text


@cache
def bound_mapper(name: str, profile: Profile = "bench") -> BoundStep:
    return bind(Step(name, dict(RECIPE_PARAMS.get(name, {}))), profile)


@cache
def bound_filter(name: str) -> BoundStep:
    return bind(Step(name))


def active_mappers(
    text: str, profile: Profile = "bench", names: Iterable[str] = ALL_MAPPERS
) -> list[str]:
    """Those of the mappers (26) whose output differs from the text, in their order.

    A mapper that fails on the text counts as not active.
    """
    found: list[str] = []
    for name in names:
        step = bound_mapper(name, profile)
        try:
            changed = step.call(text, **step.params) != text
        except (GoldError, ValueError, RecursionError):
            continue
        if changed:
            found.append(name)
    return found


def mapped(mapper: str, text: str) -> str:
    """The mapper's output. Raises what the mapper raises."""
    step = bound_mapper(mapper)
    return step.call(text, **step.params)


def statistic(name: str, text: str) -> float:
    """The filter's statistic, NaN where it fails on the text."""
    step = bound_filter(name)
    try:
        return step.call(text, **step.params)
    except (ValueError, RecursionError):
        return nan


class Replays:
    """Mapper outputs and filter statistics of the texts of one document, remembered.

    Recipes of one domain share prefixes and records, so most of what a recipe asks for has been
    computed for another one already.
    """

    def __init__(self) -> None:
        self.apply = lru_cache(60_000)(mapped)
        self.statistic = lru_cache(240_000)(statistic)

    def states(self, text: str, mappers: Iterable[str]) -> list[str]:
        """S0 (the text) and the text after each mapper. Raises what a mapper raises."""
        states = [text]
        for name in mappers:
            states.append(self.apply(name, states[-1]))
        return states


# --- all documents by number, when every shard was read


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
