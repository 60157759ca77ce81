"""Short refinement tasks from real prose: small recipes, gold by the executors.

`Refinements` is what both kinds share: passages of three sides, a recipe, its gold. `DemoBuilder`
makes the demo's tasks, `OrderBuilder` the order groups. They are made for models too small for the
benchmark's own inputs; `assay tasks cdr` makes those.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import Any, Generic, TypeVar

from assay.console import progress
from assay.fingerprints import canonical_hash
from assay.task import Task, TaskError, derive_seed
from data_gen.certificate import DIFFERS, Refused, Tally, drawn_from
from data_gen.corpora import (
    Corpus,
    Document,
    Passage,
    PassagePool,
    cut_passages,
    sentence_keys,
    shuffled,
    split_documents,
)
from data_gen.demo.inject import (
    WEAVERS,
    Woven,
    before_sentence,
    frame,
    pick,
    weave,
    weave_markup,
    wrap,
)
from data_gen.demo.settings import (
    DemoTaskSettings,
    OrderSettings,
    filter_number,
    filter_step,
    read_requirement,
    say_recipe,
)
from data_gen.pipeline import Builder, tasks_of
from rewards.cdr.recipes import bound_recipe, recipe_of, written
from rewards.cdr.score import MODE, TAG, gold_answer
from rewards.gold import Execution, Step, execute, run_bound
from rewards.parse import normalise

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
                **drawn_from(document.source, [document.licence], document.domain, document.id),
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


# --- the demo: short real passages
#
# A recipe with a filter is built as a pair, the same words once with a passage it keeps and once
# with one it drops. So nothing in the instruction tells the status; only the text decides, as far
# as the two counts (KEEP and DROP) are asked to be equal.

# Spoken thresholds. Passages come clearly below or clearly above all of them.
THRESHOLDS: dict[str, tuple[int, ...]] = {
    "text_length_filter": (90, 100, 110),
    "words_num_filter": (14, 16, 18),
    "maximum_line_length_filter": (60, 70, 80),
    "alphanumeric_filter": (35, 40),
}
_RECIPE_TRIES = 60
_TEXT_TRIES = 40


@dataclass(frozen=True)
class Recipe:
    """What a task asks for: steps, their wording, and the mappers in order."""

    steps: tuple[Step, ...]
    requirement: str

    @property
    def mappers(self) -> tuple[str, ...]:
        return tuple(s.operator for s in self.steps if not _is_filter(s))

    @property
    def filter_at(self) -> int | None:
        """Index of the filter among the steps (one at most), or None."""
        return next((i for i, s in enumerate(self.steps) if _is_filter(s)), None)


class DemoBuilder(Refinements[DemoTaskSettings]):
    """Draws recipes and texts for one split until they fit each other."""

    name, sentences, mixed = "demo", 3, True

    def drafts(self, source: str, rng: Random, made: Sequence[Task]) -> Iterator[Draft]:
        """Pairs for the filters, single texts for the rest."""
        cells = [
            filter_step(name, way, number)
            for name in self.settings.filters
            for way in self.settings.directions
            for number in THRESHOLDS[name]
        ]
        cells.sort(key=lambda s: derive_seed(self.seed, source, s.operator, *filter_number(s)))
        plan = _plan(self.count(source), self.settings)
        for index, statuses in enumerate(progress(plan, f"tasks {source}", "tasks")):
            step = cells[index % len(cells)] if statuses != ("",) else None
            for one in self._group(source, index, step, statuses):
                yield replace(one, id=f"demo-{source}-{len(made):05d}")

    def _group(
        self, split: str, index: int, filter_: Step | None, statuses: tuple[str, ...]
    ) -> list[Draft]:
        """One recipe with a text for each status. Raises `TaskError` after many tries."""
        for attempt in range(_RECIPE_TRIES):
            rng = Random(derive_seed(self.seed, split, index, attempt))
            recipe = self._recipe(rng, split, index + attempt, filter_)
            found: list[Draft] = []
            for status in statuses:
                one = self._fitting(rng, recipe, status)
                if one is None:
                    break
                found.append(one)
            else:
                for one in found:
                    self.take(one.passage, one.text)
                return found
        what = filter_.operator if filter_ else "no filter"
        raise TaskError(
            f"split {split}: no passage fits recipe {index} ({what}); use a larger corpus, "
            "fewer mappers in a recipe, or wider margins"
        )

    def _recipe(self, rng: Random, split: str, turn: int, filter_: Step | None) -> Recipe:
        """Mappers (each operator first in turn), the filter at a random place, a wording."""
        settings = self.settings
        mix = settings.sft_mappers if split == "train_sft" else ()
        count = _weighted(rng, mix or settings.mappers)
        chosen = [settings.operators[turn % len(settings.operators)]]
        while len(chosen) < count:
            name = pick(rng, settings.operators)
            if name not in chosen:
                chosen.insert(int(rng.random() * (len(chosen) + 1)), name)
        steps = [Step(name) for name in chosen]
        if filter_ is not None:
            places = {"any": int(rng.random() * (count + 1)), "first": 0, "last": count}
            steps.insert(places[settings.filter_place], filter_)
        said = say_recipe(steps, rng, settings.forms, settings.polarities)
        return Recipe(tuple(steps), said)

    def _fitting(self, rng: Random, recipe: Recipe, status: str) -> Draft | None:
        """A text for which the recipe ends as wanted and does only what its words say."""
        at = recipe.filter_at
        filter_ = recipe.steps[at] if at is not None else None
        high = filter_ is not None and (status == "KEEP") == (filter_number(filter_)[0] == "min")
        for _ in range(_TEXT_TRIES):
            made = self._compose(rng, recipe, filter_, high)
            if made is None:
                continue
            passage, woven = made
            text = woven.render()
            if canonical_hash(text) in self.used:
                continue
            run = execute(text, recipe.steps)
            if at is not None and filter_ is not None:
                reached = [_statistic(run, at)]
                if self.settings.steady:
                    reached.append(_statistic(execute(text, [filter_]), 0))
                if not all(self._clear(filter_, value, high) for value in reached):
                    continue
            if (run.status == status or not status) and _as_meant(woven, recipe, run):
                meta = _meta(recipe, run)
                said = recipe.requirement
                return Draft("", "demo", passage, text, recipe.steps, run, said, meta)
        return None

    def _clear(self, filter_: Step, value: float, high: bool) -> bool:
        """Is the statistic on its side of the threshold, with the margin to spare?"""
        _, number = filter_number(filter_)
        bound = number / 100 if filter_.operator == "alphanumeric_filter" else number
        if high:
            return value >= self.settings.high_margin * bound
        return value <= self.settings.low_margin * bound

    def _compose(
        self, rng: Random, recipe: Recipe, filter_: Step | None, high: bool
    ) -> tuple[Passage, Woven] | None:
        """A passage of a fitting size, laid out, with an item for every mapper woven in."""
        settings = self.settings
        low_chars, high_chars = self._size(rng, filter_, high)
        operators = list(recipe.mappers)
        tagged = "clean_html_mapper" in operators and rng.random() < 0.4
        passage = self.pool.draw(rng, low_chars, high_chars, markup=tagged)
        if passage is None:
            return None
        if settings.distractors and rng.random() < settings.distractors:
            operators.append(pick(rng, settings.operators))
        if tagged:  # real tags; the other items go around them
            woven = weave_markup(passage.markup)
            for name in WEAVERS:
                if name in operators and name != "clean_html_mapper":
                    woven = WEAVERS[name](woven, rng)
        else:
            woven = weave(passage.text, operators, rng)
        if len(woven.render()) > settings.max_chars:
            return None
        return passage, self._layout(rng, woven, filter_, high)

    def _size(self, rng: Random, filter_: Step | None, high: bool) -> tuple[int, int]:
        """Characters of the bare passage that can end on the wanted side of the filter."""
        least, most = self.settings.min_chars, self.settings.max_chars
        if filter_ is None:
            middle = least + int(rng.random() * (0.8 * most - least))
            return max(least, middle - 25), min(most, middle + 25)
        number = filter_number(filter_)[1]
        if filter_.operator == "alphanumeric_filter":
            return (40, most) if high else (least, 60)
        if filter_.operator == "maximum_line_length_filter":
            return (int(1.5 * number), most) if high else (40, most)
        per_unit = 6 if filter_.operator == "words_num_filter" else 1
        if high:
            return min(most - 30, int(self.settings.high_margin * number * per_unit * 0.85)), most
        return least, int(self.settings.low_margin * number * per_unit)

    def _layout(self, rng: Random, woven: Woven, filter_: Step | None, high: bool) -> Woven:
        """One line, short lines, or a banner between rules."""
        operator = filter_.operator if filter_ else ""
        if operator == "maximum_line_length_filter":
            return woven if high else wrap(woven, 22 + int(rng.random() * 10))
        if operator == "alphanumeric_filter" and not high:
            return frame(woven, rng)
        if rng.random() < self.settings.wrapped:
            return wrap(woven, 26 + int(rng.random() * 20))
        if not operator and "alphanumeric_filter" in self.settings.filters and rng.random() < 0.06:
            return frame(woven, rng)
        return woven


def _plan(count: int, settings: DemoTaskSettings) -> list[tuple[str, ...]]:
    """Statuses to build on one recipe each: KEEP/DROP pairs, what pairs leave over, no filter."""
    with_filter = round(count * settings.filter_share)
    drop = round(with_filter * settings.drop_share)
    keep = with_filter - drop
    pairs = min(keep, drop)
    single: list[tuple[str, ...]] = [("KEEP" if keep > drop else "DROP",)] * abs(keep - drop)
    return [("KEEP", "DROP")] * pairs + single + [("",)] * (count - with_filter)


def _meta(recipe: Recipe, run: Execution) -> dict[str, Any]:
    at = recipe.filter_at
    spoken: dict[str, Any] | None = None
    if at is not None:
        direction, number = filter_number(recipe.steps[at])
        spoken = {
            "operator": recipe.steps[at].operator,
            "direction": direction,
            "number": number,
            "step": at,
            "statistic": _statistic(run, at),
        }
    return {
        "difficulty": len(recipe.steps),
        "class": "keep" if at is None else "drop" if run.status == "DROP" else "keep_filter",
        "has_filter": at is not None,
        "filter": spoken,
        "mappers": list(recipe.mappers),
    }


def _is_filter(step: Step) -> bool:
    return step.operator in THRESHOLDS


def _weighted(rng: Random, weights: Sequence[float]) -> int:
    """1 + an index drawn in proportion to its weight."""
    point = rng.random() * sum(weights)
    for index, weight in enumerate(weights, 1):
        point -= weight
        if point < 0:
            return index
    return len(weights)


def _statistic(run: Execution, step: int) -> float:
    return float(next(iter(run.trace[step]["stats"].values())))


def _as_meant(woven: Woven, recipe: Recipe, run: Execution) -> bool:
    """Does every state equal what the items say, and does every mapper have work to do?"""
    states = [normalise(state) for state in run.states]
    meant = [normalise(woven.render(recipe.mappers[:k])) for k in range(len(states))]
    idle = any(before == after for before, after in pairwise(states))
    return states == meant and not idle and bool(normalise(run.text))


# --- order groups: the same two steps in both orders on the same short passage
#
# Track order_f, a filter and a mapper: a rejecting filter stops the recipe, so on a text it rejects
# the two orders have different golds: with the filter first the text as it came, with the filter
# last the cleaned one. On a text it keeps they have the same. Both kinds are asked in the same
# words, so only the text decides the status and only the order decides what a rejected text looks
# like.
#
# Track order_m, two mappers (`mapper_share` of the groups): the text says a sentence twice, once
# with something in front of it that the other mapper removes. Removing repeats first finds two
# different sentences and leaves both; last, it finds two equal ones and leaves one. All are kept.

LOW, HIGH = 0.9, 1.4
REPEATED = 0.6  # of `max_chars`: the longest sentence that is said twice
REPEATS = Step("remove_repeat_sentences_mapper")
_TRIES = 400
_Runs = dict[str, tuple[tuple[Step, ...], Execution]]  # by slot: the recipe, and what it does
_Group = tuple[Passage, str, _Runs]  # with the text that both recipes are of


class OrderBuilder(Refinements[OrderSettings]):
    """Draws a text for each group: both of its tasks ask for the same steps."""

    name, sentences = "order", 2

    def __init__(self, settings: OrderSettings, seed: int) -> None:
        super().__init__(settings, seed)
        self.brief = settings.brief

    def count(self, split: str) -> int:
        asked: int | None = getattr(self.settings, split)
        return 2 * (self.settings.heldout // 3 if asked is None else asked)

    def drafts(self, source: str, rng: Random, made: Sequence[Task]) -> Iterator[Draft]:
        count, seed = self.count(source) // 2, self.seed
        swapped = round(count * self.settings.mapper_share)
        turns = sorted(range(count), key=lambda i: derive_seed(seed, source, "track", i))
        mapped = {index for index in range(count) if turns[index] < swapped}
        filtered = [index for index in range(count) if index not in mapped]
        drops = round(len(filtered) * self.settings.drop_share)
        order = sorted(range(len(filtered)), key=lambda i: derive_seed(seed, source, "kind", i))
        dropped = {index for place, index in enumerate(filtered) if order[place] < drops}
        for index in progress(range(count), f"order tasks {source}", "tasks"):
            status = "" if index in mapped else "DROP" if index in dropped else "KEEP"
            yield from self._siblings(source, index, status)

    def _siblings(self, split: str, index: int, status: str) -> Iterator[Draft]:
        """Both tasks of the first text that is fit, with two mappers where no `status` is named."""
        mapper = Step(self.settings.operators[index % len(self.settings.operators)])
        for attempt in range(_TRIES):
            kind = () if status else ("mappers",)
            rng = Random(derive_seed(self.seed, split, *kind, index, attempt))
            made = self._filtered(status, mapper, rng) if status else self._mapped(mapper, rng)
            if made is None:
                continue
            passage, text, runs = made
            self.take(passage, text)
            for slot, (steps, run) in runs.items():
                dropped = run.status == "DROP"
                yield Draft(
                    id=f"order-{split}-{index:04d}-{slot}",
                    track="order_f" if status else "order_m",
                    passage=passage,
                    text=text,
                    steps=steps,
                    run=run,
                    requirement=say_recipe(steps, rng, 3),
                    group=f"order-{split}-{index:04d}",
                    meta={
                        "order_slot": slot,
                        "has_filter": bool(status),
                        "sensitive": dropped or not status,
                        "difficulty": len(steps),
                        "class": "drop" if dropped else "keep_filter" if status else "keep",
                    },
                )
            return
        raise TaskError(f"split {split}: no passage fits order group {index}; use a larger corpus")

    def _mapped(self, mapper: Step, rng: Random) -> _Group | None:
        """For a group of track order_m: a mapper and the removal of repeated sentences."""
        passage = self.pool.draw(rng, 18, int(REPEATED * self.settings.max_chars))
        if passage is None or len(passage.sentences) != 1:
            return None
        made = before_sentence(passage.text, mapper.operator, rng)
        copies = [made.render(), passage.text]
        text = " ".join(copies if rng.random() < 0.5 else copies[::-1])
        if (runs := self._runs(text, canonical=(mapper, REPEATS), swap_0_1=(REPEATS, mapper))) and (
            normalise(runs["canonical"][1].text) == normalise(passage.text)
            and normalise(runs["swap_0_1"][1].text) == normalise(f"{passage.text} {passage.text}")
        ):
            return passage, text, runs
        return None

    def _filtered(self, status: str, mapper: Step, rng: Random) -> _Group | None:
        """For a group of track order_f: a filter and a mapper, on a text that gets `status`; the
        mapper does what its words mean, and both orders end as wanted."""
        number = pick(rng, self.settings.thresholds)
        filter_ = filter_step("text_length_filter", "min", number)
        low, high = (18, int(LOW * number)) if status == "DROP" else (int(HIGH * number), 10_000)
        passage = self.pool.draw(rng, low, min(high, self.settings.max_chars))
        if passage is None:
            return None
        woven = weave(passage.text, (mapper.operator,), rng)
        text, cleaned = woven.render(), normalise(woven.render((mapper.operator,)))
        if status == "DROP" and len(text) > LOW * number:
            return None
        if (runs := self._runs(text, pre=(filter_, mapper), post=(mapper, filter_))) and (
            cleaned == normalise(runs["post"][1].full_run_text)
            and cleaned not in ("", normalise(text))
            and all(run.status == status for _, run in runs.values())
        ):
            return passage, text, runs
        return None

    def _runs(self, text: str, **orders: tuple[Step, ...]) -> _Runs | None:
        """None for a text that occurs already, or is too long."""
        if canonical_hash(text) in self.used or len(text) > self.settings.max_chars + 30:
            return None
        return {slot: (steps, execute(text, steps)) for slot, steps in orders.items()}
