# pandas ships no types.
# pyright: reportMissingTypeStubs=false
"""Many tables by several processes, each with a sandbox of its own.

The result depends on the tables and the seed alone, never on the number of processes or who
finished first.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from assay.files import machine_failed
from data_gen.dare.class_reg import build_table
from data_gen.dare.database import Built, Settings
from data_gen.dare.describe import describe
from data_gen.dare.licences import allowed
from data_gen.dare.series import build_series
from data_gen.dare.sources import Source, same_table, sources
from rewards.processes import Crew, one_thread
from rewards.progress import Progress
from rewards.seeds import derive_seed
from rollouts.sandbox.model import Config
from rollouts.sandbox.pool import Pool
from rollouts.workshop import run_now

SHARE = 4  # tables that one process is handed at a time
SPARE = 40  # one more database in so many, in place of those that turn out to ask the same
# (number of the table, how many databases, only sure targets, how many targets were tried before)
_Job = tuple[int, int, bool, int]
_Step = Callable[[Sequence[_Job]], list[Built]]

# What one process keeps: the sources, the settings, its sandbox. Set by `_start`.
_work: tuple[list[Source], Settings, Pool] | None = None


def chosen(specs: Sequence[str], settings: Settings) -> tuple[list[Source], list[Built]]:
    """(the tables to build from, with what the user says of them; those that are left alone, each
    with its reason)."""
    used: list[Source] = []
    alone: list[Built] = []
    for source in describe(list(sources(specs)), settings.described):
        if settings.licences and not allowed(source.licence, settings.licences):
            why = f"licence {source.licence!r} is none of {', '.join(settings.licences)}"
        elif settings.wishes.skips(source.name):
            why = "no --target names it"
        else:
            used.append(source)
            continue
        alone.append(Built(source.name, refused=[why], licence=source.licence))
    return used, alone


def _start(specs: Sequence[str], settings: Settings) -> None:
    import pandas as pd

    global _work
    one_thread()
    pd.set_option("mode.string_storage", "python")  # Arrow's texts cost more, of tables this small
    _work = (chosen(specs, settings)[0], settings, Pool(Config(workers=1)))


def _tables(jobs: Sequence[_Job]) -> list[Built]:
    """Class and reg databases of one process's share."""
    assert _work is not None
    listed, settings, pool = _work

    async def go() -> list[Built]:
        return [
            await build_table(listed[i], settings, pool, room, sure, tried)
            for i, room, sure, tried in jobs
        ]

    return run_now(go())


def _series(jobs: Sequence[_Job]) -> list[Built]:
    """Time-series databases of one process's share."""
    assert _work is not None
    listed, settings, _ = _work
    out: list[Built] = []
    for i, room, _, _ in jobs:
        built = Built(listed[i].name, licence=listed[i].licence)
        try:
            build_series(listed[i], settings, built, room)
        except Exception as error:  # as in build_table
            if machine_failed(error):
                raise
            built.refused.append(f"series broke: {type(error).__name__}: {error}"[:200])
        out.append(built)
    return out


def without_copies(built: Built, seen: dict[str, frozenset[str]]) -> Built:
    """The same, or nothing where an earlier source gave a copy of the table; notes it in `seen`."""
    for other, marks in seen.items():
        if built.rows and other != built.source and same_table(built.marks, marks):
            copy = f"a copy of {other}"
            return replace(built, rows=[], refused=[*built.refused, copy])
    if built.rows:
        seen[built.source] = built.marks
    return built


def run_tables(specs: Sequence[str], settings: Settings, workers: int, wanted: int) -> list[Built]:
    """Tables in a seeded order until `wanted` databases are there: first a third of them time
    series, which few tables give, then class and reg, at most `per_table` in all from a table:
    targets that much speaks for from all tables before any other. Of a large number some more are
    built, since tables like each other are known by their files, and may ask the same. With
    `one_more` a table may give one beyond `per_table`, where there would be too few."""
    listed, alone = chosen(specs, settings)
    order = list(range(len(listed)))
    random.Random(derive_seed(settings.seed, "tables")).shuffle(order)
    seen: dict[str, frozenset[str]] = {}
    with (
        Crew(workers, _start, (list(specs), settings), apart=True) as crew,
        Progress("tables", "databases", wanted) as bar,
    ):

        def through(step: _Step, jobs: Sequence[_Job], most: int) -> list[Built]:
            """What `step` builds, in the order of `jobs`, until `most` databases are there."""
            made: list[Built] = []
            shares = [jobs[i : i + SHARE] for i in range(0, len(jobs), SHARE)]
            for part in crew.map(step, shares):
                new = [without_copies(built, seen) for built in part]
                made += new
                bar.add(sum(len(built.rows) for built in new))
                if sum(len(built.rows) for built in made) >= most:
                    break
            return made

        found: list[Built] = list(alone)
        full: list[_Job] = []
        kinds, with_spare = settings.wishes.kinds, wanted + wanted // SPARE
        if "ts" in kinds:
            most = wanted // 3 if len(kinds) > 1 else wanted
            jobs = [(i, settings.per_table, True, 0) for i in order]
            found += through(_series, jobs, max(1, most))
        for sure in (True, False) if set(kinds) != {"ts"} else ():
            done = sum(len(built.rows) for built in found)
            gave = Counter(built.source for built in found for _ in built.rows)
            left = {i: settings.per_table - gave[listed[i].name] for i in order}
            if not sure:  # what less speaks for: of tables that gave nothing, or say nothing
                done_with = {built.source for built in found if not built.more}
                left = {
                    i: n
                    for i, n in left.items()
                    if listed[i].name not in done_with
                    and not (gave[listed[i].name] and listed[i].about)
                    and (settings.less_sure or not listed[i].many)
                }
            if done < with_spare:
                jobs = [(i, n, sure, 0) for i, n in left.items() if n > 0]
                made = through(_tables, jobs, with_spare - done)
                full += _full(listed, jobs, made)
                found += made
        done = sum(len(built.rows) for built in found)
        if settings.one_more and done < with_spare:
            found += through(_tables, full, with_spare - done)
    return found + _unasked(listed, found, kinds, wanted)


def _full(listed: Sequence[Source], jobs: Sequence[_Job], made: Sequence[Built]) -> list[_Job]:
    """The jobs that go on where these ended, of tables that gave as many databases as there was
    room for."""
    by_name = {built.source: built for built in made}
    return [
        (i, 1, sure, by_name[name].tried)
        for i, room, sure, _ in jobs
        if (name := listed[i].name) in by_name and len(by_name[name].rows) == room
    ]


def _unasked(
    listed: Sequence[Source], found: Sequence[Built], kinds: Mapping[str, object], wanted: int
) -> list[Built]:
    """The tables of which nothing is known to say: other tables had given enough before."""
    spoken = {built.source for built in found if built.rows or built.refused}
    enough = sum(len(built.rows) for built in found) >= wanted
    why = "not needed: other tables gave enough" if enough else "no column is a time"
    left = [source for source in listed if source.name not in spoken]
    return [Built(source.name, refused=[why], licence=source.licence) for source in left]
