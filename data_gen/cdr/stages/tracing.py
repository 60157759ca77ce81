"""The second map: every recipe on every document of a shard that supports it."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np

from data_gen.cdr.stages.arrays import save_arrays
from data_gen.cdr.stages.traces import Trace, trace_part
from data_gen.cdr.stages.work import Work, documents_at, library_at, opened, shard_parts
from rewards.processes import Crew
from rewards.progress import Progress

_TRACED = 32  # documents of one job


def trace_shard(work: Work, shard: int, crew: Crew) -> None:
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
    with Progress("traces", "documents", total) as progress:
        done = crew.map(_trace_chunk, jobs)
        for number, part in missing:
            chunks = list(islice(done, max(-(-part.count // _TRACED), 1)))
            _save_traces(folder / f"{number:05d}.traces", chunks, len(recipes))
            progress.add(part.count)
    work.finish("traces", shard, {"parts": len(own)})


def _trace_chunk(job: tuple[Path, int, int, int]) -> dict[int, Trace]:
    """The traces of some documents by recipe, without those that none of them supports."""
    folder, base, first, count = job
    documents = documents_at(folder)
    part = documents.part_of(base)
    if not count:
        return {}
    facts = part.facts.only(part.facts.usable(opened(folder).config))
    wanted = range(first, first + count)
    texts = [part.record(place).text if facts.read[place] else None for place in wanted]
    traces = trace_part(facts, texts, library_at(folder)[1], first)
    return {number: trace for number, trace in enumerate(traces) if len(trace.places)}


def _save_traces(path: Path, chunks: list[dict[int, Trace]], recipes: int) -> None:
    own = [[c[number] for c in chunks if number in c] for number in range(recipes)]
    traces = [trace for group in own for trace in group]
    counts = [sum(len(trace.places) for trace in group) for group in own]
    sizes = [sum(trace.stats.size for trace in group) for group in own]
    empty = [np.zeros(0)]
    save_arrays(
        path,
        {
            "starts": np.cumsum([0, *counts], dtype=np.int64),
            "stats_at": np.cumsum([0, *sizes], dtype=np.int64),
            "places": np.concatenate([t.places for t in traces] or empty).astype(np.int32),
            "bits": np.concatenate([t.bits for t in traces] or empty).astype(np.uint32),
            "stats": np.concatenate([t.stats.ravel() for t in traces] or empty),
        },
    )
