"""The demo's tasks: short real passages, small recipes, gold by the executors.

A recipe with a filter is built as a pair, the same words once with a passage it keeps and once
with one it drops. So nothing in the instruction tells the status; only the text decides, as far as
the two counts (KEEP and DROP) are asked to be equal.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from assay.console import progress
from assay.seeds import derive_seed
from assay.task import Task
from data_gen.corpora import Corpus, Document
from data_gen.demo.drafts import THRESHOLDS, Builder, DemoTaskError, Draft, Recipe
from data_gen.demo.passages import PassagePool, canonical_hash, cut_passages
from data_gen.demo.settings import DemoTaskSettings, preset
from data_gen.demo.wording import filter_number, filter_step, read_requirement
from data_gen.splits import sentence_keys, shuffled, split_documents
from rewards.cdr.recipes import bound_recipe, recipe_of, written
from rewards.cdr.score import MODE, TAG, gold_answer, score_refinement
from rewards.gold import Execution, execute, run_bound

__all__ = [
    "DemoTaskError",
    "DemoTaskSettings",
    "build_demo_splits",
    "build_demo_tasks",
    "preset",
    "rebuild_gold",
    "verify",
    "with_states",
]

SYSTEM = (
    "Do the steps in order. Answer <status>KEEP</status><clean_text>result</clean_text>. "
    "If a step rejects the text, stop with DROP and the text so far."
)

LEAST = 128  # tokens of an answer
STATES_SYSTEM = (
    "Do the steps in order. After each write <state>text so far</state>, or where it may reject "
    "<check>count: KEEP</check>; stop at DROP. Then answer "
    "<status>KEEP</status><clean_text>result</clean_text>, or DROP and the text so far."
)


def build_demo_tasks(
    corpus: Corpus, settings: DemoTaskSettings, seed: int
) -> tuple[list[Task], list[Task], list[Task]]:
    """(SFT, RL, held-out) tasks: `build_demo_splits` without a validation split."""
    found = build_demo_splits(corpus, replace(settings, validation=0), seed)
    return found["train_sft"], found["train_rl"], found["heldout"]


def build_demo_splits(
    corpus: Corpus, settings: DemoTaskSettings, seed: int, listed: Collection[str] = ()
) -> dict[str, list[Task]]:
    """Tasks of `train_sft`, `train_rl`, `validation` and `heldout`. Same corpus, settings and seed
    give the same tasks; documents whose ids are listed are held out.

    No document, sentence or input of the held-out and validation splits occurs in any other; SFT
    and RL share documents but no input. Raises `DemoTaskError` when the corpus is too small for the
    settings.
    """
    rest, heldout = split_documents(corpus.documents, settings.heldout_documents, seed, listed)
    share = settings.validation_documents if settings.validation else 0.0
    train, chosen = split_documents(rest, share, seed, key="validation")
    pool = _pool(train, settings, frozenset())
    between = _pool(chosen, settings, sentence_keys(train))
    other = _pool(heldout, settings, sentence_keys(rest))
    used: set[str] = set()
    return {
        "train_sft": _split("train_sft", settings.train_sft, pool, settings, seed, used),
        "train_rl": _split("train_rl", settings.train_rl, pool, settings, seed, used),
        # A record of its own, so that these tasks do not depend on the training counts.
        "validation": _split("validation", settings.validation, between, settings, seed, set()),
        "heldout": _split("heldout", settings.heldout, other, settings, seed, set()),
    }


def rebuild_gold(task: Task) -> Execution:
    """Run the recipe that the task's own words stand for on the task's own input."""
    steps = read_requirement(str(task.meta["requirement"]))
    return execute(str(task.gold["input_text"]), steps)


def verify(task: Task) -> str:
    """Why a task must not be written, or an empty string."""
    run = rebuild_gold(task)
    if (run.status, run.text) != (task.gold["status"], task.gold["text"]):
        return "its instruction does not lead to its gold"
    score = score_refinement(task.gold, gold_answer(task.gold))
    return "" if (score.outcome, score.reward) == (1.0, 1.0) else "its gold does not score 1"


def with_states(task: Task, brief: bool = False) -> Task:
    """The task in the mode `states`: another system message (the same where it is `brief`), and
    gold with the entry of every executed step. Raises `DemoTaskError` where a text holds a tag of
    the format."""
    steps = bound_recipe(task.gold)
    run = run_bound(str(task.gold["input_text"]), steps)
    if any(TAG.search(text) for text in run.states):
        raise DemoTaskError(
            f"task {task.id}: its text holds a tag of the states' format; leave it out"
        )
    prompt = task.prompt if brief else [{"role": "system", "content": STATES_SYSTEM}]
    prompt = prompt if brief else [*prompt, *task.prompt[1:]]
    gold = {**task.gold, "mode": MODE, "written": written(recipe_of(task.gold), steps, run)}
    # Two tokens for three characters: tags and numbers have few characters a token. A power of
    # two, so that an evaluation has few kinds of tasks.
    room = 1 << (max(LEAST, len(gold_answer(gold)) * 2 // 3) - 1).bit_length()
    meta = {**task.meta, "mode": MODE, "answer_tokens": room}
    return replace(task, prompt=prompt, gold=gold, meta=meta)


def _pool(
    documents: Sequence[Document], settings: DemoTaskSettings, banned: frozenset[str]
) -> PassagePool:
    return PassagePool((p for d in documents for p in cut_passages(d, settings.max_chars)), banned)


def _split(
    split: str,
    count: int,
    pool: PassagePool,
    settings: DemoTaskSettings,
    seed: int,
    used: set[str],
) -> list[Task]:
    """`count` tasks: pairs for the filters, single ones for the rest, in shuffled order."""
    cells = [
        filter_step(name, way, number)
        for name in settings.filters
        for way in settings.directions
        for number in THRESHOLDS[name]
    ]
    cells.sort(key=lambda step: derive_seed(seed, split, step.operator, *filter_number(step)))
    builder = Builder(split, pool, settings, seed, used)
    tasks: list[Task] = []
    plan = _plan(count, settings)
    for index, statuses in enumerate(progress(plan, f"tasks {split}", "tasks")):
        step = cells[index % len(cells)] if statuses != ("",) else None
        for recipe, draft in builder.group(index, step, statuses):
            task = _task(f"demo-{split}-{len(tasks):05d}", split, recipe, draft)
            if settings.states:
                task = with_states(task)
            if reason := verify(task):
                raise DemoTaskError(f"task {task.id} is refused: {reason}")
            tasks.append(task)
    return shuffled(tasks, derive_seed(seed, split, "order"))


def _plan(count: int, settings: DemoTaskSettings) -> list[tuple[str, ...]]:
    """Statuses to build on one recipe each: KEEP/DROP pairs, what pairs leave over, no filter."""
    with_filter = round(count * settings.filter_share)
    drop = round(with_filter * settings.drop_share)
    keep = with_filter - drop
    pairs = min(keep, drop)
    single: list[tuple[str, ...]] = [("KEEP" if keep > drop else "DROP",)] * abs(keep - drop)
    return [("KEEP", "DROP")] * pairs + single + [("",)] * (count - with_filter)


def _task(name: str, split: str, recipe: Recipe, draft: Draft) -> Task:
    run, document = draft.run, draft.passage.document
    user = f"{recipe.requirement}\nText:\n{draft.text}"
    return Task(
        id=name,
        family="refinement",
        track="demo",
        split=split,
        prompt=[{"role": "system", "content": SYSTEM}, {"role": "user", "content": user}],
        gold={
            "status": run.status,
            "text": run.text,
            "recipe": [{"operator": s.operator, "params": dict(s.params)} for s in recipe.steps],
            "states": list(run.states),
            "input_text": draft.text,
            "full_run_text": run.full_run_text,
        },
        meta=_meta(recipe, draft, document),
    )


def _meta(recipe: Recipe, draft: Draft, document: Document) -> dict[str, Any]:
    at = recipe.filter_at
    spoken: dict[str, Any] | None = None
    if at is not None:
        direction, number = filter_number(recipe.steps[at])
        spoken = {
            "operator": recipe.steps[at].operator,
            "direction": direction,
            "number": number,
            "step": at,
            "statistic": draft.statistic,
        }
    kind = "keep" if at is None else "drop" if draft.run.status == "DROP" else "keep_filter"
    return {
        "document": document.id,
        "domain": document.domain,
        "source": document.source,
        "licence": document.licence,
        "difficulty": len(recipe.steps),
        "class": kind,
        "has_filter": at is not None,
        "filter": spoken,
        "mappers": list(recipe.mappers),
        "requirement": recipe.requirement,
        "sentences": [canonical_hash(s) for s in draft.passage.sentences],
    }
