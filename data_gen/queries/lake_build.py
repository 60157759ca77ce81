"""`assay tasks lake`: verified questions over folders of tables, with gold pipelines.

Writes `train.jsonl`, `validation.jsonl` and `heldout.jsonl` (a share of the tables of --lakes and
--carried, or all of --heldout), `refused.jsonl` and `certificate.json`; with --obscured also each
over lakes with other names and numbers. Every gold value is computed twice, by pandas and by SQL
over the original file. No table, and no copy of one in another order, is on two sides.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, cast
from uuid import uuid4

from assay import console
from assay.console import Progress
from assay.task import Task, derive_seed
from assay.workers import Named
from data_gen.certificate import Refusal, Refused, Tally, counted, drawn_from
from data_gen.pipeline import Builder, Parts, pieces, tasks_of
from data_gen.queries import lake_checks, ops, pipeline
from data_gen.queries.lake import (
    Lake,
    add_options,
    divided,
    finish_tables,
    need_tables,
    one_sided,
    opened,
    wanted_tasks,
)
from data_gen.queries.lake_checks import Watch, pays, score
from data_gen.queries.lake_questions import KINDS, SIGNS, NoQuestion, question_for
from data_gen.queries.ops import Op, in_order, sources_of
from data_gen.queries.pipeline import Checked, Question, Values
from data_gen.queries.tables import ROWS, Table
from data_gen.rewording import Endpoint, Facts, add_writer, job_of, report, reword_all, writer_of
from rewards.krama.release import COUNTS
from rollouts.krama import LAKE, SYSTEM

TYPES = (
    "numeric_exact",
    "string_exact",
    "list_exact",
    "numeric_approximate",
    "string_approximate",
    "list_approximate",
)


@dataclass(frozen=True)
class Form:
    """What questions over lakes look like. `FULL` is the benchmark's form: plan and pipeline over a
    whole lake. `SHORT` is for small models: one plain table, one or two steps. Its gold is a short
    script, written a third time from the steps as data, that prints the value of every step on a
    line of its own. A question becomes a task only if the script, run as a model's script is,
    prints what the pipeline has computed (lake_checks.py)."""

    agent: str = "ds_guru_few_shot"
    kinds: tuple[str, ...] = tuple(KINDS)
    types: tuple[str, ...] = TYPES
    short: bool = False

    def script(self, lake: Lake, question: Question) -> str:
        """What stands in gold in place of the pipeline that was run, "" where nothing does."""
        return pipeline.short_script(question, lake.tables) if self.short else ""


FULL = Form()


COLUMNS = 12  # of a table
STEPS = 2  # beside loading and dropping rows without a number
PROMPT, ANSWER = 300, 130  # tokens, by count of pieces; a chat template adds about 40


def short_lake(lake: Lake) -> Lake:
    """The lake with the tables that one plain statement loads, each asked about alone. A column
    with words for missing values is none of theirs, and neither is one that holds two things."""
    kept = [_plain(t) for t in lake.tables if pipeline.plain_load(t.reading)]
    kept = [t for t in kept if t.numbers and t.groups and len(t.columns) <= COLUMNS]
    why = "--short: not one plain table of at most 12 columns, with numbers and groups"
    found = one_sided(lake, [t for t in lake.tables if t.key in {k.key for k in kept}], why)
    return replace(found, tables=kept, alone=True)


def _plain(table: Table) -> Table:
    holes = set(table.holes)
    numbers = tuple(n for n in table.numbers if n not in holes)
    return replace(
        table,
        numbers=numbers,
        levels={n: table.levels[n] for n in numbers},
        groups=tuple(g for g in table.groups if g not in holes),
        halves=(),
        years=(),
        single_years=(),
    )


def fits(lake: Lake, question: Question) -> str:
    """Why a draft is too long to be asked, "" where it is not."""
    steps = [s for s in question.steps if s.kind not in ("load", "clean")]
    if len(steps) > STEPS:
        return "more than two steps"
    code = pipeline.short_script(question, lake.tables)
    if not code:
        return "a step without a short form"
    if pieces(code) > ANSWER:
        return "a long script"
    from rollouts.environments import ToolSettings
    from rollouts.krama.script import task_text

    long = pieces(task_text(question.text, lake.index, ToolSettings())) > PROMPT
    return "a long prompt" if long else ""


SHORT = Form(
    agent="lake_script",
    kinds=("one_number", "difference", "portion", "count_groups", "best_group", "top_groups"),
    types=("numeric_exact", "string_exact", "list_exact"),
    short=True,
)


TRIES = 60  # drafts for each wanted task, before the lakes are given up
AHEAD = 64  # drafts whose proofs are waited for or kept at once
Job = tuple[Question, Path]  # and the folder that it is about
Prove = Callable[[Iterable[Job]], Iterator[Checked]]
PROVED = Named("data_gen.queries.lake_proof:proved")
NOT_RUN = Checked(None, "not run")


def _first_file(job: Job) -> tuple[Path, str]:
    """The folder and the first file of a question. A process that has read the file keeps it."""
    question, folder = job
    return folder, next((source.path for source in sources_of(question.ops or ())), "")


@dataclass(frozen=True)
class NoDraft:
    """A number that gave no draft: why, for which inputs, and the type of answer that it was to
    have ("": no question was found)."""

    why: Refusal
    inputs: Sequence[str] = ()
    answer_type: str = ""


@dataclass
class LakeTally(Tally):
    """`listed`: what listing everything earns on each task; `facts`: what a rewording of it must
    keep."""

    listed: dict[str, list[tuple[float, float]]] = field(
        default_factory=dict[str, list[tuple[float, float]]]
    )
    facts: dict[str, Facts] = field(default_factory=dict[str, Facts])


@dataclass(frozen=True)
class Run:
    """What the splits of one build share."""

    seed: int
    form: Form
    tally: LakeTally
    prove: Prove


@dataclass(frozen=True)
class Draft:
    """A question of a kind, drawn by the seed `draw`, and what its runs gave. `plain`: the task
    that it asks again, over a lake with other names and numbers."""

    lake: Lake
    question: Question
    kind: str
    draw: int
    checked: Checked = NOT_RUN
    plain: Task | None = None

    @property
    def answer_type(self) -> str:
        return self.question.steps[-1].answer_type

    @property
    def tables(self) -> list[Table]:
        """The tables that the question reads."""
        read = [(source.path, source.part) for source in sources_of(self.question.ops or ())]
        return [t for t in self.lake.tables if (t.path, t.reading.part) in read]

    @property
    def where(self) -> str:
        return f"{self.lake.name}: {self.question.text}"


class LakeBuilder(Builder[Sequence[Lake], Draft, Values]):
    """Questions over the lakes of one split, even over the types of answers and the lakes as far as
    these allow. Task i depends on the seed and the tables alone."""

    def __init__(self, split: str, count: int, run: Run, bar: Progress) -> None:
        self.split, self.run, self.bar = split, run, bar
        self.total = count * TRIES
        self.most = -(-count // len(run.form.types))  # of an answer type
        self.types: Counter[str] = Counter()
        self.watches = {kind: Watch(kind) for kind in run.form.types}

    def drafts(self, source: Sequence[Lake], rng: Random, made: Sequence[Task]) -> Iterator[Draft]:
        """The drafts that the seed draws, in their order, each with the result of its proof.

        Drafts are proved ahead of their turn. When the turn of a draft comes and its type of answer
        has enough tasks, the draft is left out and not counted: how far ahead it was proved, and by
        how many processes, does not show.
        """
        for one in filter(self.wants, self._proved(source)):
            if isinstance(one, NoDraft):
                self.run.tally.refuse(one.why, one.inputs)
                continue
            count = len(made)
            yield one
            self.types[one.answer_type] += len(made) - count
            self.bar.add(len(made) - count)

    def wants(self, one: Draft | NoDraft) -> bool:
        """Whether more tasks with its type of answer are wanted."""
        return self.types[one.answer_type] < self.most

    def _proved(self, lakes: Sequence[Lake]) -> Iterator[Draft | NoDraft]:
        waiting: deque[Draft | NoDraft] = deque()

        def jobs() -> Iterator[Job]:
            for one in self.draws(lakes):
                waiting.append(one)
                if isinstance(one, Draft):
                    yield one.question, one.lake.folder

        for found in self.run.prove(jobs()):
            while isinstance(one := waiting.popleft(), NoDraft):
                yield one
            yield replace(one, checked=found)
        yield from waiting

    def draws(self, lakes: Sequence[Lake]) -> Iterator[Draft | NoDraft]:
        """What the numbers give, from 0 on; nothing of a type that has enough."""
        lakes = [lake for lake in lakes if lake.tables]
        numbers = range(self.total if lakes else 0)
        return filter(None, (self._draw(lakes[n % len(lakes)], n) for n in numbers))

    def _draw(self, lake: Lake, number: int) -> Draft | NoDraft | None:
        rng = Random(derive_seed(self.run.seed, "lake-draft", lake.name, number))
        kind = rng.choice(self.run.form.kinds)
        draw = derive_seed(self.run.seed, lake.name, number, kind)
        try:
            draft = Draft(lake, question_for(lake.tables, kind, draw, lake.links), kind, draw)
        except NoQuestion as error:
            return NoDraft(Refusal("no fitting columns"), [*map(lake.input_name, error.tables)])
        if not self.wants(draft):
            return None
        if self.run.form.short and (why := fits(lake, draft.question)):
            return NoDraft(Refusal(why), self.inputs(draft), draft.answer_type)
        if draft.question.shape in lake.seen:
            return NoDraft(Refusal("asked already"), (), draft.answer_type)
        lake.seen.add(draft.question.shape)
        script = self.run.form.script(lake, draft.question)
        return replace(draft, question=replace(draft.question, script=script))

    def gold(self, draft: Draft) -> Values:
        """What the pipeline gave in the sandbox, run after run."""
        if draft.checked.values is None:
            raise Refused(draft.checked.why)
        return draft.checked.values

    def again(self, draft: Draft, gold: Values) -> str:
        """The same values by SQL over the original file."""
        if why := draft.checked.refused:
            raise Refused(why.code, why.what, draft.where)
        return draft.checked.verdict

    def words(self, draft: Draft, gold: Values) -> str:
        return draft.question.text

    def task(self, draft: Draft, gold: Values, words: str) -> Task:
        """Its id is a hash of what it asks."""
        lake, question = draft.lake, draft.question
        name = f"{derive_seed('lake-task', lake.name, question.shape):016x}"
        answer: dict[str, Any] = {
            "answer_type": draft.answer_type,
            "answer": gold["main-task"],
            "subtasks": pipeline.gold_subtasks(question, gold),
            "pipeline": question.script or question.code(),
        }
        if draft.answer_type == "string_approximate":
            answer["names_only"] = True  # a judge of texts takes a list of all names for right
        if in_order(question.steps[-1].op, draft.answer_type):
            answer["ordered"] = True
        return Task(
            id=f"lake-{lake.name}-{name}",
            family="answer",
            track=f"lake-{lake.name}",
            split=self.split,
            prompt=[{"role": "system", "content": SYSTEM}, {"role": "user", "content": words}],
            gold=answer,
            tools=(self.run.form.agent,),
            files={LAKE: str(lake.folder.resolve())},
            meta={
                **drawn_from(
                    lake.name, [t.about.licence or "unknown" for t in draft.tables], lake.name
                ),
                "benchmark": "lake",
                "kind": draft.kind,
                "draw": draft.draw,
                "steps": len(question.steps),
                "gold_files": sorted({t.path for t in draft.tables}),
                "tables": sorted({t.digest for t in draft.tables}),
                "keys": sorted({t.key for t in draft.tables}),
                "difficulty": "hard" if len(question.steps) > 4 else "easy",
            },
        )

    def check(self, draft: Draft, gold: Values, task: Task) -> None:
        """No listing of everything pays, and no answer is given too often. That gold scores 1 and
        that constants do not was asked of every run (`lake_proof`)."""
        self._note(draft, gold, task, self.watches[draft.answer_type])

    def _note(self, draft: Draft, gold: Values, task: Task, watch: Watch | None) -> None:
        pair = draft.checked.listing
        if pays(pair):
            raise Refused("listing everything pays", where=draft.where)
        if watch is not None:
            if not watch.admits(gold["main-task"]):
                raise Refused("an answer given too often")
            self.run.tally.listed.setdefault(watch.answer_type, []).append(pair)
        self.run.tally.facts[task.id] = facts_of(draft.question, draft.tables, gold["main-task"])

    def inputs(self, draft: Draft) -> list[str]:
        return [draft.lake.input_name(table.key) for table in draft.tables]


class ObscuredBuilder(LakeBuilder):
    """A lake's tasks asked again over the lake with other names and numbers, each with the answer
    that its pipeline gives there. A task is dropped when it does not validate there, or when its
    answer did not change: memory could still answer it."""

    def again_over(self, lake: Lake, tasks: Sequence[Task], target: Path) -> list[Task]:
        """The tasks of one lake over its copy in `target`."""
        if not tasks:
            return []
        from data_gen.queries.obscured import obscure_tables

        used = {str(path) for task in tasks for path in task.meta["gold_files"]}
        tables = obscure_tables(lake.folder, lake.name, lake.tables, used, self.run.seed, target)
        self.plain = tasks
        other = Lake(target, lake.name, tables, alone=lake.alone)
        return tasks_of(self, [other], len(tasks), Random(0), self.run.tally)

    def wants(self, one: Draft | NoDraft) -> bool:
        return True

    def draws(self, lakes: Sequence[Lake]) -> Iterator[Draft | NoDraft]:
        (lake,) = lakes
        for task in self.plain:
            self.bar.add(1)
            kind, draw = task.meta["kind"], task.meta["draw"]
            try:
                asked = question_for(lake.tables, kind, draw, lake.links)
            except NoQuestion:  # other numbers: what the draw takes is not there
                yield NoDraft(Refusal("obscured: another question"))
                continue
            asked = replace(asked, script=self.run.form.script(lake, asked))
            yield Draft(lake, asked, kind, draw, plain=task)

    def gold(self, draft: Draft) -> Values:
        values = draft.checked.values
        assert draft.plain is not None
        plain = draft.plain.gold
        if values is None:
            raise Refused(f"obscured: {draft.checked.why}")
        if [s.kind for s in draft.question.steps] != [s["kind"] for s in plain["subtasks"]]:
            raise Refused("obscured: another question")
        if score(draft.question, values["main-task"], plain["answer"]) > 0.95:
            raise Refused("obscured: the same answer")
        return values

    def task(self, draft: Draft, gold: Values, words: str) -> Task:
        assert draft.plain is not None
        new, plain = super().task(draft, gold, words), draft.plain
        return replace(
            new,
            id=f"{plain.id}-obscured",
            gold={**new.gold, "plain_answer": plain.gold["answer"]},
            meta={**new.meta, "mode": "obscured", "plain": plain.id},
        )

    def check(self, draft: Draft, gold: Values, task: Task) -> None:
        self._note(draft, gold, task, None)

    def inputs(self, draft: Draft) -> list[str]:
        return []  # its tables are no inputs of the build


def build(args: argparse.Namespace) -> int:
    """Write the folder; returns the exit status. Raises `TaskError`."""
    writer = writer_of(args, args.out)
    form = SHORT if args.short else FULL
    with opened(args, [*args.heldout, *args.lakes]) as (lakes, crew):
        lakes = [short_lake(lake) for lake in lakes] if args.short else lakes
        held, train = lakes[: len(args.heldout)], lakes[len(args.heldout) :]
        need = f". A table needs column names, {ROWS[0]} rows or more, and a column of numbers"
        need_tables(lakes, args, need)
        sides = divided(train, held, args.heldout_share, args.validation_share, args.seed)
        tally, parts = LakeTally(), Parts()
        prove = partial(crew.map, partial(PROVED, uuid4().hex), ahead=AHEAD, near=_first_file)
        run = Run(args.seed, form, tally, prove)
        with Progress("lakes", "tasks", args.count) as bar:
            for split, count in wanted_tasks(sides, args).items():
                builder = LakeBuilder(split, count, run, bar)
                parts[split] = tasks_of(builder, sides[split], count, Random(0), tally)
        if args.obscured:
            parts |= _obscured(parts, sides, run, args.out / "obscured")
    own: dict[str, Any] = {}
    if writer is not None:
        parts, told = reworded_tasks(parts, tally.facts, writer, args.seed)
        own["wordings"] = told
        why = ", ".join(f"{n} {why}" for why, n in told["refused"].items())
        print(f"reworded: {told['reworded']} of {told['asked']}; refused {why or 'none'}")
    constants = {n: lake_checks.best_constants(tasks) for n, tasks in parts.items() if tasks}
    pay = [f"{n}: {why}" for n, found in constants.items() for why in lake_checks.paying(found)]
    for why in pay:
        print(f"assay tasks: {why}", file=sys.stderr)
    return finish_tables(
        "lake",
        args,
        [lake for side in sides.values() for lake in side],
        parts,
        tally,
        ok=not pay,
        answer_types=counted(parts, lambda t: (str(t.gold["answer_type"]),)),
        tables_a_question=counted(parts, lambda t: (str(len(t.meta["keys"])),)),
        domains=counted(parts, lambda t: (str(t.meta["domain"]),)),
        constants=constants,
        constants_that_pay=pay,
        listing_everything=lake_checks.listings_earn(tally.listed),
        **own,
    )


def _obscured(parts: Parts, sides: Mapping[str, Sequence[Lake]], run: Run, out: Path) -> Parts:
    made: Parts = {}
    total = sum(map(len, parts.values()))
    with Progress("obscured lakes", "tasks", total) as bar:
        for split, tasks in parts.items():
            builder = ObscuredBuilder(split, len(tasks), run, bar)
            found = made.setdefault(f"{split}_obscured", [])
            for lake in sides[split]:
                here = str(lake.folder.resolve())
                own = [t for t in tasks if t.files[LAKE] == here]
                found += builder.again_over(lake, own, out / split / lake.name)
    return made


# --- other words (`--writer`): what a rewording must keep, and the tasks with their words

# sentences that say how to count and how to answer
_FIXED = re.compile(
    r"(?:Skip rows|Some cells hold|Consider only|Answer with|List them|Give the number)"
    r".*?\.(?= [A-Z]|$)"
)
_PHRASES = re.compile(
    r"rounded to (?:a whole number|\d+ decimals?)|\(negative if it is lower\)"
    r"|(?:before|after) the last comma|in brackets at the end|per-value figures"
    r"|[\d.]+ of the way from the [a-z ]+ to the [a-z ]*last|linearly interpolated"
    r"|(?:second|third) (?:highest|lowest)|percentage of its former value|\(negative if it fell\)"
    r"|percentage of the total|highest of them exceed the lowest"
    r"|over those of these rows that have the same"
    r"|by ordinary least squares|Pearson correlation|standard deviation \(n - 1\)"
)


def facts_of(question: Question, tables: Sequence[Table], answer: Any) -> Facts:
    """What a rewording of the question must keep, from its typed steps."""
    steps = question.ops or ()
    said = [words for t in tables for words in (t.about.title, *t.about.columns.values()) if words]
    literals = [*_FIXED.findall(question.text), *_PHRASES.findall(question.text)]
    literals += [source.path for source in sources_of(steps)] + [f"({words})" for words in said]
    together = [pair for op in steps if (pair := _together(op))]
    in_order = [pair for op in steps if (pair := _in_order(op, steps))]
    answers: list[Any] = cast("list[Any]", answer) if isinstance(answer, list) else [answer]
    return Facts(
        tuple(dict.fromkeys(part for part in literals if part in question.text)),
        tuple(together),
        tuple(in_order),
        tuple(a if isinstance(a, str) else repr(a) for a in answers),
    )


def _together(op: Op) -> tuple[str, ...]:
    match op:
        case ops.Keep(column, value):
            return (f"'{column}'", repr(value))
        case ops.Limit(column, sign, limit):
            return (f"'{column}'", SIGNS[sign], f"{limit:g}")
        case ops.Portion(column, sign, limit):
            return (f"'{column}'", SIGNS[sign], f"{limit:g}")
        case ops.Share(by, value):
            return (f"'{by}'", repr(value))
        case _:
            return ()


def _in_order(op: Op, steps: Sequence[Op]) -> tuple[str, ...]:
    """What would ask something else the other way round."""
    match op:
        case ops.Difference(_, one, other):
            return (repr(one), repr(other))
        case ops.Change(one, other):
            return (str(one), str(other))
        case ops.Fit(x, y):
            return (f"'{y}'", f"'{x}'")
        case ops.Best():
            keys = next((o.keys for o in steps if isinstance(o, ops.Group)), ())
            cut = {o.into: o.column for o in steps if isinstance(o, ops.Split)}
            named = tuple(f"'{cut.get(k, k)}'" for k in keys)
            return named if len(named) > 1 else ()
        case ops.Interpolate():
            return ()  # its phrase stands among the literals
        case _:
            return ()


def reworded_tasks(
    parts: Mapping[str, Sequence[Task]], facts: Mapping[str, Facts], writer: Endpoint, seed: int
) -> tuple[dict[str, list[Task]], dict[str, Any]]:
    """(the tasks of each part with their accepted rewordings, what became of all). Raises
    `TaskError` when the endpoint cannot be had."""
    tasks = [task for part in parts.values() for task in part]
    jobs = [job_of(_asked(t), facts[t.id], derive_seed(seed, "rewording", t.id)) for t in tasks]
    with Progress("rewordings", "questions", len(jobs)) as bar:
        found = reword_all(jobs, writer, bar.add)
    said = {task.id: one for task, one in zip(tasks, found, strict=True)}
    made = {
        name: [_with(task, said[task.id].text) for task in part] for name, part in parts.items()
    }
    return made, {"model": writer.model, **report(said)}


def _asked(task: Task) -> str:
    return str(task.prompt[-1]["content"])


def _with(task: Task, text: str) -> Task:
    """The task in other words; `meta.template` keeps the builder's own."""
    if text == _asked(task):
        return task
    prompt = [*task.prompt[:-1], {**task.prompt[-1], "content": text}]
    return replace(task, prompt=prompt, meta={**task.meta, "template": _asked(task)})


# --- the command


def options() -> console.Parser:
    parser = console.parser("tasks lake", __doc__)
    parser.add_argument("--lakes", nargs="*", default=[], type=Path, help="folders to train on")
    parser.add_argument("--heldout", nargs="*", default=[], type=Path, help="folders to test on")
    again = "also ask every question over lakes with other names and numbers"
    parser.add_argument("--obscured", action="store_true", help=again)
    short = "one plain table of at most 12 columns, one or two steps: for small models"
    add_options(parser, 500, short)
    add_writer(parser)
    return parser


def main(argv: Sequence[str]) -> int:
    args = options().parse_args(argv)
    names = {f.parent.name if f.name == "input" else f.name for f in args.lakes}
    if real := sorted(names & {*COUNTS}):
        print(
            f"assay tasks: note: {', '.join(real)}: KramaBench's own lakes; give them with "
            "--heldout when you test on the benchmark",
            file=sys.stderr,
        )
    return build(args)
