"""Tasks over lakes: questions drawn, checked by running them, kept where gold is certain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from assay.seeds import derive_seed
from assay.task import Task
from data_gen.krama.importer import LAKE, SYSTEM
from data_gen.queries.forms import FULL, Form
from data_gen.queries.lake import Lake
from data_gen.queries.lake_checks import score, validate_all
from data_gen.queries.lake_drawing import BATCH, Drawing, checked_batches, names_of, tables_of
from data_gen.queries.lake_questions import question_for
from data_gen.queries.lake_wording import facts_of
from data_gen.queries.obscured import obscure_tables
from data_gen.queries.ops import in_order
from data_gen.queries.pays import Watch, best_listing, pays
from data_gen.queries.pipeline import Frames, Question, gold_subtasks
from data_gen.rewording import Facts
from data_gen.tally import Refusal, Tally

TRIES = 60  # questions a wanted task, before a lake is given up
_EXAMPLES = 5  # sentences kept of a reason


def to_task(
    lake: Lake,
    question: Question,
    values: dict[str, Any],
    split: str,
    kind: str,
    draw: int,
    form: Form = FULL,
) -> Task:
    """A validated question as a task; its id is a hash of what it asks. `draw` is its seed."""
    name = f"{derive_seed('lake-task', lake.name, question.shape):016x}"
    used = tables_of(lake, question)
    opened = sorted({t.path for t in used})
    gold = {
        "answer_type": question.steps[-1].answer_type,
        "answer": values["main-task"],
        "subtasks": gold_subtasks(question, values),
        "pipeline": question.script or question.code(),
    }
    if gold["answer_type"] == "string_approximate":
        gold["names_only"] = True  # a judge of texts takes a list of all names for right
    if in_order(question.steps[-1].op, question.steps[-1].answer_type):
        gold["ordered"] = True
    return Task(
        id=f"lake-{lake.name}-{name}",
        family="answer",
        track=f"lake-{lake.name}",
        split=split,
        prompt=[{"role": "system", "content": SYSTEM}, {"role": "user", "content": question.text}],
        gold=gold,
        tools=(form.agent,),
        files={LAKE: str(lake.folder.resolve())},
        meta={
            "benchmark": "lake",
            "domain": lake.name,
            "kind": kind,
            "draw": draw,
            "steps": len(question.steps),
            "gold_files": opened,
            "tables": sorted({t.digest for t in used}),
            "keys": sorted({t.key for t in used}),
            "licences": sorted({t.about.licence or "unknown" for t in used}),
            "difficulty": "hard" if len(question.steps) > 4 else "easy",
        },
    )


@dataclass
class LakeTally(Tally):
    """`listed`: what listing everything earns on each task; `facts`: what a rewording of it must
    keep."""

    listed: dict[str, list[tuple[float, float]]] = field(
        default_factory=dict[str, list[tuple[float, float]]]
    )
    facts: dict[str, Facts] = field(default_factory=dict[str, Facts])


def unproved(
    lake: Lake, question: Question, values: dict[str, Any], tally: LakeTally
) -> Refusal | None:
    """Why the second way does not give the same values, None where it does; its verdict is
    counted."""
    why = lake.prover.refusal(question, values)
    agreed = "proved once" if lake.prover.once(question) else "agreed"
    tally.proof[why.code.removeprefix("proof: ") if why else agreed] += 1
    return why and replace(why, where=f"{lake.name}: {question.text}")


def listed(lake: Lake, question: Question, answer: Any) -> tuple[float, float] | Refusal:
    """What the best listing of everything earns; a refusal where training would pay."""
    lists = lake.prover.everything(question)
    pair = best_listing(question.steps[-1].answer_type, answer, lists)
    if pays(pair):
        return Refusal("listing everything pays", where=f"{lake.name}: {question.text}")
    return pair


def unfit(
    lake: Lake, question: Question, values: dict[str, Any], watch: Watch, tally: LakeTally
) -> Refusal | None:
    """Why gold is not proved, or a listing or a constant is paid; None for a task."""
    if why := unproved(lake, question, values, tally):
        return why
    pair = listed(lake, question, values["main-task"])
    if isinstance(pair, Refusal):
        return pair
    if not watch.admits(values["main-task"]):
        return Refusal("an answer given too often")
    tally.listed.setdefault(watch.answer_type, []).append(pair)
    return None


def generate(
    lakes: Sequence[Lake],
    count: int,
    seed: int,
    split: str,
    tally: LakeTally,
    advance: Callable[[int], Any] = lambda _: None,
    form: Form = FULL,
) -> list[Task]:
    """About `count` tasks, even over the answer types and the lakes as far as these allow.

    Task i depends on the seed and the tables alone. Fewer come back when questions run out.
    """
    made: list[Task] = []
    types: Counter[str] = Counter()
    watches = {kind: Watch(kind) for kind in form.types}
    most = -(-count // len(form.types))
    drawing = Drawing(lakes, seed, count * TRIES, types, most, tally, form)
    for drawn, checked in checked_batches(drawing):
        for (lake, question, kind, draw), (values, why) in zip(drawn, checked, strict=True):
            answer_type = question.steps[-1].answer_type
            if types[answer_type] >= most:
                continue
            if values is None:
                tally.refuse(Refusal(why), names_of(lake, question))
                continue
            if refusal := unfit(lake, question, values, watches[answer_type], tally):
                tally.refuse(refusal, names_of(lake, question))
                continue
            types[answer_type] += 1
            task = to_task(lake, question, values, split, kind, draw, form)
            tally.facts[task.id] = facts_of(
                question, tables_of(lake, question), values["main-task"]
            )
            made.append(task)
            advance(1)
            if len(made) >= count:
                return made
    return made


def obscure_lake(
    lake: Lake,
    tasks: Sequence[Task],
    seed: int,
    target: Path,
    tally: LakeTally,
    advance: Callable[[int], Any] = lambda _: None,
    form: Form = FULL,
) -> list[Task]:
    """A lake's tasks asked again over the lake with other names and numbers, each with the answer
    that its pipeline gives there. A task is dropped when it does not validate there, or when its
    answer did not change: memory could still answer it."""
    if not tasks:
        return []
    used = {str(path) for task in tasks for path in task.meta["gold_files"]}
    tables = obscure_tables(lake.folder, lake.name, lake.tables, used, seed, target)
    other = Lake(target, lake.name, tables, Frames(target), alone=lake.alone)
    made: list[Task] = []
    questions = [
        question_for(other.tables, task.meta["kind"], task.meta["draw"], other.links)
        for task in tasks
    ]
    questions = [replace(q, script=form.script(other, q)) for q in questions]
    checked = [
        found
        for at in range(0, len(questions), BATCH)
        for found in validate_all(
            [(question, other.frames) for question in questions[at : at + BATCH]]
        )
    ]
    for task, question, (values, why) in zip(tasks, questions, checked, strict=True):
        advance(1)
        plain = task.gold["answer"]
        if values is None:
            tally.refuse(Refusal(f"obscured: {why}"))
        elif [s.kind for s in question.steps] != [s["kind"] for s in task.gold["subtasks"]]:
            tally.refuse(Refusal("obscured: another question"))
        elif score(question, values["main-task"], plain) > 0.95:
            tally.refuse(Refusal("obscured: the same answer"))
        elif refusal := unproved(other, question, values, tally):
            tally.refuse(refusal)
        elif isinstance(pays_ := listed(other, question, values["main-task"]), Refusal):
            tally.refuse(pays_)
        else:
            draw = (task.split, task.meta["kind"], task.meta["draw"])
            new = to_task(other, question, values, *draw, form)
            name = f"{task.id}-obscured"
            tally.facts[name] = facts_of(question, tables_of(other, question), values["main-task"])
            made.append(
                replace(
                    new,
                    id=name,
                    gold={**new.gold, "plain_answer": plain},
                    meta={**new.meta, "mode": "obscured", "plain": task.id},
                )
            )
    return made
