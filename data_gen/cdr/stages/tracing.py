"""The second map: every recipe on every document of a shard that supports it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from assay.console import Progress
from assay.workers import WorkerPool
from data_gen.cdr.stages.arrays import Array, save_arrays
from data_gen.cdr.stages.traces import Trace, trace_part
from data_gen.cdr.stages.work import Work, documents_at, library_at, opened, shard_parts

_TRACED = 32  # documents of one job


def trace_shard(work: Work, shard: int, crew: WorkerPool) -> None:
    """Run every recipe on the documents of a shard; parts that are there already are kept."""
    if work.is_done("traces", shard):
        return
    _, recipes = library_at(work.folder)
    folder = work.stage("traces", shard)
    folder.mkdir(parents=True, exist_ok=True)
    own = list(shard_parts(work, documents_at(work.folder), shard))
    missing = [(n, part) for n, part in own if not (folder / f"{n:05d}.traces").is_file()]
    jobs = (
        (work.folder, part.base, first, min(part.count - first, _TRACED))
        for _, part in missing
        for first in range(0, max(part.count, 1), _TRACED)
    )
    total = sum(part.count for _, part in missing)
    widths = np.array([len(recipe.columns) for recipe in recipes], np.int64)
    with Progress("traces", "documents", total) as progress:
        done = crew.map(_trace_chunk, jobs)
        for number, part in missing:
            chunks = list(islice(done, max(-(-part.count // _TRACED), 1)))
            _save_traces(folder / f"{number:05d}.traces", chunks, widths)
            progress.add(part.count)
    work.finish("traces", shard, {"parts": len(own)})


@dataclass(frozen=True)
class Traced:
    """The traces of some documents, recipe after recipe: how many documents each has, and their
    columns. Few arrays, because each costs time on its way to the command."""

    counts: Array
    places: Array
    bits: Array
    stats: Array


def _trace_chunk(job: tuple[Path, int, int, int]) -> Traced:
    folder, base, first, count = job
    documents = documents_at(folder)
    part = documents.part_of(base)
    facts = part.facts.only(part.facts.usable(opened(folder).config))
    wanted = range(first, first + count)
    texts = [part.record(place).text if facts.read[place] else None for place in wanted]
    return joined_traces(trace_part(facts, texts, library_at(folder)[1], first))


def joined_traces(traces: Sequence[Trace]) -> Traced:
    """The traces of all recipes."""
    return Traced(
        np.array([len(trace.places) for trace in traces], np.int64),
        np.concatenate([trace.places for trace in traces] or [np.zeros(0, np.int32)]),
        np.concatenate([trace.bits for trace in traces] or [np.zeros(0, np.uint32)]),
        np.concatenate([trace.stats.ravel() for trace in traces] or [np.zeros(0)]),
    )


def by_recipe(chunks: Sequence[Traced], widths: Array) -> dict[str, Array]:
    """The arrays of a part: the chunks' documents in their order, recipe after recipe. `widths`:
    statistics of a document by recipe."""
    counts = np.array([chunk.counts for chunk in chunks]).reshape(len(chunks), len(widths))
    recipe = np.repeat(np.tile(np.arange(len(widths)), len(chunks)), counts.ravel())
    order = np.argsort(recipe, kind="stable")
    wide = widths[recipe]
    starts = (np.cumsum(wide) - wide)[order]  # of each document's statistics, as they came
    wide = wide[order]
    shift = starts - (np.cumsum(wide) - wide)
    stats = np.concatenate([chunk.stats for chunk in chunks])
    whole = counts.sum(axis=0)
    return {
        "starts": np.cumsum([0, *whole], dtype=np.int64),
        "stats_at": np.cumsum([0, *(whole * widths)], dtype=np.int64),
        "places": np.concatenate([chunk.places for chunk in chunks])[order].astype(np.int32),
        "bits": np.concatenate([chunk.bits for chunk in chunks])[order].astype(np.uint32),
        "stats": stats[np.repeat(shift, wide) + np.arange(len(stats))].astype(np.float64),
    }


def _save_traces(path: Path, chunks: Sequence[Traced], widths: Array) -> None:
    save_arrays(path, by_recipe(chunks, widths))
