"""The last map: execute the chosen units on their documents, word them, prove them."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from assay.console import Progress
from assay.files import atomic_write
from assay.task import json_line
from assay.workers import WorkerPool
from data_gen.cdr.construct import instance_row, swap_row
from data_gen.cdr.instruct import PromptVariant
from data_gen.cdr.paraphrase import Wording, Wordings
from data_gen.cdr.pools import Pool, Pools
from data_gen.cdr.records import Record, Replays
from data_gen.cdr.rows import PlannedRow, planned_instances, planned_pair
from data_gen.cdr.stages.arrays import (
    Array,
    Arrays,
    OpenFiles,
    damaged,
    decoded,
    read_json,
    save_arrays,
)
from data_gen.cdr.stages.bodies import packed
from data_gen.cdr.stages.choose import SWAP, Unit
from data_gen.cdr.stages.heads import Head, head_of, packed_heads, unpacked_heads
from data_gen.cdr.stages.units import Maker, Rules
from data_gen.cdr.stages.work import Work, cached, documents_at, library_at, opened
from data_gen.cdr.write import Proof, word
from data_gen.overlap import print_of

PART = 512  # units of a file, at least: a job of its own
KINDS = 2  # pieces of a unit: rows of pipeline.jsonl, body


@lru_cache(maxsize=2)
def maker_at(folder: Path) -> Maker:
    rules: Rules = decoded(Rules, read_json(folder / "plan" / "rules.json"))
    return Maker(library_at(folder)[0], rules)


@lru_cache(maxsize=2)
def wordings_at(folder: Path) -> Wordings:
    """The paraphrases that stand in for the grammar's words."""
    path = folder / "plan" / "wordings.json"
    rows: list[Any] = read_json(path) if path.is_file() else []
    return {(key, style): decoded(Wording, value) for key, style, value in rows}


@lru_cache(maxsize=2)
def pools_at(folder: Path) -> Pools:
    """The pools that the plan left."""
    path = folder / "plan" / "pools.json"
    rows: list[Any] = read_json(path) if path.is_file() else []
    return {
        (key, tuple((name, tuple(map(tuple, params))) for name, params in steps)): Pool(
            tuple(PromptVariant(*variant) for variant in variants), refused
        )
        for key, steps, variants, refused in rows
    }


def planned(
    maker: Maker, unit: Unit, number: int, record: Record, variants: bool
) -> list[PlannedRow]:
    """The rows of a unit before they are worded, without texts; none of a recipe with a filter
    unless `variants`."""
    if unit.kind == SWAP:
        return planned_pair(maker.light_pair(unit, record), number)
    return planned_instances(maker.instances(unit, record), variants, number)


def units_of(work: Work) -> tuple[Array, Array]:
    """All units of the plan, and which of them are worded."""
    arrays = Arrays(work.plan / "units")
    units = arrays.load("units")
    worded = np.zeros(len(units), np.bool_)
    worded[Arrays(work.plan / "chosen").load("numbers")] = True
    return units, worded


def shard_units(work: Work, units: Array, shard: int) -> Array:
    """Numbers of the units whose documents are a shard's, by document."""
    counts = [sum(work.done("facts", other)["counts"]) for other in range(shard + 1)]
    stop = sum(counts)
    own = np.flatnonzero((units["document"] >= stop - counts[-1]) & (units["document"] < stop))
    return own[np.argsort(units["document"][own], kind="stable")]


def word_shard(work: Work, shard: int, crew: WorkerPool) -> None:
    """Execute and word the units of a shard; parts that are there already are kept."""
    if work.is_done("rows", shard):
        return
    units, worded = units_of(work)
    own = shard_units(work, units, shard)
    folder = work.stage("rows", shard)
    folder.mkdir(parents=True, exist_ok=True)
    parts = list(chunks(own, units["document"]))
    missing = [n for n in range(len(parts)) if not _path(folder, n).is_file()]
    jobs = (
        (work.folder, _path(folder, n), parts[n].tolist(), units[parts[n]], worded[parts[n]])
        for n in missing
    )
    with Progress("rows", "units", sum(len(parts[n]) for n in missing)) as progress:
        for count in crew.map(word_part, jobs):
            progress.add(count)
    work.finish("rows", shard, {"parts": len(parts)})


def _path(folder: Path, part: int) -> Path:
    return folder / f"{part:05d}.rows"


def chunks(numbers: Array, documents: Array) -> Iterator[Array]:
    """Runs of units, `PART` or some more: what is remembered of a document serves all of its
    units."""
    own = documents[numbers]
    first = 0
    while first < len(numbers):
        last = int(own[min(first + PART, len(numbers)) - 1])
        stop = int(np.searchsorted(own, last, "right"))
        yield numbers[first:stop]
        first = stop


Job = tuple[Path, Path, list[int], Array, Array]  # folder, file, numbers, units, which are worded


def word_part(job: Job) -> int:
    """Write a part, and say how many units it has. Nothing of it goes to the command, which would
    have to wait for its bytes: texts first, the arrays say that it is whole."""
    folder, path, numbers, units, worded = job
    documents, maker = documents_at(folder), maker_at(folder)
    blobs: list[bytes] = []
    heads: list[Head] = []
    record, replays, proof, last = Record("", "", ""), Replays(), Proof(), -1
    for place, (number, fields) in enumerate(zip(numbers, units.tolist(), strict=True)):
        unit = Unit(*fields)
        if unit.document != last:
            record, last = documents.record(unit.document), unit.document
            replays, proof = Replays(), Proof()
        pipeline, rows = executed(maker, unit, number, record, replays)
        body = b""
        if worded[place]:
            head, body = _worded(folder, rows, record, proof)
            heads.append(head)
        blobs += [pipeline, body]
    with atomic_write(path.with_suffix(".texts")) as out:
        out.writelines(blobs)
    at = np.cumsum([0, *map(len, blobs)], dtype=np.int64)
    save_arrays(path, {"numbers": np.array(numbers, np.int64), "at": at} | packed_heads(heads))
    return len(numbers)


def executed(
    maker: Maker, unit: Unit, number: int, record: Record, replays: Replays
) -> tuple[bytes, list[PlannedRow]]:
    """The lines of pipeline.jsonl, and the rows with their texts."""
    if unit.kind == SWAP:
        pair = maker.pair(unit, record, replays)
        return json_line(swap_row(pair)), planned_pair(pair, number)
    made = maker.executed(unit, record, replays)
    return b"".join(json_line(instance_row(row)) for row in made), planned_instances(
        made, True, number
    )


def _worded(
    folder: Path, rows: list[PlannedRow], record: Record, proof: Proof
) -> tuple[Head, bytes]:
    """Head, and body as it is stored."""
    config = opened(folder).config.instruct
    done = word(rows, config, wordings_at(folder), proof, pools_at(folder))
    references = [print_of(row["reference_text"]) for row in done.rows]
    body, sizes = (b"", []) if done.refused else packed(rows, done, config)
    input_ = print_of(record.text)
    head = head_of(rows, done.refused, input_, references, sizes, done.unsaid)
    return head, zlib.compress(body, 1)


class Worded:
    """The pieces of every unit, read when they are asked for."""

    def __init__(self, work: Work, count: int) -> None:
        self._files: list[tuple[Path, Array]] = []
        self._file = np.full(count, -1, np.int32)
        self._place = np.zeros(count, np.int32)
        for shard in range(work.shards):
            for part in range(work.done("rows", shard)["parts"]):
                path = _path(work.stage("rows", shard), part)
                arrays = Arrays(path)
                numbers = arrays.load("numbers")
                self._file[numbers] = len(self._files)
                self._place[numbers] = np.arange(len(numbers))
                self._files.append((path.with_suffix(".texts"), arrays.load("at")))
        self._open = OpenFiles()

    def _piece(self, number: int, kind: int) -> bytes:
        path, at = self._files[int(self._file[number])]
        place = KINDS * int(self._place[number]) + kind
        start, stop = int(at[place]), int(at[place + 1])
        data = self._open.read(path, start, stop - start)
        if len(data) < stop - start:
            raise damaged(path)
        return data

    def pipeline(self, number: int) -> bytes:
        return self._piece(number, 0)

    def body(self, number: int) -> bytes:
        """For `bodies.unpacked`."""
        try:
            return zlib.decompress(self._piece(number, 1))
        except zlib.error:
            raise damaged(self._files[int(self._file[number])][0]) from None


def heads_of(work: Work) -> dict[int, Head]:
    """The heads of all worded units by their number."""
    known: dict[bytes, bytes] = {}
    found: dict[int, Head] = {}
    for shard in range(work.shards):
        for part in range(work.done("rows", shard)["parts"]):
            path = _path(work.stage("rows", shard), part)
            for head in unpacked_heads(Arrays(path), known):
                found[head.number] = head
    return found


cached.extend([maker_at.cache_clear, pools_at.cache_clear, wordings_at.cache_clear])
