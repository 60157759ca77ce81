"""Raw corpora for CDR tasks: whatever `data_gen.readers` reads, as rows with a text.

A row needs a text (`text`, `content` or `raw_content`); `id`, `domain`, `source`, `source_name`,
`url`, `language` and `licence` (or `license`) are kept. Without a domain a row takes its file's:
from the name (web, latex, rag, privacy), else from the ending (.html, .tex), else it is ranked by
what its text activates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from configs.cdr import FieldsConfig
from data_gen.cdr.domains import INTERNAL, LABELS, assign_domain, internal_name, label
from data_gen.readers import (
    LOST,
    TEXT_ENDINGS,
    Piece,
    Source,
    find_sources,
    raw_rows,
    rows_before,
)
from rewards.cdr.release_files import stable_id

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

        for number, raw in raw_rows(piece, note, encoding):
            yield from torn
            torn.clear()
            row = _normal(raw, piece.source, fields)
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
