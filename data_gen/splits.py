"""Splits by document, and the certificate that says they hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any

from data_gen.corpora import Document
from data_gen.demo.passages import canonical_hash, cut_passages
from rewards.seeds import derive_seed
from rewards.task import Task
from rewards.versions import installed


def split_documents(
    documents: Sequence[Document], heldout_share: float, seed: int
) -> tuple[list[Document], list[Document]]:
    """(training, held-out) documents; held-out gets its share of every domain.

    A document goes by the rank of a hash of its id, so adding documents moves few others.
    """
    train: list[Document] = []
    heldout: list[Document] = []
    for domain in sorted({d.domain for d in documents}):
        ranked = sorted(
            (d for d in documents if d.domain == domain),
            key=lambda d: derive_seed(seed, "split", d.id),
        )
        cut = round(len(ranked) * heldout_share)
        heldout += ranked[:cut]
        train += ranked[cut:]
    return sorted(train, key=lambda d: d.id), sorted(heldout, key=lambda d: d.id)


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


def certificate(splits: Mapping[str, Sequence[Task]]) -> dict[str, Any]:
    """Counts and overlaps of every split with the held-out one; `ok` when all overlaps are 0.

    Three levels: documents, sentences of the passages, and whole inputs, the last two by
    canonical hash (letters and digits only, so that cleaning does not hide a copy).
    """
    sets = {name: _fingerprints(tasks) for name, tasks in splits.items()}
    overlaps = {
        f"{name} and heldout": {level: len(sets[name][level] & values) for level, values in held}
        for name in splits
        if name != "heldout"
        for held in (tuple(sets["heldout"].items()),)
    }
    return {
        "ok": all(n == 0 for levels in overlaps.values() for n in levels.values()),
        "overlaps": overlaps,
        "distinct": {name: {k: len(v) for k, v in levels.items()} for name, levels in sets.items()},
        "tasks": {name: len(tasks) for name, tasks in splits.items()},
        "versions": installed(),
    }


def _fingerprints(tasks: Sequence[Task]) -> dict[str, set[str]]:
    return {
        "documents": {str(t.meta["document"]) for t in tasks},
        "sentences": {key for t in tasks for key in t.meta["sentences"]},
        "inputs": {canonical_hash(str(t.gold["input_text"])) for t in tasks},
    }
