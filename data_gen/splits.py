"""Splits by document, and what a user says must be held out."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from random import Random

from assay.console import Parser
from assay.seeds import derive_seed
from assay.task import Task
from data_gen.certificate import shared
from data_gen.corpora import CorpusError, Document
from data_gen.demo.passages import canonical_hash, cut_passages


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
    train: list[Document] = []
    heldout: list[Document] = []
    for domain in sorted({d.domain for d in documents}):
        ranked = sorted(
            (d for d in documents if d.domain == domain),
            key=lambda d: (d.id not in listed, derive_seed(seed, key, d.id)),
        )
        must = sum(d.id in listed for d in ranked)
        cut = max(must, round(len(ranked) * heldout_share))
        heldout += ranked[:cut]
        train += ranked[cut:]
    return sorted(train, key=lambda d: d.id), sorted(heldout, key=lambda d: d.id)


def add_splits(to: Parser, what: str, share: str, validation: str) -> None:
    """The options by which a user says what is held out; `share` and `validation` say defaults."""
    to.add_argument(
        "--heldout-share", type=share_of, metavar="SHARE", help=f"of the {what} ({share})"
    )
    to.add_argument(
        "--heldout",
        metavar="LIST",
        help=f"file of ids of {what} that must be held out, one a line",
    )
    to.add_argument(
        "--validation-share",
        type=share_of,
        metavar="SHARE",
        help=f"of the {what} that are left, to choose settings on ({validation})",
    )


def share_of(text: str) -> float:
    """A share as a command line gives it. Raises `ArgumentTypeError` in one sentence."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise ArgumentTypeError(f"{text}: wanted a share from 0 to below 1, such as 0.2")
    return value


def read_list(path: str | None) -> frozenset[str]:
    """The names of a file, one a line; what follows `#` after a space, or a whole line of it, is a
    comment. Raises `CorpusError` for a file that cannot be read or names nothing."""
    if not path:
        return frozenset()
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CorpusError(
            f"--heldout {path}: cannot be read ({error}); give one id a line"
        ) from None
    said = (re.split(r"(?:^|\s)#", line)[0].strip() for line in text.splitlines())
    names = frozenset(name for name in said if name)
    if not names:
        raise CorpusError(f"--heldout {path}: no id in it; give one a line")
    return names


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
