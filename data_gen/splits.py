"""Splits by document, and what a user says must be held out."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from assay.console import Parser
from assay.family import Family, source_of
from assay.seeds import derive_seed
from assay.task import Task, TaskError
from data_gen.certificate import shared
from data_gen.corpora import CorpusError, Document, canonical_hash, cut_passages

TRAIN = "train"
SPLITS = (TRAIN, "validation", "heldout")
HELDOUT = 0.2  # share that is held out by default
VALIDATION = 0.1  # and that validates, from `ENOUGH` sources on
ENOUGH = 10


def taken(
    names: Iterable[str],
    share: float,
    rank: Callable[[str], Any],
    listed: Collection[str] = (),
    *,
    of: int = 0,
    least: int = 0,
    spare: int = 0,
) -> list[str]:
    """The names that go to a side: the first by `rank` (a hash, so that more names move few), as
    many as a share of them, or of the number `of`, and those `listed` in any case. At least `least`
    where a share is asked for; at least `spare` stay."""
    ranked = sorted(set(names), key=lambda name: (name not in listed, rank(name), name))
    must = sum(name in listed for name in ranked)
    wanted = max(round(share * (of or len(ranked))), least if share > 0 else 0)
    return ranked[: max(must, min(wanted, len(ranked) - spare))]


def sides_of(
    names: Iterable[str],
    heldout: float | None,
    validation: float | None,
    rank: Callable[[str], Any],
    listed: Collection[str] = (),
) -> dict[str, str]:
    """Name → its split: a share of the names (None: `HELDOUT`), and those listed, is held out; a
    share of what is left validates (None: `VALIDATION` from `ENOUGH` names on). A share above 0
    takes at least one name as long as one is left to train on."""
    every = set(names)
    heldout = HELDOUT if heldout is None else heldout
    if validation is None:
        validation = VALIDATION if len(every) >= ENOUGH else 0.0
    held = taken(every, heldout, rank, listed, least=1, spare=1)
    rest = every - {*held}
    chosen = taken(rest, validation, rank, least=1, spare=1)
    side = dict.fromkeys(rest, TRAIN) | dict.fromkeys(held, "heldout")
    return side | dict.fromkeys(chosen, "validation")


def wanted_of(count: int, side: Mapping[str, str]) -> dict[str, int]:
    """How many of `count` tasks each split gets: as large a share as it has of the sources."""
    sizes = Counter(side.values())
    away = {n: round(count * sizes[n] / max(1, len(side))) for n in SPLITS[1:]}
    return {TRAIN: count - sum(away.values())} | away


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


def add_shares(
    to: Parser,
    what: str,
    heldout: str = "0.2; of two or more at least one",
    validation: str = "0.1 from ten on",
) -> None:
    """The options by which a user says how much is held out; the last two say defaults."""
    for name, of, default in (
        ("heldout", f"of the {what}, to test on", heldout),
        ("validation", f"of the {what} that are left, to choose settings on", validation),
    ):
        to.add_argument(f"--{name}-share", type=share_of, metavar="SHARE", help=f"{of} ({default})")


def add_splits(to: Parser, what: str, share: str, validation: str) -> None:
    """The same, and a list of what is held out by name."""
    add_shares(to, what, share, validation)
    to.add_argument(
        "--heldout", metavar="LIST", help=f"file of ids of {what} that must be held out, one a line"
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


@dataclass(frozen=True)
class Wanted:
    """Shares of the sources of split `train` (None: none are taken), and ids of tasks, or names of
    their sources, that must be held out."""

    heldout: float | None = None
    validation: float | None = None
    listed: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.heldout or self.validation or self.listed)


def resplit(
    family: Family, made: Mapping[str, Sequence[Any]], wanted: Wanted, seed: int
) -> dict[str, list[Any]]:
    """The splits with whole sources moved from `train` to `heldout` and `validation`.

    Raises `TaskError` for a split that the builder gives already and is asked a share of, for a
    listed name that no task has, and where nothing would be left to train on.
    """
    splits = {name: list(tasks) for name, tasks in made.items()}
    if not wanted:
        return splits
    for name, share in (("heldout", wanted.heldout), ("validation", wanted.validation)):
        if share and splits.get(name):
            raise TaskError(
                f"--{name}-share {share:g}: the build of family {family.name} gives "
                f"{len(splits[name])} tasks for {name} itself; leave the option"
            )
    tasks: list[Task] = [task for task in splits.get(TRAIN, []) if isinstance(task, Task)]
    source = {task.id: source_of(family, task) for task in tasks}
    if gone := sorted(wanted.listed - {*source, *source.values()}):
        raise TaskError(
            f"--heldout: no task of split {TRAIN} has the id or source {gone[0]!r} "
            f"({len(gone)} are unknown)"
        )
    must = {s for name, s in source.items() if name in wanted.listed or s in wanted.listed}

    def rank(name: str) -> int:
        return derive_seed(seed, "heldout", name)

    names = {*source.values()}
    side = sides_of(names, wanted.heldout or 0.0, wanted.validation or 0.0, rank, must)
    if {*side.values()} in ({TRAIN}, {"heldout"}):
        raise TaskError(
            f"nothing would be left to train on: the {len(tasks)} tasks of split {TRAIN} come from "
            f"{len(side)} source(s); give more sources, or smaller shares"
        )
    moved = {name: [t for t in tasks if side[source[t.id]] == name] for name in SPLITS}
    splits[TRAIN] = moved[TRAIN]
    for name in SPLITS[1:]:
        if moved[name]:
            splits[name] = [*splits.get(name, []), *moved[name]]
    return splits
