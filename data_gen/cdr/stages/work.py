"""The work folder of a build: what every stage leaves there for the next one.

    build.json                what is built; a folder of another build is refused
    facts-00003/00000.facts   columns of a run of documents   00000.texts   their rows, packed
    facts-00003/done.json     written last: the shard is whole
    library.json              the recipes, and which documents are left out as there twice
    traces-00003/00000.traces
    plan/                     measurements; plan.json and units, written last
    rows-00003/00000.rows     executed and worded units   00000.texts   their lines

Files appear whole or not at all, so whatever is there can be kept when a stage is started again.
"""

from __future__ import annotations

import json
import shutil
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from assay.record import installed
from assay.task import TaskError
from configs.cdr import CdrConfig
from configs.fields import to_dict
from configs.loader import read_section
from data_gen.cdr.sources import sources_of
from data_gen.cdr.stages.arrays import Arrays, decoded, read_json, write_json
from data_gen.cdr.stages.documents import Documents
from data_gen.cdr.stages.parts import DiskPart, DiskParts
from data_gen.cdr.stages.recipes import Library
from data_gen.cdr.stages.traces import Trace, Wanted, wanted
from data_gen.readers import Piece, Source, cut

FORMAT = "5"  # of the files here; a folder of another one cannot be gone on from
OPEN = 100_000  # documents whose columns a process holds


class StageError(TaskError):
    """A stage that cannot be run yet, or a folder of another build; the message says what to do."""


@dataclass(frozen=True)
class Layout:
    """What one build is: `config` without what its result does not depend on."""

    config: dict[str, Any]
    sources: tuple[Source, ...]
    shards: int
    part: int  # documents in a file of the work folder
    versions: dict[str, str]


@dataclass(frozen=True)
class Work:
    """A work folder and the build it belongs to."""

    folder: Path
    config: CdrConfig
    sources: tuple[Source, ...]
    shards: int
    part: int

    @property
    def library(self) -> Path:
        return self.folder / "library.json"

    @property
    def plan(self) -> Path:
        return self.folder / "plan"

    def stage(self, name: str, shard: int) -> Path:
        return self.folder / f"{name}-{shard:05d}"

    def pieces(self, shard: int) -> list[Piece]:
        return cut(self.sources, self.shards, shard)

    def is_done(self, stage: str, shard: int) -> bool:
        return (self.stage(stage, shard) / "done.json").is_file()

    def done(self, stage: str, shard: int) -> dict[str, Any]:
        """The record of a finished shard. Raises `StageError` when it is not finished."""
        if not self.is_done(stage, shard):
            raise StageError(
                f"shard {shard} of {self.shards} has no finished stage `{stage}` in {self.folder}; "
                f"run it: --stage {stage} --shard {shard}"
            )
        return read_json(self.stage(stage, shard) / "done.json")

    def finish(self, stage: str, shard: int, record: dict[str, Any]) -> None:
        write_json(self.stage(stage, shard) / "done.json", record)


def layout_of(config: CdrConfig, corpora: Sequence[str], shards: int, part: int) -> Layout:
    """What is built from these corpora. Files are known by their place and size."""
    plain = to_dict(config)
    plain["workers"] = 0
    versions = installed() | {"work folder": FORMAT}
    return Layout(plain, tuple(sources_of(corpora)), shards, part, versions)


def begin(folder: Path, layout: Layout) -> Work:
    """The folder for a build, new or as an earlier start left it.

    Raises `StageError` when it belongs to another build.
    """
    forget()
    path = folder / "build.json"
    if path.is_file():
        old = decoded(Layout, read_json(path))
        if changed := differences(old, layout):
            raise StageError(
                f"{folder} holds an unfinished build with other {', '.join(changed)}; "
                "remove it, or give the same settings"
            )
    else:
        write_json(path, layout)
    return opened(folder)


cached: list[Callable[[], None]] = []  # what to call so that a process forgets a build


def forget() -> None:
    """Forget builds that this process had to do with: a folder may hold another one now."""
    for clear in cached:
        clear()


def begin_new(folder: Path, layout: Layout) -> Work:
    """The same for a build in one command: what another build left there goes."""
    path = folder / "build.json"
    if path.is_file() and differences(decoded(Layout, read_json(path)), layout):
        shutil.rmtree(folder)
    return begin(folder, layout)


def differences(old: Layout, new: Layout) -> list[str]:
    """What of two builds is not the same, in words."""
    names = {
        "config": "settings",
        "sources": "corpus files",
        "shards": "--shards",
        "part": "--part",
        "versions": "versions of libraries or of Assay",
    }
    plain = [json.loads(json.dumps(_plain(one), sort_keys=True)) for one in (old, new)]
    return [said for name, said in names.items() if plain[0][name] != plain[1][name]]


def _plain(layout: Layout) -> dict[str, Any]:
    return {
        "config": layout.config,
        "sources": [[s.place, s.size] for s in layout.sources],
        "shards": layout.shards,
        "part": layout.part,
        "versions": layout.versions,
    }


@lru_cache(maxsize=4)
def opened(folder: Path) -> Work:
    """The build of a folder, as its `build.json` says; also in worker processes."""
    path = folder / "build.json"
    if not path.is_file():
        raise StageError(f"{folder}: no build here; begin with --stage facts")
    layout: Layout = decoded(Layout, read_json(path))
    config = read_section(CdrConfig, layout.config, str(path), "")
    return Work(folder, config, layout.sources, layout.shards, layout.part)


def documents_of(work: Work, with_twice: bool = True) -> Documents:
    """All documents of all shards. Raises `StageError` when a shard's facts are missing."""
    twice = np.zeros(0, np.int64)
    others: dict[int, str] = {}
    if with_twice:
        twice = Arrays(work.folder / "twice").load("numbers")
        others = dict(read_json(work.folder / "others.json"))
    ordered = sorted(others)
    parts: list[DiskPart] = []
    base = 0
    for shard in range(work.shards):
        for number, count in enumerate(work.done("facts", shard)["counts"]):
            low, high = np.searchsorted(twice, (base, base + count))
            path = work.stage("facts", shard) / f"{number:05d}.facts"
            first, last = (bisect_left(ordered, at) for at in (base, base + count))
            own = {n - base: others[n] for n in ordered[first:last]}
            parts.append(DiskPart(path, base, count, work.config, twice[low:high] - base, own))
            base += count
    return Documents(DiskParts(parts, max(2, OPEN // work.part)), base)


@lru_cache(maxsize=2)
def documents_at(folder: Path) -> Documents:
    """The documents of a build, once a process."""
    return documents_of(opened(folder))


@lru_cache(maxsize=2)
def library_at(folder: Path) -> tuple[Library, tuple[Wanted, ...]]:
    """The library of a build, and what is looked at along its recipes; once a process."""
    path = opened(folder).library
    if not path.is_file():
        raise StageError(f"{folder}: no recipes yet; run --stage library")
    library: Library = decoded(Library, read_json(path))
    return library, tuple(map(wanted, library.entries))


def trace_files(work: Work) -> list[Path]:
    """The trace file of every part, in order. Raises `StageError` when a shard's are missing."""
    return [
        work.stage("traces", shard) / f"{number:05d}.traces"
        for shard in range(work.shards)
        for number in range(work.done("traces", shard)["parts"])
    ]


def trace_of(arrays: Arrays, number: int, columns: int) -> Trace:
    """One recipe's trace of a trace file."""
    start, stop = arrays["starts"][number : number + 2].tolist()
    first = int(arrays["stats_at"][number])
    stats = arrays["stats"][first : first + (stop - start) * columns]
    return Trace(
        np.array(arrays["places"][start:stop]),
        np.array(arrays["bits"][start:stop]),
        np.array(stats).reshape(stop - start, columns),
    )


def sharded(work: Work, parts: Iterable[DiskPart]) -> Iterator[tuple[int, DiskPart]]:
    """(shard, part) of all parts."""
    rest = iter(parts)
    for shard in range(work.shards):
        for _ in work.done("facts", shard)["counts"]:
            yield shard, next(rest)


def shard_parts(work: Work, documents: Documents, shard: int) -> Iterator[tuple[int, DiskPart]]:
    """(number in the shard, part) of the parts of one shard."""
    before = sum(len(work.done("facts", other)["counts"]) for other in range(shard))
    parts: Any = documents.parts
    for number in range(len(work.done("facts", shard)["counts"])):
        yield number, parts[before + number]


cached.extend([opened.cache_clear, documents_at.cache_clear, library_at.cache_clear])
