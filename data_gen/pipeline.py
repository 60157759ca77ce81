"""How every builder makes a set of tasks, from top to bottom:

    sources → groups and splits → drafts → gold → second proof → words → checks → files

A builder gives the parts that are its own (`Builder`). `tasks_of` leads the drafts of one source
through gold, second proof, words and checks; `Builder.build` does so over sources that it divides
into splits; `finish` writes the splits, the certificate and a line for every input.
"""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Generic, Protocol, TypeVar

from assay.console import DONE, UNUSABLE, Parser, add_out, add_seed
from assay.family import family_named
from assay.fingerprints import normal
from assay.record import GOLD
from assay.task import Answer, Task, TaskError, derive_seed
from data_gen.certificate import (
    AGREED,
    CERTIFICATE,
    Input,
    Refusal,
    Refused,
    Shared,
    Tally,
    certificate,
    counted,
    say_empty,
    say_inputs,
    write_set,
)
from data_gen.describe import add_described
from data_gen.splits import HELDOUT, SPLITS, add_shares, sides_of, wanted_of

Source = TypeVar("Source")
Draft = TypeVar("Draft")
Gold = TypeVar("Gold")
Parts = dict[str, list[Task]]  # tasks by split

TRIES = 20  # drafts for each task that is wanted of a source


class Made(Parts):
    """Tasks by split, and what became of the drafts."""

    def __init__(self) -> None:
        super().__init__()
        self.tally = Tally()


class Noted(Protocol):
    """Where it is noted what became of drafts: a `Tally`, or the record of one table."""

    proof: Counter[str]

    def refuse(self, why: Refusal, inputs: Iterable[str] = ()) -> None: ...


class Builder(ABC, Generic[Source, Draft, Gold]):
    """What a builder of tasks gives. Every part may raise `Refused`: then the draft becomes no
    task, and the certificate counts why."""

    def sources(self) -> Mapping[str, Source]:
        """What tasks are drawn from, by name. A source is in one split, so what belongs together is
        one source. A task's `meta.source` is its name, and its `meta.licence` what it is under."""
        raise NotImplementedError

    def draft(self, source: Source, rng: Random) -> Draft | None:
        """A candidate: what is asked of a source, drawn by `rng` alone; None where nothing fits."""
        raise NotImplementedError

    def drafts(self, source: Source, rng: Random, made: Sequence[Task]) -> Iterator[Draft]:
        """Candidates in the order in which they are tried; `made` grows by those that became
        tasks. A source that gives none `TRIES` times is left."""
        idle = 0
        while idle < TRIES:
            before, draft = len(made), self.draft(source, rng)
            if draft is not None:
                yield draft
            idle = 0 if len(made) > before else idle + 1

    @abstractmethod
    def gold(self, draft: Draft) -> Gold:
        """The answer."""

    @abstractmethod
    def again(self, draft: Draft, gold: Gold) -> str | None:
        """Compute the answer in another way, with other code. Raises `Refused(DIFFERS, …)` where
        it is not `gold`. What it returns is counted as the verdict; None: "agreed"."""

    @abstractmethod
    def words(self, draft: Draft, gold: Gold) -> str:
        """The question."""

    @abstractmethod
    def task(self, draft: Draft, gold: Gold, words: str) -> Task:
        """The task. Where copies and kin are known only when all drafts are there, as of DARE's
        databases, what stands for a task until then; its builder makes the tasks of it."""

    def check(self, draft: Draft, gold: Gold, task: Task) -> None:
        """Raises `Refused` for a task that must not be written: gold does not score 1, or an empty
        answer scores."""
        # most builders check their gold in another way
        from rewards.audit_laws import empty_law, gold_law, gold_of, scored

        family = family_named(task.family)
        for law in (
            gold_law(task, scored(task, gold_of(family, task))),
            empty_law(task, scored(task, Answer())),
        ):
            for broken in law:
                raise Refused(f"law broken: {broken.law}", broken.why)

    def fault(self, error: Exception) -> Refusal | None:
        """Why a draft is refused of which a part broke; None: the build ends with the error."""
        return None

    def inputs(self, draft: Draft) -> Iterable[str]:
        """The inputs that a draft is about, as the lines of the build call them."""
        return ()

    def build(
        self,
        seed: int,
        count: int = 100,
        heldout_share: float = HELDOUT,
        validation_share: float | None = None,
    ) -> Made:
        """About `count` tasks, even over the sources as far as these allow, in splits that share no
        source and no question: what a family's `build` is."""
        sources = self.sources()
        if not sources:
            raise TaskError("its builder gives no source to draw tasks from")

        def rank(name: str) -> int:
            return derive_seed(seed, "source", name)

        side = sides_of(sources, heldout_share, validation_share, rank)
        made, asked = Made(), set[str]()
        for split, wanted in wanted_of(count, side).items():
            mine = sorted((name for name in sources if side[name] == split), key=rank)
            made[split] = []
            for place, name in enumerate(mine):
                most = -(-(wanted - len(made[split])) // (len(mine) - place))
                rng = Random(derive_seed(seed, "drafts", name))
                for task in tasks_of(self, sources[name], most, rng, made.tally, asked):
                    meta = {"source": name, **task.meta}
                    made[split].append(replace(task, split=split, meta=meta))
        return made


def tasks_of(
    builder: Builder[Source, Draft, Gold],
    source: Source,
    most: int,
    rng: Random,
    tally: Noted,
    asked: set[str] | None = None,
) -> list[Task]:
    """Up to `most` tasks of a source; fewer where its drafts run out. `asked`: questions that are
    not asked again."""
    made: list[Task] = []
    for draft in builder.drafts(source, rng, made) if most > 0 else ():
        try:
            made.append(_settled(builder, draft, tally, asked))
        except Refused as refused:
            tally.refuse(refused.why, builder.inputs(draft))
        except Exception as error:
            if (why := builder.fault(error)) is None:
                raise
            tally.refuse(why, builder.inputs(draft))
        if len(made) >= most:
            break
    return made


def _settled(
    builder: Builder[Source, Draft, Gold], draft: Draft, tally: Noted, asked: set[str] | None
) -> Task:
    """The task that a draft becomes. Raises `Refused`, as its parts do."""
    gold = builder.gold(draft)
    tally.proof[builder.again(draft, gold) or AGREED] += 1
    words = builder.words(draft, gold)
    if asked is not None and normal(words) in asked:
        raise Refused("asked already")
    task = builder.task(draft, gold, words)
    builder.check(draft, gold, task)
    if asked is not None:
        asked.add(normal(words))
    return task


def add_table_options(to: Parser, short: str) -> None:
    """The options of every builder over tables; `short` says what is short."""
    add_described(to)
    add_shares(to, "tables, copies as one")
    to.add_argument("--short", action="store_true", help=short)
    add_out(to, "folder to write into", required=True)
    add_seed(to)
    to.add_argument("--workers", type=int, default=0, help="processes; 0: all cores")


_PIECE = re.compile(r"\d|[^\W\d_]+|[^\w\s]|_|\n")


def pieces(text: str) -> int:
    """About how many tokens a text has: digits, marks and ends of lines one each, four letters of a
    word one."""
    return sum(-(-len(piece) // 4) for piece in _PIECE.findall(text))


def finish(
    builder: str,
    out: Path,
    parts: Mapping[str, Sequence[Task]],
    shares: Shared,
    inputs: Sequence[Input],
    seed: int,
    *,
    tally: Tally | None = None,
    kind: Callable[[Task], str] = lambda task: task.track or "without a track",
    hint: str = "give more sources, or set the shares",
    wanted: int = 0,
    ok: bool = True,
    packages: Iterable[str] = ("assay", *GOLD),
    **own: Any,
) -> int:
    """Write the splits and the certificate, and say what became of every input; returns the exit
    status. Raises `TaskError` where the splits share anything: then nothing is written.

    `kind`: what tasks are counted by on the line of a split; `hint`: what helps where a split is
    empty; `wanted`: tasks that were asked for; `ok`: whether the builder has nothing against the
    set; `own`: what only this builder says in the certificate.
    """
    proof = certificate(
        builder,
        parts,
        shares,
        seed,
        ok=ok,
        packages=packages,
        tally=tally,
        doubts=(doubt for one in inputs for doubt in one.doubts),
        **own,
    )
    if common := {pair: n for pair, n in proof["shared"].items() if any(n.values())}:
        raise TaskError(f"the splits share {common}; nothing was written")
    write_set(out, parts, proof)
    say_inputs(inputs, out)
    say_empty(proof["tasks"], out, hint)
    for name, kinds in counted(parts, lambda task: (kind(task),)).items():
        said = ", ".join(f"{n} {what}" for what, n in kinds.items())
        print(f"{out / name}.jsonl: {len(parts[name])} tasks ({said or 'none'})")
    if proof["proof"]:
        print(f"gold computed twice: {_listed(proof['proof'])}")
    print(f"{out / CERTIFICATE}: nothing is shared; refused {_listed(proof['refused'])}")
    if sum(proof["tasks"].get(name, 0) for name in SPLITS) < wanted:
        print("assay tasks: fewer tasks than asked for: the inputs gave no more", file=sys.stderr)
    return DONE if proof["ok"] else UNUSABLE


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {why}" for why, n in counts.items()) or "nothing"
