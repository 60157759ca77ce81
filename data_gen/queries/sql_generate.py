"""Tasks over one folder of tables: questions drawn, proved, told from their other readings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from assay.seeds import derive_seed
from assay.task import Task, TaskError
from data_gen.proof.original import NotProvable
from data_gen.queries.database import COLUMNS, Made, Unit, joined, made, read_frame
from data_gen.queries.links import Links
from data_gen.queries.sql_pandas import Second
from data_gen.queries.sql_plans import Kind, NoPlan, Plan, draft, kinds_of
from data_gen.queries.sql_prove import Proved, Refused, proved
from data_gen.queries.sql_wording import pieces, prompt, question
from data_gen.queries.sql_write import Written, written
from data_gen.queries.tables import Table
from data_gen.tally import UNPROVABLE, Refusal, Tally
from rewards.sql.family import hard_coded
from rewards.sql.score import TWINS, SqlReward, fenced, score_query

TRIES = 5  # drafts of a kind over a table
SHORT_COLUMNS = 8
SHORT_PIECES = 325  # of a prompt: at most 350 tokens of SmolLM2's vocabulary (docs/sql.md)
LONG_CHARACTERS = 6000
_JOINS = 3  # databases of two tables, for each table


@dataclass(frozen=True)
class Asked:
    """What is wanted of a folder: which of its tables, on which side, and how many tasks of each
    table."""

    folder: Path
    name: str
    tables: tuple[Table, ...]
    links: Links
    sides: dict[str, str]  # by key of a table
    most: dict[str, int]  # tasks of a table, by its side
    rows: int
    seed: int
    short: bool
    licence: str


@dataclass
class SqlTally(Tally):
    """`kinds`: drafts by kind; `clauses`: tasks that a clause tells from another reading; `cut`:
    what is said of tables of which rows are left out."""

    kinds: Counter[str] = field(default_factory=Counter[str])
    clauses: int = 0
    cut: dict[str, str] = field(default_factory=dict[str, str])
    most: int = 2  # of each folder

    def add(self, other: SqlTally, most: int = 5) -> None:
        """Add what another folder gave."""
        self.refused.update(other.refused)
        self.proof.update(other.proof)
        self.kinds.update(other.kinds)
        self.clauses += other.clauses
        self.unused.update(other.unused)
        self.cut.update(other.cut)
        self.inputs.update(other.inputs)  # a table is of one folder
        for code, said in other.examples.items():
            kept = self.examples.setdefault(code, [])
            kept += said[: most - len(kept)]


def generate(asked: Asked) -> tuple[list[Task], SqlTally]:
    """The tasks of one folder, in an order that depends on the seed and the tables alone."""
    tally = SqlTally()
    second = Second(asked.folder)
    tasks: list[Task] = []
    try:
        for place, unit in _units(asked, tally):
            table = asked.tables[place]
            side = asked.sides[table.key]
            tasks += _of_unit(asked, unit, side, second, tally)
    finally:
        second.close()
    tally.proof.update(second.verdicts)
    return tasks, tally


def _units(asked: Asked, tally: SqlTally) -> Iterator[tuple[int, Unit]]:
    """Databases of one table each, then of two tables on one side that can be joined."""
    found: dict[int, Made] = {}
    columns = SHORT_COLUMNS if asked.short else COLUMNS
    for place, table in enumerate(asked.tables):
        if table.key not in asked.sides:
            continue
        name = f"{asked.name}/{table.key}"
        try:
            frame = read_frame(table, asked.folder)
        except (TaskError, OSError) as error:
            tally.unused[name] = str(error)
            continue
        one = made(table, frame, asked.rows, columns)
        if isinstance(one, str):
            tally.unused[name] = one
            continue
        found[place] = one
        if one.cut:
            tally.cut[name] = one.cut
        yield place, Unit((one,))
    for place, one in found.items() if not asked.short else ():
        count = 0
        for link in dict.fromkeys((k.other, k.mine, k.theirs) for k in asked.links[place]):
            other = found.get(link[0])
            sides = asked.sides
            if other is None or sides[one.described.key] != sides[other.described.key]:
                continue
            if other.table.name == one.table.name:
                continue
            first = next(k for k in asked.links[place] if (k.other, k.mine, k.theirs) == link)
            unit = joined(one, other, first)
            if unit is not None and count < _JOINS:
                count += 1
                yield place, unit


def _of_unit(asked: Asked, unit: Unit, side: str, second: Second, tally: SqlTally) -> list[Task]:
    """Up to `most` tasks of one database, of as many kinds as there are."""
    keys = [m.described.key for m in unit.made]
    rng = Random(derive_seed(asked.seed, "sql-unit", asked.name, *keys))
    kinds = list(kinds_of(unit))
    rng.shuffle(kinds)
    most = asked.most[side] if len(unit.made) == 1 else max(1, asked.most[side] // 3)
    shapes: set[str] = set()
    tasks: list[Task] = []
    for round_ in range(2):
        for kind in kinds:
            if len(tasks) >= most or (round_ and len(unit.made) > 1):
                return tasks
            task = _one(asked, unit, kind, side, second, tally, rng, shapes)
            if task is not None:
                tasks.append(task)
    return tasks


def _one(
    asked: Asked,
    unit: Unit,
    kind: Kind,
    side: str,
    second: Second,
    tally: SqlTally,
    rng: Random,
    shapes: set[str],
) -> Task | None:
    tried: list[Plan] = []
    names = [f"{asked.name}/{m.described.key}" for m in unit.made]
    for _ in range(TRIES):
        try:
            plan = draft(unit, kind, rng)
        except NoPlan:
            tally.note(Refusal("its columns do not fit the kind of question"), names)
            continue
        if plan.shape in shapes:
            tally.refuse(Refusal("asked already"))
            continue
        if plan in tried:
            continue
        tried.append(plan)
        tally.kinds[kind] += 1
        seed = derive_seed(asked.seed, "sql-twins", asked.name, plan.shape)
        try:
            one = written(plan, unit)
            text = question(plan, unit, rng)
            found = proved(plan, unit, one, text, second, asked.rows, seed)
            task = _task(asked, unit, plan, one, text, found, seed, side)
        except Refused as error:
            tally.refuse(error.why, names)
            continue
        except NotProvable as error:
            tally.refuse(Refusal(UNPROVABLE, str(error)), names)
            continue
        if (why := _unscored(task)) != "":
            tally.refuse(Refusal("gold does not score 1", why), names)
            continue
        shapes.add(plan.shape)
        tally.clauses += bool(found.clauses)
        return task
    return None


def _unscored(task: Task) -> str:
    """Why gold and its rows written down are not scored as they should be, "" where they are."""
    score = score_query(task.gold, fenced(task.gold["sql"]), False, SqlReward())
    if (score.outcome, score.reward) != (1.0, 1.0):
        return f"{task.gold['sql']} ({score.why})"
    constant = score_query(task.gold, hard_coded(task), False, SqlReward())
    return "its rows written down are paid" if constant.reward else ""


def _task(
    asked: Asked,
    unit: Unit,
    plan: Plan,
    one: Written,
    text: str,
    found: Proved,
    seed: int,
    side: str,
) -> Task:
    whole = " ".join([text, *found.clauses])
    body = prompt(whole, unit)
    if len(body) > LONG_CHARACTERS or (asked.short and pieces(body) > SHORT_PIECES):
        raise Refused("a prompt that is too long")
    tables = [m.described for m in unit.made]
    name = f"{derive_seed('sql-task', asked.name, *(t.key for t in tables), plan.shape):016x}"
    return Task(
        id=f"sql-{asked.name}-{name}",
        family="sql",
        track=f"sql-{plan.kind}",
        split=side,
        prompt=[{"role": "user", "content": body}],
        gold={
            "sql": one.sql,
            "ordered": one.ordered,
            "database": unit.packed,
            "focus": [list(f) for f in found.focus],
            "seed": seed,
            "twins": TWINS,
            "result": [list(row) for row in found.rows],
        },
        meta={
            "benchmark": "sql",
            "source": asked.name,
            "database": f"{asked.name}/{tables[0].key}",
            "kind": plan.kind,
            "question": whole,
            "clauses": list(found.clauses),
            "tables_asked": str(len(unit.made)),
            **({"rows": cuts} if (cuts := [m.cut for m in unit.made if m.cut]) else {}),
            "difficulty": "hard" if len(unit.made) > 1 or plan.kind in _HARD else "easy",
            "tables": sorted({t.digest for t in tables}),
            "keys": sorted({t.key for t in tables}),
            "licences": sorted({t.about.licence or asked.licence or "unknown" for t in tables}),
        },
    )


_HARD = ("above_average", "absent", "share", "top_each", "best_group", "having")


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
