"""From measurements to files: which units are worded, and the merge of everything in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from assay.console import Progress
from assay.files import atomic_write, atomic_write_set
from assay.task import json_line
from assay.workers import WorkerPool
from configs.loader import dump
from data_gen.cdr.construct import activation_row, library_rows
from data_gen.cdr.domains import ALL_MAPPERS, label
from data_gen.cdr.out import (
    FILES,
    SPLITS,
    Share,
    Sided,
    Tracks,
    shares,
    sided_units,
    write_lines,
    write_tracks,
)
from data_gen.cdr.paraphrase import paraphrase_units
from data_gen.cdr.pools import Asked, Pool, distinct, pool_of
from data_gen.cdr.rows import PlannedRow
from data_gen.cdr.sampling import Choice, balance, choice_of, thin
from data_gen.cdr.stages.arrays import Array, Arrays, read_json, save_arrays, write_json
from data_gen.cdr.stages.bodies import joined, unpacked
from data_gen.cdr.stages.choose import FILTER, MAPPER, ORDER, SWAP, Unit
from data_gen.cdr.stages.documents import Documents
from data_gen.cdr.stages.facts import CALIBRATED_FILTERS, DOMAINS, bits_set, names_of
from data_gen.cdr.stages.merges import disk, disk_part
from data_gen.cdr.stages.parts import USED
from data_gen.cdr.stages.plan import plan_units
from data_gen.cdr.stages.recipes import Library
from data_gen.cdr.stages.rowmap import Worded, heads_of, maker_at, planned
from data_gen.cdr.stages.work import Work, cached, documents_at, library_at, opened

_RECIPES = 8  # of a wording job
_CHUNK, _MANY = 32, 512  # units of a job: that writes tasks, that does less
ROWS = {ORDER: 3, SWAP: 2}  # rows of a unit; of others one


@dataclass(frozen=True)
class Built:
    """What a build made, for the last lines of the command."""

    tracks: Tracks | None
    documents: int
    usable: int
    recipes: int
    rows: Counter[int]  # by kind of unit
    rows_of: Counter[str]  # by document
    library: Library
    active: Counter[str]  # documents of a domain with two or more active mappers
    operators: frozenset[str]  # that an atomic row asks for
    families: int  # order families with rows


def make_plan(work: Work, crew: WorkerPool, kept: Path) -> None:
    """Choose all units, and those that are worded. `kept`: the folder that holds the answers of an
    endpoint from run to run."""
    if (work.plan / "chosen").is_file():
        return
    units = plan_units(work, crew)
    config = work.config
    numbers: list[int] = []
    if config.tracks:
        numbers = [one.number for one in _chosen(work, units, crew)]
    if config.tracks and config.paraphrase.url:
        chosen = [planned_unit(work, units, number) for number in numbers]
        spoken, counts = paraphrase_units(chosen, config.instruct, config.paraphrase, kept)
        said = [[key, style, asdict(w)] for (key, style), w in spoken.items()]
        write_json(work.plan / "wordings.json", said)
        write_json(work.plan / "paraphrases.json", counts)
    _make_pools(work, numbers, crew)
    save_arrays(work.plan / "chosen", {"numbers": np.array(numbers, np.int64)})


def _chosen(work: Work, units: Array, crew: WorkerPool) -> list[Choice]:
    """The units to word, of those that may be, in the order of the tracks."""
    order = np.argsort(units["kind"], kind="stable").tolist()
    found: list[Choice] = []
    with Progress("units", "units", len(order)) as progress:
        for choices in crew.map(_choices, _chunks(work, order)):
            found += choices
            progress.add(len(choices))
    return balance(thin(found, work.config.select), work.config.select)


def _chunks(work: Work, numbers: Sequence[int]) -> Iterator[tuple[Path, Sequence[int]]]:
    for first in range(0, len(numbers), _MANY):
        yield work.folder, numbers[first : first + _MANY]


def _choices(job: tuple[Path, Sequence[int]]) -> list[Choice]:
    config = opened(job[0]).config.select
    return [choice_of(unit, config) for unit in _planned(*job) if unit]


def _planned(folder: Path, numbers: Sequence[int]) -> Iterator[list[PlannedRow]]:
    """Units without texts; empty where they are no rows of the tracks."""
    work = opened(folder)
    units = Arrays(work.plan / "units")["units"]
    return (planned_unit(work, units, number) for number in numbers)


def _make_pools(work: Work, numbers: Sequence[int], crew: WorkerPool) -> None:
    """Word every recipe that is asked for; the map over units reads it."""
    parts = crew.map(_asked, _chunks(work, numbers))
    asked = list(dict.fromkeys(chain.from_iterable(parts)))
    chunks = [asked[first : first + _RECIPES] for first in range(0, len(asked), _RECIPES)]
    rows: list[Any] = []
    with Progress("wordings", "recipes", len(asked)) as progress:
        made = crew.map(_pool_chunk, ((work.folder, chunk) for chunk in chunks))
        for chunk, pools in zip(chunks, made, strict=True):
            for (key, steps), found in zip(chunk, pools, strict=True):
                variants = [[v.style_id, v.style_label, v.user_requirement] for v in found.variants]
                rows.append([key, steps, variants, found.refused])
            progress.add(len(chunk))
    write_json(work.plan / "pools.json", rows)


def _asked(job: tuple[Path, Sequence[int]]) -> list[Asked]:
    return distinct(_planned(*job))


def _pool_chunk(job: tuple[Path, list[Asked]]) -> list[Pool]:
    folder, asked = job
    return [pool_of(one, opened(folder).config.instruct) for one in asked]


def planned_unit(work: Work, units: Array, number: int) -> list[PlannedRow]:
    unit = Unit(*units[number].tolist())
    part, place = disk_part(documents_at(work.folder), unit.document)
    variants = work.config.select.filter_variants
    return planned(maker_at(work.folder), unit, number, part.light(place), variants)


def merge(work: Work, crew: WorkerPool, out: Path) -> Built:
    """Write everything to `out`; all files take their places together."""
    units = Arrays(work.plan / "units").load("units")
    documents = documents_at(work.folder)
    tracks: Tracks | None = None
    with atomic_write_set(out, stale=FILES) as new:
        dump(work.config, new / "config.yaml")
        if work.config.tracks:
            chosen = Arrays(work.plan / "chosen").load("numbers").tolist()
            known = heads_of(work)
            sided = sided_units([known.pop(number) for number in chosen], work.config)
            counted = _write_shares(work, sided, crew, new)
            _write_pipeline(work, documents, units, new)  # while the processes write lines
            spoken: Any = None
            if work.config.paraphrase.url:
                spoken = read_json(work.plan / "paraphrases.json")
            library, _ = library_at(work.folder)
            tracks = write_tracks(sided, counted, work.config, new, library.entries, spoken)
        else:
            _write_pipeline(work, documents, units, new)
    return _built(work, documents, units, tracks)


def _write_shares(work: Work, sided: Sided, crew: WorkerPool, new: Path) -> Iterator[Counter[str]]:
    """The lines of all units, each share of them written to its place by the process that makes
    it. Gives what every share counts as."""
    parts = list(shares(sided.made, _CHUNK))
    for name in parts[-1].end if parts else (f"{split}.jsonl" for split in SPLITS):
        (new / name).parent.mkdir(exist_ok=True)
        (new / name).touch()
    jobs = [(work.folder, new, share) for share in parts]
    return crew.map(_write_share, jobs, ahead=len(jobs))


def _write_share(job: tuple[Path, Path, Share]) -> Counter[str]:
    folder, new, share = job
    worded, config = worded_at(folder), opened(folder).config.instruct
    lines = joined([unpacked(worded.body(number), own, config) for number, own in share.units])
    write_lines(lines, share, new)
    return lines.counts


@lru_cache(maxsize=1)
def worded_at(folder: Path) -> Worded:
    work = opened(folder)
    return Worded(work, len(Arrays(work.plan / "units")["units"]))


def _write_pipeline(work: Work, documents: Documents, units: Array, new: Path) -> None:
    with atomic_write(new / "pipeline.jsonl") as file:
        file.writelines(_pipeline(work, documents, units))


def _pipeline(work: Work, documents: Documents, units: Array) -> Iterator[bytes]:
    """The lines of pipeline.jsonl. Those of units are only copied, which a worker could not do in
    less time than it takes to hand them over."""
    for part in disk(documents):
        for place in part.places(USED):
            domain = DOMAINS[int(part.facts.domain[place])]
            active = names_of(int(part.facts.active[place]))
            yield json_line(activation_row(part.id(place), domain, label(domain), active))
    library, _ = library_at(work.folder)
    yield from map(json_line, library_rows(library.mined, library.entries))
    ranks = np.array([0, 0, 1, 3, 2])[units["kind"]]  # order pairs come last here
    order = np.argsort(ranks, kind="stable").tolist()
    with Progress("pipeline.jsonl", "units", len(order)) as progress:
        lines = worded_at(work.folder).pipeline
        for first in range(0, len(order), _MANY):
            chunk = order[first : first + _MANY]
            yield from map(lines, chunk)
            progress.add(len(chunk))


def _built(work: Work, documents: Documents, units: Array, tracks: Tracks | None) -> Built:
    kinds, counts = np.unique(units["kind"], return_counts=True)
    made = zip(kinds.tolist(), counts.tolist(), strict=True)
    rows = Counter({kind: count * (3 if kind == ORDER else 1) for kind, count in made})
    rows_of: Counter[str] = Counter()
    if tracks is None:
        for unit in units[units["kind"] != SWAP]:
            part, place = disk_part(documents, int(unit["document"]))
            rows_of[part.id(place)] += ROWS.get(int(unit["kind"]), 1)
    library, _ = library_at(work.folder)
    active: Counter[str] = Counter()
    for part in disk(documents):
        used = np.array(part.places(USED), np.int64)
        more = used[bits_set(part.facts.active[used]) > 1]
        active.update(DOMAINS[int(code)] for code in part.facts.domain[more])
    order = units[units["kind"] == ORDER]
    mappers = units["one"][units["kind"] == MAPPER]
    filters = units["one"][units["kind"] == FILTER]
    return Built(
        tracks,
        sum(len(part.places(USED)) for part in disk(documents)),
        sum(int(part.facts.usable(work.config).sum()) for part in disk(documents)),
        sum(len(mined.recipes) for mined in library.mined),
        rows,
        rows_of if tracks is None else tracks.rows_of,
        library,
        active,
        frozenset(
            [ALL_MAPPERS[int(place)] for place in np.unique(mappers)]
            + [CALIBRATED_FILTERS[int(place)] for place in np.unique(filters)]
        ),
        len(np.unique(order[["one", "two"]])),
    )


cached.append(worded_at.cache_clear)
