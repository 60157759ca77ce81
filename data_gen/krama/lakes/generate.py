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
from data_gen.krama.lakes.constants import Watch
from data_gen.krama.lakes.drawing import BATCH, Drawing, checked_batches, tables_of
from data_gen.krama.lakes.forms import FULL, Form
from data_gen.krama.lakes.lake import Lake
from data_gen.krama.lakes.listings import best_listing, pays
from data_gen.krama.lakes.ops import in_order
from data_gen.krama.lakes.pipeline import Frames, Question, gold_subtasks
from data_gen.krama.lakes.questions import question_for
from data_gen.krama.lakes.verify import score, validate_all
from data_gen.krama.lakes.wording import facts_of
from data_gen.krama.obscure.generated import obscure_tables
from data_gen.rewording_facts import Facts

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
class Tally:
    """What became of the questions. `proof` counts the verdicts of the second way, `examples`
    holds some sentences of each, `listed` what listing everything earns on each task, `facts` what
    a rewording of it must keep."""

    reasons: Counter[str] = field(default_factory=Counter[str])
    proof: Counter[str] = field(default_factory=Counter[str])
    examples: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    listed: dict[str, list[tuple[float, float]]] = field(
        default_factory=dict[str, list[tuple[float, float]]]
    )
    facts: dict[str, Facts] = field(default_factory=dict[str, Facts])  # by task: for rewordings

    def refused(self, why: str, detail: str = "") -> None:
        self.reasons[why] += 1
        if detail and len(self.examples.setdefault(why, [])) < _EXAMPLES:
            self.examples[why].append(detail)


def unproved(lake: Lake, question: Question, values: dict[str, Any], tally: Tally) -> str:
    """Why the second way does not give the same values, "" where it does; counted either way."""
    refusal = lake.prover.refusal(question, values)
    agreed = "proved once" if lake.prover.once(question) else "agreed"
    verdict = refusal.partition(":")[0] or agreed
    tally.proof[verdict] += 1
    if refusal:
        tally.refused(f"proof: {verdict}", f"{lake.name}: {question.text} ({refusal})")
    return refusal


def listed(lake: Lake, question: Question, answer: Any, tally: Tally) -> tuple[float, float] | None:
    """What the best listing of everything earns; None, and refused, where training would pay."""
    lists = lake.prover.everything(question)
    pair = best_listing(question.steps[-1].answer_type, answer, lists)
    if not pays(pair):
        return pair
    tally.refused("listing everything pays", f"{lake.name}: {question.text}")
    return None


def unfit(
    lake: Lake, question: Question, values: dict[str, Any], watch: Watch, tally: Tally
) -> str:
    """Why gold is not proved, or a listing or a constant is paid, "" for a task; counted either
    way."""
    if refusal := unproved(lake, question, values, tally):
        return f"the second computation: {refusal}"
    pair = listed(lake, question, values["main-task"], tally)
    if pair is None:
        return "listing everything pays"
    if not watch.admits(values["main-task"]):
        tally.reasons["an answer given too often"] += 1
        return "an answer given too often"
    tally.listed.setdefault(watch.answer_type, []).append(pair)
    return ""


def generate(
    lakes: Sequence[Lake],
    count: int,
    seed: int,
    split: str,
    tally: Tally,
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
    drawing = Drawing(lakes, seed, count * TRIES, types, most, form)
    for drawn, checked in checked_batches(drawing, tally.reasons):
        for (lake, question, kind, draw), (values, why) in zip(drawn, checked, strict=True):
            answer_type = question.steps[-1].answer_type
            if types[answer_type] >= most:
                continue
            if values is None:
                tally.reasons[why] += 1
            else:
                why = unfit(lake, question, values, watches[answer_type], tally)
            if values is None or why:
                lake.note((t.key for t in tables_of(lake, question)), why)
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
    tally: Tally,
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
            tally.reasons[f"obscured: {why}"] += 1
        elif [s.kind for s in question.steps] != [s["kind"] for s in task.gold["subtasks"]]:
            tally.reasons["obscured: another question"] += 1
        elif score(question, values["main-task"], plain) > 0.95:
            tally.reasons["obscured: the same answer"] += 1
        elif not unproved(other, question, values, tally) and listed(
            other, question, values["main-task"], tally
        ):
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
