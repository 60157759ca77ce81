# pandas ships no types.
# pyright: reportMissingTypeStubs=false
"""Many tables by several processes.

The result depends on the tables and the seed alone, never on the number of processes or who
finished first.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from assay.console import Progress
from assay.files import machine_failed
from assay.seeds import derive_seed
from assay.workers import WorkerPool, limit_threads
from data_gen.dare.class_reg import build_table
from data_gen.dare.database import Built, Settings
from data_gen.dare.describe import describe
from data_gen.dare.series import build_series
from data_gen.dare.sources import Source, sources
from data_gen.groups import same_table
from data_gen.licences import allowed, unwanted
from data_gen.tally import Refusal

SHARE = 4  # tables that one process is handed at a time
SPARE = 40  # one more database in so many, in place of those that turn out to ask the same
_Job = tuple[int, int]  # number of the table, how many databases
_Step = Callable[[Sequence[_Job]], list[Built]]

# What one process keeps: the sources, the settings. Set by `_start`.
_work: tuple[list[Source], Settings] | None = None


def chosen(specs: Sequence[str], settings: Settings) -> tuple[list[Source], list[Built]]:
    """(the tables to build from, with what the user says of them; those that are left alone, each
    with its reason)."""
    used: list[Source] = []
    alone: list[Built] = []
    unlisted = Counter[str]()
    for source in describe(list(sources(specs)), settings.described):
        if source.many and not source.listed and not settings.wishes.of(source.name).targets:
            unlisted[source.package] += 1
            continue
        if settings.licences and not allowed(source.licence, settings.licences):
            why = unwanted(source.licence, settings.licences)
        elif settings.wishes.skips(source.name):
            why = "no --target names it"
        else:
            used.append(source)
            continue
        alone.append(_refused(source, "unwanted", why))
    for package, many in unlisted.items():
        said = f"{many} tables are not in data_gen/packages.yaml, which lists what can be asked"
        alone.append(Built(f"{package} (others)", refused=[Refusal("unlisted", said)]))
    return used, alone


def _refused(source: Source, code: str, why: str) -> Built:
    return Built(source.name, refused=[Refusal(code, why)], licence=source.licence)


def _start(specs: Sequence[str], settings: Settings) -> None:
    global _work
    limit_threads()
    _work = (chosen(specs, settings)[0], settings)


def _python_texts() -> AbstractContextManager[None]:
    """Texts as Python's strings while a job runs: Arrow's cost more, of tables this small. Not for
    longer, as a job may run in the process of its caller: pandas 3.1 names no months then."""
    import pandas as pd

    return pd.option_context("mode.string_storage", "python")


def _tables(jobs: Sequence[_Job]) -> list[Built]:
    """Class and reg databases of one process's share."""
    assert _work is not None
    listed, settings = _work
    with _python_texts():
        return [build_table(listed[i], settings, room) for i, room in jobs]


def _series(jobs: Sequence[_Job]) -> list[Built]:
    """Time-series databases of one process's share."""
    assert _work is not None
    listed, settings = _work
    out: list[Built] = []
    with _python_texts():
        for i, room in jobs:
            built = Built(listed[i].name, licence=listed[i].licence, once=listed[i].once)
            try:
                build_series(listed[i], settings, built, room)
            except Exception as error:  # as in build_table
                if machine_failed(error):
                    raise
                built.refuse("broke", f"series broke: {type(error).__name__}: {error}"[:200])
            out.append(built)
    return out


def without_copies(built: Built, seen: dict[str, frozenset[str]]) -> Built:
    """The same, or nothing where an earlier source gave a copy of the table; notes it in `seen`."""
    for other, marks in seen.items():
        if built.rows and other != built.source and same_table(built.marks, marks):
            copy = Refusal("copy", f"a copy of {other}")
            return replace(built, rows=[], refused=[*built.refused, copy])
    if built.rows:
        seen[built.source] = built.marks
    return built


def run_tables(specs: Sequence[str], settings: Settings, workers: int, wanted: int) -> list[Built]:
    """Tables in a seeded order until `wanted` databases are there: first a third of them time
    series, which few tables give, then class and reg, at most `per_table` in all from a table. Of a
    large number some more are built, since tables like each other are known by their files, and
    may ask the same."""
    listed, alone = chosen(specs, settings)
    order = list(range(len(listed)))
    random.Random(derive_seed(settings.seed, "tables")).shuffle(order)
    seen: dict[str, frozenset[str]] = {}
    with (
        WorkerPool(workers, _start, (list(specs), settings), apart=True) as crew,
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
        kinds, with_spare = settings.wishes.kinds, wanted + wanted // SPARE
        if "ts" in kinds:
            most = wanted // 3 if len(kinds) > 1 else wanted
            found += through(_series, [(i, settings.per_table) for i in order], max(1, most))
        done = sum(len(built.rows) for built in found)
        if set(kinds) != {"ts"} and done < with_spare:
            gave = Counter(built.source for built in found for _ in built.rows)
            left = [(i, settings.per_table - gave[listed[i].name]) for i in order]
            found += through(_tables, [job for job in left if job[1] > 0], with_spare - done)
    return found + _unasked(listed, found, kinds, wanted)


def _unasked(
    listed: Sequence[Source], found: Sequence[Built], kinds: Mapping[str, object], wanted: int
) -> list[Built]:
    """The tables of which nothing is known to say: other tables had given enough before."""
    spoken = {b.source for b in found if b.rows or b.refused or b.doubts}
    enough = sum(len(built.rows) for built in found) >= wanted
    why = "not needed: other tables gave enough" if enough else "no column is a time"
    left = [source for source in listed if source.name not in spoken]
    return [_refused(source, "unasked", why) for source in left]
