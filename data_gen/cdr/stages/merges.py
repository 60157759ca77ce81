"""The merge after the first map: documents that are there twice, and the recipe library."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from assay.console import Progress
from assay.workers import WorkerPool
from data_gen.cdr.records import Replays
from data_gen.cdr.sources import labels_of, no_licence, other_id
from data_gen.cdr.stages.arrays import Array, save_arrays, write_json
from data_gen.cdr.stages.documents import Documents
from data_gen.cdr.stages.facts import filters_of
from data_gen.cdr.stages.parts import UNLICENSED, DiskPart
from data_gen.cdr.stages.recipes import Support, Tables, build_library, replay_support
from data_gen.cdr.stages.work import Work, documents_at, documents_of, opened, sharded
from data_gen.readers import CorpusError

HELD = 16_000_000  # document ids that are compared side by side
_SUPPORTS = 16  # documents of one replaying job


def merge_library(work: Work, crew: WorkerPool) -> None:
    """Find the documents that are there twice, mine the recipes and attach filters to them."""
    if work.library.is_file():
        return
    documents = documents_of(work, with_twice=False)
    _refuse_unusable(work, documents)
    firsts = firsts_of(documents)
    others = other_ids(work, documents, firsts)
    write_json(work.folder / "others.json", list(others.items()))
    twice = np.array(sorted(firsts.keys() - others.keys()), np.int64)
    save_arrays(work.folder / "twice", {"numbers": twice})
    documents = documents_of(work)

    def replayed(jobs: Iterable[Support]) -> Iterator[tuple[int, Tables]]:
        with Progress("library", "documents") as progress:
            waiting = iter(jobs)
            chunks = iter(lambda: list(islice(waiting, _SUPPORTS)), [])
            for done in crew.map(_replay_chunk, ((work.folder, chunk) for chunk in chunks)):
                progress.add(len(done))
                yield from done

    write_json(work.library, build_library(documents, work.config, replayed))


def _replay_chunk(job: tuple[Path, list[Support]]) -> list[tuple[int, Tables]]:
    folder, supports = job
    documents = documents_at(folder)
    filters = filters_of(opened(folder).config)
    return [replay_support(documents, support, Replays(), filters) for support in supports]


def _refuse_unusable(work: Work, documents: Documents) -> None:
    """Raise `CorpusError` when there is no document, or none of the licences asked for."""
    places = ", ".join(sorted({source.name for source in work.sources})[:3])
    if not documents.count:
        first = next(problems(work, documents), None)
        why = f"; first problem: {first['name']}: {first['why']}" if first else ""
        raise CorpusError(f"{places}: no usable document{why}")
    if not work.config.licences:
        return
    there: Counter[str] = Counter()
    for part in disk(documents):
        out = part.arrays["state"] == UNLICENSED
        if not out.all():
            return
        there.update(part.row(place)["licence"] for place in range(part.count))
    raise no_licence(there, work.config.licences)


def disk(documents: Documents) -> Iterator[DiskPart]:
    for part in documents.parts:
        assert isinstance(part, DiskPart)
        yield part


def disk_part(documents: Documents, number: int) -> tuple[DiskPart, int]:
    """The part of a document, and its place there."""
    part = documents.part_of(number)
    assert isinstance(part, DiskPart)
    return part, number - part.base


def problems(work: Work, documents: Documents) -> Iterator[dict[str, str]]:
    """Rows of the corpora that hold no document, in reading order, as fields of `Left`."""
    for part in disk(documents):
        yield from json.loads(part.arrays["left"].tobytes())


def other_ids(work: Work, documents: Documents, firsts: dict[int, int]) -> dict[int, str]:
    """Other ids for the documents whose id one of another file has that reads otherwise."""
    labels = labels_of(work.sources)
    files: dict[int, str] = {}
    wanted = np.array(sorted({*firsts, *firsts.values()}), np.int64)
    for shard, part in sharded(work, disk(documents)):
        pieces = work.pieces(shard)
        low, high = np.searchsorted(wanted, (part.base, part.base + part.count))
        for number in wanted[low:high].tolist():
            piece = int(part.arrays["piece"][number - part.base])
            files[number] = labels[pieces[piece].source.place]
    found: dict[int, str] = {}
    taken: set[str] = set()
    for number, first in sorted(firsts.items()):
        rows = [
            part.row(place) for part, place in (disk_part(documents, n) for n in (number, first))
        ]
        name = other_id(str(rows[0]["id"]), files[number])
        alike = files[number] == files[first] or rows[0].get("text") == rows[1].get("text")
        if not alike and name not in taken:
            taken.add(name)
            found[number] = name
    return found


def firsts_of(documents: Documents, held: int = HELD) -> dict[int, int]:
    """The documents whose id an earlier one has: their numbers, with that of the first.

    Ids are compared by hash first, a share of all hashes at a time when there are many.
    """
    passes = -(-max(documents.count, 1) // held)
    found: dict[int, int] = {}
    for turn in range(passes):
        idents, numbers = _some_idents(documents, passes, turn)
        order = np.argsort(idents, kind="stable")
        idents, numbers = idents[order], numbers[order]
        alike = np.flatnonzero(idents[1:] == idents[:-1])
        seen: dict[int, dict[bytes, int]] = {}
        for place in alike.tolist():
            for number in numbers[place : place + 2].tolist():
                part = documents.part_of(number)
                name = part.key(number - part.base)[0]
                first = seen.setdefault(int(idents[place]), {}).setdefault(name, number)
                if first != number:
                    found[number] = first
    return found


def _some_idents(documents: Documents, passes: int, turn: int) -> tuple[Array, Array]:
    idents: list[Array] = []
    numbers: list[Array] = []
    for part in disk(documents):
        own = part.arrays["ident"]
        places = np.flatnonzero(own % np.uint64(passes) == turn)
        idents.append(own[places])
        numbers.append(places + part.base)
    return np.concatenate(idents), np.concatenate(numbers)
