"""Reading document corpora: gzip or plain JSONL rows `{id, domain, source, licence, text}`."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from rewards.task import TaskError

SHIPPED = Path(__file__).parent / "corpus" / "documents.jsonl.gz"


class CorpusError(TaskError):
    """A corpus that cannot be used at all; the message names the file and what to do."""


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
    """Read a corpus (default: the one that ships). Bad rows go to `problems`, others are read.

    Raises `CorpusError` when the file is missing, is not text, or holds no usable row.
    """
    file = Path(path) if path else SHIPPED
    try:
        data = file.read_bytes()
        raw = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        lines = raw.decode("utf-8").split("\n")
    except FileNotFoundError:
        raise CorpusError(f"{file}: no such file; give a JSONL corpus") from None
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise CorpusError(f"{file}: cannot be read as (gzip) UTF-8 JSONL: {error}") from None
    problems: list[str] = []
    documents = list(_rows(lines, file, problems))
    if not documents:
        first = f"; first problem: {problems[0]}" if problems else ""
        raise CorpusError(f"{file}: no usable document{first}")
    return Corpus(tuple(documents), tuple(problems), hashlib.sha256(raw).hexdigest())


def _rows(lines: list[str], file: Path, problems: list[str]) -> Iterator[Document]:
    seen: set[str] = set()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{file} line {number}"
        try:
            row: Any = json.loads(line)
        except (ValueError, RecursionError) as error:
            problems.append(f"{where}: not valid JSON ({error}); row left out")
            continue
        document = _document(row, number)
        if document is None:
            problems.append(f"{where}: field 'text' is missing or empty; row left out")
        elif document.id in seen:
            problems.append(f"{where}: id {document.id!r} occurs twice; row left out")
        else:
            seen.add(document.id)
            yield document


def _document(row: Any, number: int) -> Document | None:
    fields = cast("dict[str, Any]", row) if isinstance(row, dict) else {}
    text = fields.get("text")
    if not isinstance(text, str) or not text.strip():
        return None

    def field(name: str, default: str) -> str:
        return str(fields.get(name) or default)

    return Document(
        id=field("id", f"row-{number}"),
        domain=field("domain", "unknown"),
        source=field("source", "unknown"),
        licence=field("licence", "unknown"),
        text=text,
    )
