"""Reading document corpora: gzip or plain JSONL rows `{id, domain, source, licence, text}`."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from assay.rows import unpacked
from data_gen.readers import LOST, Piece, Source, raw_rows
from data_gen.readers import CorpusError as CorpusError

SHIPPED = Path(__file__).parent / "corpus" / "documents.jsonl.gz"


@dataclass(frozen=True)
class Document:
    """One source document; held-out splits never share one."""

    id: str
    domain: str
    source: str
    licence: str
    text: str


@dataclass(frozen=True)
class Corpus:
    """Documents in file order, and one sentence for each row that could not be read."""

    documents: tuple[Document, ...]
    problems: tuple[str, ...] = ()
    sha256: str = ""


def read_corpus(path: str | Path | None = None) -> Corpus:
    """Read a corpus, a JSON lines file, also compressed (default: the one that ships). Bad rows go
    to `problems`, others are read; `sha256` is of its bytes without compression.

    Raises `CorpusError` when the file is missing, cannot be read, or holds no usable row.
    """
    file = Path(path) if path else SHIPPED
    if not file.is_file():
        raise CorpusError(f"{file}: no such file; give a JSONL corpus")
    problems: list[str] = []
    documents: dict[str, Document] = {}

    def torn(number: int, why: str) -> None:
        problems.append(f"{file} line {number}: {why}; row left out")

    whole = Piece(Source(str(file), file.name, file.name, file.stat().st_size), 0, sys.maxsize)
    for number, row in raw_rows(whole, torn):
        fields = cast("dict[str, Any]", row) if isinstance(row, dict) else {}
        text, name = fields.get("text"), str(fields.get("id") or f"row-{number}")
        if not isinstance(text, str) or not text.strip():
            torn(number, "field 'text' is missing or empty")
        elif LOST in text:
            torn(number, "a character was lost when the text was decoded")
        elif name in documents:
            torn(number, f"id {name!r} occurs twice")
        else:
            domain, source, licence = (
                str(fields.get(key) or "unknown") for key in ("domain", "source", "licence")
            )
            documents[name] = Document(name, domain, source, licence, text)
    if not documents:
        first = f"; first problem: {problems[0]}" if problems else ""
        raise CorpusError(f"{file}: no usable document{first}")
    digest = hashlib.sha256()
    with open(file, "rb") as packed, unpacked(packed) as lines:
        for line in lines:
            digest.update(line)
    return Corpus(tuple(documents.values()), tuple(problems), digest.hexdigest())
