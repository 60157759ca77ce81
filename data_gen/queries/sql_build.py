"""`assay tasks sql`: verified text-to-SQL questions over tables and SQLite files.

Writes `train.jsonl`, `validation.jsonl` and `heldout.jsonl`, `refused.jsonl` and
`certificate.json`. Every task carries its database. Gold is computed twice, by SQLite and by pandas
over the original file; a question that another query fits as well is told from it, or refused.
"""

from __future__ import annotations

import argparse
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from assay import console
from assay.console import Progress
from assay.fingerprints import TableMarks
from assay.tables.load import load
from assay.task import Task, TaskError, derive_seed
from data_gen.certificate import UNPROVABLE, Refusal, Refused, Tally, counted, drawn_from
from data_gen.pipeline import Builder, Parts, pieces, tasks_of
from data_gen.proof.original import NotProvable
from data_gen.queries.lake import (
    Lake,
    add_options,
    divided,
    finish_tables,
    need_tables,
    opened,
    wanted_tasks,
)
from data_gen.queries.sql_plans import (
    COLUMNS,
    ONE,
    TWO,
    Made,
    NoPlan,
    Plan,
    Unit,
    draft,
    joined,
    made,
)
from data_gen.queries.sql_tasks import Second, agreed, clauses_needed, focus_of, gold_rows
from data_gen.queries.sql_write import Written, prompt, question, written
from data_gen.queries.tables import Link
from data_gen.splits import SPLITS
from rewards.sql.data import Row
from rewards.sql.family import hard_coded, marks_of
from rewards.sql.score import TWINS, fenced, score_query
from rewards.weights import SqlReward

LIKE = "a table like one of another side"
SHORT_COLUMNS = 8
SHORT_PIECES = 325  # of a prompt: at most 350 tokens of SmolLM2's vocabulary (docs/sql.md)
LONG_CHARACTERS = 6000
_SPARE = 1.6  # tasks made for one that is wanted, so that kinds can be evened out
_TRIES = 5  # drafts of a kind over a table
_JOINS = 3  # databases of two tables, for each table
_HARD = ("above_average", "absent", "share", "top_each", "best_group", "having")


@dataclass(frozen=True)
class Asked:
    """What is wanted of the tables of a folder that are in one split: `most` tasks of each. `of`:
    the options of the build."""

    lake: Lake
    split: str
    most: int
    of: argparse.Namespace


@dataclass
class SqlTally(Tally):
    """`kinds`: drafts by kind; `cut`: what is said of tables of which rows are left out."""

    kinds: Counter[str] = field(default_factory=Counter[str])
    cut: dict[str, str] = field(default_factory=dict[str, str])
    most: int = 2  # of each folder

    def add(self, other: SqlTally, most: int = 5) -> None:
        """Add what another folder gave."""
        self.refused.update(other.refused)
        self.proof.update(other.proof)
        self.kinds.update(other.kinds)
        self.unused.update(other.unused)
        self.cut.update(other.cut)
        self.inputs.update(other.inputs)  # a table is of one folder
        for code, said in other.examples.items():
            kept = self.examples.setdefault(code, [])
            kept += said[: most - len(kept)]


@dataclass
class Draft:
    """A plan over a database, as SQL and in words; `clauses` tell it from other readings."""

    unit: Unit
    plan: Plan
    one: Written
    text: str
    seed: int
    clauses: tuple[str, ...] = ()


class SqlBuilder(Builder[Unit, Draft, list[Row]]):
    """Questions over one folder. A source is a database: a table, or two that can be joined."""

    def __init__(self, asked: Asked, second: Second, tally: SqlTally) -> None:
        self.asked, self.second, self.tally = asked, second, tally

    def units(self) -> Iterator[Unit]:
        """Databases of one table each, then of two tables that can be joined."""
        lake, of, tally = self.asked.lake, self.asked.of, self.tally
        found: dict[int, Made] = {}
        for place, table in enumerate(lake.tables):
            name = lake.input_name(table.key)
            try:
                frame = load(table.reading, lake.folder)
            except (TaskError, OSError) as error:
                tally.unused[name] = str(error)
                continue
            one = made(table, frame, of.rows, SHORT_COLUMNS if of.short else COLUMNS)
            if isinstance(one, str):
                tally.unused[name] = one
                continue
            found[place] = one
            if one.cut:
                tally.cut[name] = one.cut
            yield Unit((one,))
        for place, one in found.items() if not of.short else ():
            ways: dict[tuple[int, str, str], Link] = {}
            for link in lake.links[place]:
                ways.setdefault((link.other, link.mine, link.theirs), link)
            pairs = [(found[k.other], k) for k in ways.values() if k.other in found]
            units = [joined(one, o, k) for o, k in pairs if o.table.name != one.table.name]
            yield from list(filter(None, units))[:_JOINS]

    def drafts(self, source: Unit, rng: Random, made: Sequence[Task]) -> Iterator[Draft]:
        """A question of each kind in turn; of one table in two rounds."""
        kinds = [*(TWO if source.link else ONE)]
        rng.shuffle(kinds)
        shapes: set[str] = set()
        for _ in range(1 if source.link else 2):
            for kind in kinds:
                before = len(made)
                for plan in self._plans(source, kind, rng, shapes):
                    one, text = written(plan, source), question(plan, source, rng)
                    name = self.asked.lake.name
                    seed = derive_seed(self.asked.of.seed, "sql-twins", name, plan.shape)
                    yield Draft(source, plan, one, text, seed)
                    if len(made) > before:
                        shapes.add(plan.shape)
                        break

    def _plans(self, unit: Unit, kind: str, rng: Random, shapes: set[str]) -> Iterator[Plan]:
        tried: list[Plan] = []
        for _ in range(_TRIES):
            try:
                plan = draft(unit, kind, rng)
            except NoPlan:
                why = Refusal("its columns do not fit the kind of question")
                self.tally.note(why, self._names(unit))
                continue
            if plan.shape in shapes:
                self.tally.refuse(Refusal("asked already"))
            elif plan not in tried:
                tried.append(plan)
                self.tally.kinds[kind] += 1
                yield plan

    def gold(self, draft: Draft) -> list[Row]:
        return gold_rows(draft.plan, draft.unit, draft.one)

    def again(self, draft: Draft, gold: list[Row]) -> str:
        return agreed(draft.plan, draft.unit, gold, draft.one, self.second, self.asked.of.rows)

    def words(self, draft: Draft, gold: list[Row]) -> str:
        """The question, with the clauses that tell it from what else it might mean."""
        try:
            draft.clauses = clauses_needed(
                draft.plan, draft.unit, draft.one, draft.text, gold, draft.seed
            )
        except NotProvable as error:
            raise Refused(UNPROVABLE, str(error)) from None
        return " ".join([draft.text, *draft.clauses])

    def task(self, draft: Draft, gold: list[Row], words: str) -> Task:
        unit, plan, lake, of = draft.unit, draft.plan, self.asked.lake.name, self.asked.of
        body, stated = prompt(words, unit), of.stated_licence or "unknown"
        if len(body) > LONG_CHARACTERS or (of.short and pieces(body) > SHORT_PIECES):
            raise Refused("a prompt that is too long")
        tables = [m.described for m in unit.made]
        name = f"{derive_seed('sql-task', lake, *(t.key for t in tables), plan.shape):016x}"
        return Task(
            id=f"sql-{lake}-{name}",
            family="sql",
            track=f"sql-{plan.kind}",
            split=self.asked.split,
            prompt=[{"role": "user", "content": body}],
            gold={
                "sql": draft.one.sql,
                "ordered": draft.one.ordered,
                "database": unit.packed,
                "focus": [list(f) for f in focus_of(plan, unit)],
                "seed": draft.seed,
                "twins": TWINS,
                "result": [list(row) for row in gold],
            },
            meta={
                **drawn_from(lake, [t.about.licence or stated for t in tables]),
                "benchmark": "sql",
                "database": f"{lake}/{tables[0].key}",
                "kind": plan.kind,
                "question": words,
                "clauses": list(draft.clauses),
                "tables_asked": str(len(unit.made)),
                **({"rows": cuts} if (cuts := [m.cut for m in unit.made if m.cut]) else {}),
                "difficulty": "hard" if len(unit.made) > 1 or plan.kind in _HARD else "easy",
                "tables": sorted({t.digest for t in tables}),
                "keys": sorted({t.key for t in tables}),
            },
        )

    def check(self, draft: Draft, gold: list[Row], task: Task) -> None:
        """Gold scores 1, and its rows written down are not paid."""
        score = score_query(task.gold, fenced(task.gold["sql"]), False, SqlReward())
        if (score.outcome, score.reward) != (1.0, 1.0):
            raise Refused("gold does not score 1", f"{task.gold['sql']} ({score.why})")
        if score_query(task.gold, hard_coded(task), False, SqlReward()).reward:
            raise Refused("gold does not score 1", "its rows written down are paid")

    def inputs(self, draft: Draft) -> list[str]:
        return self._names(draft.unit)

    def _names(self, unit: Unit) -> list[str]:
        return [self.asked.lake.input_name(m.described.key) for m in unit.made]


def generate(asked: Asked) -> tuple[list[Task], SqlTally]:
    """The tasks of one folder, in an order that depends on the seed and the tables alone."""
    tally, second = SqlTally(), Second(asked.lake.folder)
    builder = SqlBuilder(asked, second, tally)
    tasks: list[Task] = []
    try:
        for unit in builder.units():
            keys = [m.described.key for m in unit.made]
            rng = Random(derive_seed(asked.of.seed, "sql-unit", asked.lake.name, *keys))
            most = asked.most if len(unit.made) == 1 else max(1, asked.most // 3)
            tasks += tasks_of(builder, unit, most, rng, tally)
    finally:
        second.close()
    return tasks, tally


def without_like(made: Sequence[Task], reasons: Counter[str]) -> list[Task]:
    """The tasks without those over a table that is like one of a stricter side, by its columns,
    its rows or its quantities: held out is strictest, then validation. Others are counted."""
    kept: list[Task] = []
    known: list[TableMarks] = []
    for side in reversed(SPLITS):
        mine: dict[str, tuple[TableMarks, ...]] = {}
        for task in made:
            if task.split == side:
                text = str(task.gold["database"])
                mine.setdefault(text, marks_of(text))
        shared = {text for text, tables in mine.items() if any(_like(t, known) for t in tables)}
        own = [task for task in made if task.split == side]
        kept += [task for task in own if task.gold["database"] not in shared]
        reasons[LIKE] += sum(task.gold["database"] in shared for task in own)
        known += [t for text, tables in mine.items() if text not in shared for t in tables]
    reasons += Counter()  # without what never was
    return kept


def _like(table: TableMarks, known: Sequence[TableMarks]) -> bool:
    marks = table.all()
    return any(not marks.isdisjoint(other.all()) and table.like(other) for other in known)


def spread(tasks: Sequence[Task], count: int) -> list[Task]:
    """`count` tasks, even over kinds and then over tables as far as these allow, in the order
    given."""
    left: dict[str, list[int]] = {}
    for place, task in enumerate(tasks):
        left.setdefault(str(task.meta["kind"]), []).append(place)
    kinds: Counter[str] = Counter()
    tables: Counter[str] = Counter()
    chosen: list[int] = []
    while len(chosen) < count and left:
        kind = min(left, key=lambda name: (kinds[name], name))
        place = min(left[kind], key=lambda at: (tables[str(tasks[at].meta["database"])], at))
        left[kind].remove(place)
        if not left[kind]:
            del left[kind]
        kinds[kind] += 1
        tables[str(tasks[place].meta["database"])] += 1
        chosen.append(place)
    return [tasks[place] for place in sorted(chosen)]


def options() -> console.Parser:
    parser = console.parser("tasks sql", __doc__)
    tables = "folders of tables: text, workbooks, JSON, Parquet, SQLite files"
    parser.add_argument("--tables", nargs="*", default=[], type=Path, metavar="DIR", help=tables)
    rows = (
        "of a table that are used, from its top; where it has more, the build and the task say so"
    )
    parser.add_argument("--rows", type=int, default=20_000, help=rows)
    add_options(parser, 1000, "one table of at most 8 columns, prompts of at most 350 tokens")
    return parser


def build(args: argparse.Namespace) -> int:
    """Write the folder; returns the exit status. Raises `TaskError`."""
    if args.rows < 15:
        raise TaskError("--rows: 15 or more")
    if not args.tables and not args.carried:
        raise TaskError("no tables: give folders with --tables, or --carried")
    tasks: list[Task] = []
    tally = SqlTally()
    with opened(args, args.tables, bare=True) as (lakes, crew):
        need_tables(lakes, args)
        shares = args.heldout_share, args.validation_share
        sides = divided(lakes, [], *shares, args.seed, linked=True)
        wanted = wanted_tasks(sides, args)
        jobs: list[Asked] = []
        for split, own in sides.items():
            each = -(-round(_SPARE * wanted[split]) // max(1, sum(len(k.tables) for k in own)))
            jobs += [Asked(k, split, max(2, each), args) for k in own if k.tables]
        with Progress("questions", "folders", len(jobs)) as bar:
            for made, found in crew.map(generate, jobs):
                tasks += made
                tally.add(found)
                bar.add(1)
    kept = without_like(tasks, tally.refused)
    parts: Parts = {n: spread([t for t in kept if t.split == n], wanted[n]) for n in SPLITS}
    lakes = [_told(lake, tally.cut) for own in sides.values() for lake in own]
    status = finish_tables(
        "sql",
        args,
        lakes,
        parts,
        tally,
        tables={n: len({str(t.meta["database"]) for t in ts}) for n, ts in parts.items()},
        tables_a_question=counted(parts, lambda t: (str(t.meta["tables_asked"]),)),
        prompt_characters={
            n: max((len(t.prompt[0]["content"]) for t in tasks), default=0)
            for n, tasks in parts.items()
        },
        drafts=dict(sorted(tally.kinds.items())),
        told_apart_by_a_clause=sum(bool(t.meta["clauses"]) for t in tasks),
        rows_left_out=dict(sorted(tally.cut.items())),
        sqlite=sqlite3.sqlite_version,
    )
    if not tasks:
        raise TaskError(f"{args.out}: no question over these tables passed every check")
    return status


def _told(lake: Lake, cut: Mapping[str, str]) -> Lake:
    """The lake, its tables with what is said of rows that are left out."""
    notes = [(cut[n],) if (n := lake.input_name(t.key)) in cut else () for t in lake.tables]
    tables = [replace(t, notes=(*n, *t.notes)) for t, n in zip(lake.tables, notes, strict=True)]
    return replace(lake, tables=tables)


def main(argv: Sequence[str]) -> int:
    return build(options().parse_args(argv))
