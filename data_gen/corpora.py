"""Reading document corpora: gzip or plain JSONL rows `{id, domain, source, licence, text}`."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from assay.rows import unpacked
from data_gen.readers import LOST
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
    """Read a corpus (default: the one that ships). Bad rows go to `problems`, others are read.

    Raises `CorpusError` when the file is missing, is not text, or holds no usable row.
    """
    file = Path(path) if path else SHIPPED
    problems: list[str] = []
    digest = hashlib.sha256()
    documents = tuple(iter_documents(file, problems.append, digest.update))
    if not documents:
        first = f"; first problem: {problems[0]}" if problems else ""
        raise CorpusError(f"{file}: no usable document{first}")
    return Corpus(documents, tuple(problems), digest.hexdigest())


def iter_documents(
    path: str | Path,
    problem: Callable[[str], object],
    seen: Callable[[bytes], object] | None = None,
) -> Iterator[Document]:
    """The documents of a JSON lines file (plain, .gz or .zst) one after the other. Of the texts one
    is held at a time.

    `problem` is told a sentence for each row that is left out, `seen` the bytes of the file as
    they are without compression. Raises `CorpusError` when the file cannot be read to its end.
    """
    file = Path(path)
    try:
        with open(file, "rb") as packed, unpacked(packed) as lines:
            yield from _rows(_told(lines, seen), file, problem)
    except FileNotFoundError:
        raise CorpusError(f"{file}: no such file; give a JSONL corpus") from None
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise CorpusError(f"{file}: cannot be read as (gzip) UTF-8 JSONL: {error}") from None


def _told(lines: Iterable[bytes], seen: Callable[[bytes], object] | None) -> Iterator[bytes]:
    for line in lines:
        if seen is not None:
            seen(line)
        yield line


def _rows(
    lines: Iterable[bytes], file: Path, problem: Callable[[str], object]
) -> Iterator[Document]:
    seen: set[str] = set()
    for number, line in enumerate(lines, 1):
        text = line.decode("utf-8")
        if not text.strip():
            continue
        where = f"{file} line {number}"
        try:
            row: Any = json.loads(text)
        except (ValueError, RecursionError) as error:
            problem(f"{where}: not valid JSON ({error}); row left out")
            continue
        document = _document(row, number)
        if document is None:
            problem(f"{where}: field 'text' is missing or empty; row left out")
        elif LOST in document.text:
            problem(f"{where}: a character was lost when the text was decoded; row left out")
        elif document.id in seen:
            problem(f"{where}: id {document.id!r} occurs twice; row left out")
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
