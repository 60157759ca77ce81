"""Databases from what an endpoint proposes: each proposal passes the checks of the builder's own.

Tables are asked about in rounds of a fixed size, in a seeded order, until there are enough
databases; so neither the number of processes nor who answered first shows in any byte.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from assay.files import machine_failed
from data_gen.asking import Endpoint, Request, answers
from data_gen.dare.class_reg import Table, opened, tried
from data_gen.dare.database import Built, Settings, texts_of
from data_gen.dare.plans import unwanted
from data_gen.dare.proposals import Proposal, kinds_of, prompt, read
from data_gen.dare.series import build_wanted
from data_gen.dare.sources import Source
from data_gen.proposing import Outcome, Unfit, printable, read_reply, short
from rewards.seeds import derive_seed
from rewards.task import TaskError
from rollouts.sandbox.pool import Pool

ROUND = 8  # tables that are asked about before anything is built of them
MORE = 2  # proposals beyond the databases that a table may give
_LEAST = 120  # rows of a table that is worth asking about

Draft = Mapping[str, Any]  # a proposal as it was said; "" is its number


@dataclass(frozen=True)
class Job:
    """The proposals for one table, by its place among the sources."""

    index: int
    room: int
    drafts: tuple[Draft, ...]
    odd: tuple[Outcome, ...] = ()  # what of the reply cannot be read


def rounds(
    order: Sequence[int], sources: Sequence[Source], settings: Settings, endpoint: Endpoint
) -> Iterator[list[Job]]:
    """The proposals of one round of tables after the other. Raises `TaskError` when the endpoint
    cannot be had."""
    waiting = iter(order)
    while part := list(islice(waiting, ROUND)):
        asked = [(index, _request(sources[index], settings)) for index in part]
        requests = [request for _, request in asked if request is not None]
        replies = iter(answers(endpoint, requests))
        jobs: list[Job] = []
        for index, request in asked:
            drafts, odd = (
                ([], []) if request is None else read_reply(next(replies), sources[index].name)
            )
            jobs.append(Job(index, settings.per_table, tuple(drafts), tuple(odd)))
        yield jobs


def _request(source: Source, settings: Settings) -> Request | None:
    """What is asked about a table; None for one that cannot be read, or is too short."""
    try:
        frame = source.load()
        if len(frame) < _LEAST or frame.shape[1] < 3:
            return None
        texts = texts_of(source, [str(c).strip() for c in frame.columns])
    except TaskError:
        return None
    except Exception as error:  # a table may be anything; the builder says what is wrong with it
        if machine_failed(error):
            raise
        return None
    kinds = kinds_of(settings.wishes.kinds)
    text = prompt(source.title, source.about, texts, frame, kinds, settings.per_table + MORE)
    return text, derive_seed(settings.seed, source.name, "proposals")


async def build_proposed(source: Source, settings: Settings, pool: Pool, job: Job) -> Built:
    """Up to `job.room` databases of one table, in the order of the proposals; never raises for
    what a table or a proposal is."""
    built = Built(source.name, licence=source.licence, outcomes=list(job.odd))
    if not job.drafts:
        opened(source, settings, pool, built)
        built.refused.append("nothing that could be read was proposed for it")
        return built
    maker = _Maker(source, settings, pool, built)
    for draft in job.drafts:
        why = "not needed: the table gave enough"
        if len(built.rows) < job.room:
            why = printable(await maker.why_not(draft))
        built.outcomes.append(Outcome(source.name, draft[""], short(draft), why))
        if why:
            built.refused.append(f"proposal {draft['']}: {why}")
    return built


class _Maker:
    """What tries the proposals of one table."""

    def __init__(self, source: Source, settings: Settings, pool: Pool, built: Built) -> None:
        self.source, self.settings, self.pool, self.built = source, settings, pool, built
        self.done: set[tuple[str, ...]] = set()
        self.table: Table | None = None
        self.no_table = ""

    async def why_not(self, draft: Draft) -> str:
        """Build what is proposed; "" or why it is refused."""
        try:
            proposal = read(draft, kinds_of(self.settings.wishes.kinds))
        except Unfit as error:
            return str(error)
        if proposal.name in self.done:
            return "asks for the same targets again"
        seed = derive_seed(self.settings.seed, self.source.name, "proposal", draft[""])
        why = (
            self._series(proposal, seed)
            if proposal.family == "ts"
            else await self._tabular(proposal, seed)
        )
        if not why:
            self.done.add(proposal.name)
        return why

    def _series(self, proposal: Proposal, seed: int) -> str:
        (target,) = proposal.plan.targets
        try:
            return build_wanted(
                self.source, self.settings, self.built, target, proposal.wanted, seed
            )
        except Exception as error:  # as in class_reg.tried
            if machine_failed(error):
                raise
            return f"broke: {type(error).__name__}: {error}"[:200]

    async def _tabular(self, proposal: Proposal, seed: int) -> str:
        if self.table is None and not self.no_table:
            before = len(self.built.refused)
            self.table = opened(self.source, self.settings, self.pool, self.built)
            self.no_table = "; ".join(self.built.refused[before:])
        table, plan = self.table, proposal.plan
        if table is None:
            return self.no_table
        if named := sorted(set(plan.targets) & table.keys):
            return f"target '{named[0]}': it names what a row is of"
        if why := unwanted(table.looked, table.raw, plan, table.texts):
            return why
        return await tried(table, plan, random.Random(seed), self.built)


Through = Callable[[Sequence[Job]], list[Built]]


def until_enough(found: Iterator[list[Job]], through: Through, wanted: int) -> list[Built]:
    """What the rounds give, until there are enough databases."""
    made: list[Built] = []
    for jobs in found:
        made += through(jobs)
        if sum(len(built.rows) for built in made) >= wanted:
            break
    return made
