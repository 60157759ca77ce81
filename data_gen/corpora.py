"""Document corpora: gzip or plain JSONL rows `{id, domain, source, licence, text}`, and their short
passages of whole sentences."""

from __future__ import annotations

import hashlib
import html
import re
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from random import Random
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


# --- passages

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"(<])")
_TAG = re.compile(r"<[^>\n]+>")
_ANSWER_TAG = re.compile(r"</?(?:status|clean_text|input)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Passage:
    """Consecutive sentences of one paragraph; `markup` is the same text with its inline tags."""

    document: Document
    sentences: tuple[str, ...]
    markup: str

    @property
    def text(self) -> str:
        return " ".join(self.sentences)


def plain(text: str) -> str:
    """The text without inline tags, entities decoded once, spaces single."""
    return re.sub(r"\s+", " ", html.unescape(_TAG.sub("", text))).strip()


_LETTERS = re.compile(r"[^\W_]+")  # the characters for which str.isalnum holds
_NO_LETTERS = bytes(code for code in range(128) if not chr(code).isalnum())


@lru_cache(maxsize=1 << 16)  # the same sentences are asked about by every pool and certificate
def canonical_hash(text: str) -> str:
    """Same hash for texts that differ only in case, space, markup or punctuation."""
    said = html.unescape(_TAG.sub("", text)).lower()
    if said.isascii():  # the same by bytes, ten times as fast
        letters = said.encode().translate(None, _NO_LETTERS)
    else:
        letters = "".join(_LETTERS.findall(said)).encode("utf-8", "surrogatepass")
    return hashlib.sha256(letters).hexdigest()[:24]


def cut_passages(document: Document, max_chars: int, max_sentences: int = 3) -> list[Passage]:
    """Every run of one to `max_sentences` sentences of a paragraph of at most `max_chars`."""
    found: list[Passage] = []
    for paragraph in document.text.split("\n\n"):
        if _ANSWER_TAG.search(paragraph):
            continue
        marked = [s.strip() for s in _SENTENCE_END.split(paragraph) if s.strip()]
        clean = [plain(s) for s in marked]
        for first in range(len(marked)):
            for last in range(first + 1, min(first + max_sentences, len(marked)) + 1):
                sentences = tuple(clean[first:last])
                if len(" ".join(sentences)) > max_chars or not _is_sentence(sentences[-1]):
                    break
                found.append(Passage(document, sentences, " ".join(marked[first:last])))
    return found


def _is_sentence(text: str) -> bool:
    return len(text) >= 12 and text[-1] in ".!?:" and text[0].isupper() and " " in text


class PassagePool:
    """Passages to draw from by length, each sentence once until the pool runs dry.

    `banned` are canonical hashes of sentences that must not be drawn at all (they occur on the
    other side of the split). Drawing is deterministic in the order of calls and the Random given.
    """

    def __init__(self, passages: Iterable[Passage], banned: frozenset[str] = frozenset()) -> None:
        rows: list[tuple[int, str, Passage, tuple[str, ...]]] = []
        for passage in passages:
            keys = tuple(canonical_hash(s) for s in passage.sentences)
            if banned.isdisjoint(keys) and len(set(keys)) == len(keys):
                rows.append((len(passage.text), passage.text, passage, keys))
        rows.sort(key=lambda row: (row[0], row[1], row[2].document.id))
        self._sizes = [row[0] for row in rows]
        self._rows = [(row[2], row[3]) for row in rows]
        self._used: set[str] = set()

    def __len__(self) -> int:
        return len(self._rows)

    def draw(self, rng: Random, low: int, high: int, markup: bool = False) -> Passage | None:
        """A passage of `low` to `high` characters (with inline tags if `markup`), unused ones
        first; None when the pool has none of that size."""
        first, last = bisect_left(self._sizes, low), bisect_right(self._sizes, high)
        if first >= last:
            return None
        for fresh in (True, False):
            for _ in range(60):
                passage, keys = self._rows[first + int(rng.random() * (last - first))]
                if markup and passage.markup == passage.text:
                    continue
                if not fresh or self._used.isdisjoint(keys):
                    return passage
        return None

    def mark_used(self, passage: Passage) -> None:
        self._used.update(canonical_hash(s) for s in passage.sentences)
