"""Document corpora: gzip or plain JSONL rows `{id, domain, source, licence, text}`, and their short
passages of whole sentences."""

from __future__ import annotations

import hashlib
import html
import re
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, cast

from assay.fingerprints import TAG, canonical_hash
from assay.rows import unpacked
from assay.task import Task, derive_seed
from data_gen.certificate import shared
from data_gen.readers import LOST, Piece, Source, raw_rows
from data_gen.readers import CorpusError as CorpusError
from data_gen.splits import taken

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
    return re.sub(r"\s+", " ", html.unescape(TAG.sub("", text))).strip()


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


# --- which documents are held out, and what splits of their passages share


def split_documents(
    documents: Sequence[Document],
    heldout_share: float,
    seed: int,
    listed: Collection[str] = (),
    key: str = "split",
) -> tuple[list[Document], list[Document]]:
    """(training, held-out) documents; held-out gets its share of every domain, and those whose
    ids are listed first. Raises `CorpusError` for a listed id that no document has.

    A document goes by the rank of a hash of its id, so adding documents moves few others.
    """
    if gone := sorted(set(listed) - {d.id for d in documents}):
        raise CorpusError(
            f"--heldout: no document has the id {gone[0]!r} ({len(gone)} are unknown)"
        )
    heldout: set[str] = set()
    for domain in {d.domain for d in documents}:
        names = [d.id for d in documents if d.domain == domain]
        heldout |= {*taken(names, heldout_share, lambda name: derive_seed(seed, key, name), listed)}
    ordered = sorted(documents, key=lambda d: d.id)
    return [d for d in ordered if d.id not in heldout], [d for d in ordered if d.id in heldout]


def sentence_keys(documents: Iterable[Document]) -> frozenset[str]:
    """Canonical hashes of every sentence of some documents."""
    return frozenset(
        canonical_hash(sentence)
        for document in documents
        for passage in cut_passages(document, 10_000, 1)
        for sentence in passage.sentences
    )


def shuffled(tasks: list[Task], seed: int) -> list[Task]:
    """A copy in an order that depends on the seed alone."""
    rng = Random(seed)
    return sorted(tasks, key=lambda _: rng.random())


def shared_passages(splits: Mapping[str, Sequence[Task]]) -> dict[str, dict[str, int]]:
    """What every two splits share of documents, sentences of passages, and whole inputs, the last
    two by canonical hash (letters and digits only, so that cleaning does not hide a copy)."""
    return shared({name: _prints(tasks) for name, tasks in splits.items()})


def _prints(tasks: Sequence[Task]) -> dict[str, set[str]]:
    return {
        "documents": {str(t.meta["document"]) for t in tasks},
        "sentences": {key for t in tasks for key in t.meta["sentences"]},
        "inputs": {canonical_hash(str(t.gold["input_text"])) for t in tasks},
    }
