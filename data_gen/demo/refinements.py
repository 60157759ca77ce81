"""What the demo's tasks and the order tasks share: passages of three sides, a recipe, its gold."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Generic, TypeVar

from assay.seeds import derive_seed
from assay.task import Task, TaskError
from data_gen.corpora import Corpus, Document
from data_gen.demo.passages import Passage, PassagePool, canonical_hash, cut_passages
from data_gen.demo.settings import DemoTaskSettings, OrderSettings
from data_gen.demo.wording import read_requirement
from data_gen.pipeline import Builder, tasks_of
from data_gen.splits import sentence_keys, shuffled, split_documents
from data_gen.tally import DIFFERS, Refused, Tally
from rewards.cdr.recipes import bound_recipe, recipe_of, written
from rewards.cdr.score import MODE, TAG, gold_answer
from rewards.gold import Execution, Step, execute, run_bound

SYSTEM = (
    "Do the steps in order. Answer <status>KEEP</status><clean_text>result</clean_text>. "
    "If a step rejects the text, stop with DROP and the text so far."
)
STATES_SYSTEM = (
    "Do the steps in order. After each write <state>text so far</state>, or where it may reject "
    "<check>count: KEEP</check>; stop at DROP. Then answer "
    "<status>KEEP</status><clean_text>result</clean_text>, or DROP and the text so far."
)
BRIEF = "Do the steps in order."
LEAST = 128  # tokens of an answer


Settings = TypeVar("Settings", DemoTaskSettings, OrderSettings)


@dataclass(frozen=True)
class Draft:
    """A text for a recipe, what the executor makes of it, and what the task is called."""

    id: str
    track: str
    passage: Passage
    text: str
    steps: tuple[Step, ...]
    run: Execution
    requirement: str
    meta: Mapping[str, Any]
    group: str | None = None


class Refinements(Builder[str, Draft, Execution], Generic[Settings]):
    """Tasks over short passages. A source is the passages of one split: `pool`, of which `used` are
    texts that occur already."""

    name: str
    sentences: int  # of a passage at most
    mixed = False  # tasks stand in an order of their own, not in that of their drafts
    brief = False  # a short system message without the answer's form

    def __init__(self, settings: Settings, seed: int) -> None:
        self.settings, self.seed = settings, seed
        self.pool, self.used = PassagePool(()), set[str]()

    def count(self, split: str) -> int:
        """How many tasks a split is asked for."""
        return getattr(self.settings, split)

    def take(self, passage: Passage, text: str) -> None:
        """Note what a task is made of."""
        self.pool.mark_used(passage)
        self.used.add(canonical_hash(text))

    def gold(self, draft: Draft) -> Execution:
        return draft.run

    def again(self, draft: Draft, gold: Execution) -> None:
        """Run the recipe that the task's own words stand for."""
        steps = read_requirement(draft.requirement)
        run = execute(draft.text, steps)
        if steps != [*draft.steps] or (run.status, run.text) != (gold.status, gold.text):
            raise Refused(DIFFERS, f"{draft.requirement!r} does not lead to gold", draft.id)

    def words(self, draft: Draft, gold: Execution) -> str:
        return f"{draft.requirement}\nText:\n{draft.text}"

    def task(self, draft: Draft, gold: Execution, words: str) -> Task:
        document = draft.passage.document
        system = BRIEF if self.brief else SYSTEM
        task = Task(
            id=draft.id,
            family="refinement",
            track=draft.track,
            split="",
            prompt=[{"role": "system", "content": system}, {"role": "user", "content": words}],
            gold={
                "status": gold.status,
                "text": gold.text,
                "recipe": [{"operator": s.operator, "params": dict(s.params)} for s in draft.steps],
                "states": list(gold.states),
                "input_text": draft.text,
                "full_run_text": gold.full_run_text,
            },
            group=draft.group,
            meta={
                "document": document.id,
                "domain": document.domain,
                "source": document.source,
                "licence": document.licence,
                **draft.meta,
                "requirement": draft.requirement,
                "sentences": [canonical_hash(s) for s in draft.passage.sentences],
            },
        )
        return with_states(task, self.brief) if self.settings.states else task

    def splits(
        self, corpus: Corpus, listed: Collection[str] = (), tally: Tally | None = None
    ) -> dict[str, list[Task]]:
        """Tasks of `train_sft`, `train_rl`, `validation` and `heldout`. Same corpus, settings and
        seed give the same tasks; documents whose ids are listed are held out; `tally` counts how
        often gold was computed twice.

        No document, sentence or input of the held-out and validation splits occurs in any other;
        SFT and RL share documents but no input. Raises `TaskError` when the corpus is too small for
        the settings, and where a draft is refused.
        """
        tally = Tally() if tally is None else tally
        settings, seed = self.settings, self.seed
        rest, heldout = split_documents(corpus.documents, settings.heldout_documents, seed, listed)
        share = settings.validation_documents if self.count("validation") else 0.0
        train, chosen = split_documents(rest, share, seed, key="validation")

        def pool(documents: list[Document], others: list[Document]) -> PassagePool:
            cut = (
                passage
                for document in documents
                for passage in cut_passages(document, settings.max_chars, self.sentences)
            )
            return PassagePool(cut, sentence_keys(others))

        # Held-out and validation tasks do not depend on the training counts.
        training = pool(train, []), set[str]()
        sides = {
            "train_sft": training,
            "train_rl": training,
            "validation": (pool(chosen, train), set[str]()),
            "heldout": (pool(heldout, rest), set[str]()),
        }
        made: dict[str, list[Task]] = {}
        for split, (self.pool, self.used) in sides.items():
            found = tasks_of(self, split, self.count(split), Random(0), tally)
            if tally.refused:
                raise TaskError(f"split {split}: refused {dict(tally.refused)}: {tally.examples}")
            made[split] = [replace(task, split=split) for task in found]
            if self.mixed:
                made[split] = shuffled(made[split], derive_seed(seed, split, "order"))
        return made


def with_states(task: Task, brief: bool = False) -> Task:
    """The task in the mode `states`: another system message (the same where it is `brief`), and
    gold with the entry of every executed step. Raises `TaskError` where a text holds a tag of
    the format."""
    steps = bound_recipe(task.gold)
    run = run_bound(str(task.gold["input_text"]), steps)
    if any(TAG.search(text) for text in run.states):
        raise TaskError(f"task {task.id}: its text holds a tag of the states' format; leave it out")
    prompt = task.prompt if brief else [{"role": "system", "content": STATES_SYSTEM}]
    prompt = prompt if brief else [*prompt, *task.prompt[1:]]
    gold = {**task.gold, "mode": MODE, "written": written(recipe_of(task.gold), steps, run)}
    # Two tokens for three characters: tags and numbers have few characters a token. A power of
    # two, so that an evaluation has few kinds of tasks.
    room = 1 << (max(LEAST, len(gold_answer(gold)) * 2 // 3) - 1).bit_length()
    meta = {**task.meta, "mode": MODE, "answer_tokens": room}
    return replace(task, prompt=prompt, gold=gold, meta=meta)
