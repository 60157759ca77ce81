"""Small order tasks: the same two steps in both orders on the same short passage.

Track order_f, a filter and a mapper: a rejecting filter stops the recipe, so on a text it rejects
the two orders have different golds: with the filter first the text as it came, with the filter last
the cleaned one. On a text it keeps they have the same. Both kinds are asked in the same words, so
only the text decides the status and only the order decides what a rejected text looks like.

Track order_m, two mappers (`mapper_share` of the groups): the text says a sentence twice, once with
something in front of it that the other mapper removes. Removing repeats first finds two different
sentences and leaves both; last, it finds two equal ones and leaves one. All are kept.

Made for models too small for the benchmark's own inputs; `assay tasks cdr` makes those.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from assay.console import progress
from assay.seeds import derive_seed
from assay.task import Task
from data_gen.corpora import Corpus
from data_gen.demo.build import SYSTEM, DemoTaskError, verify, with_states
from data_gen.demo.inject import Woven, before_sentence, pick, weave
from data_gen.demo.passages import Passage, PassagePool, canonical_hash, cut_passages
from data_gen.demo.settings import EASY_OPERATORS
from data_gen.demo.wording import filter_step, read_requirement, say_recipe
from data_gen.splits import sentence_keys, split_documents
from rewards.gold import Execution, Step, execute
from rewards.parse import normalise

LOW, HIGH = 0.9, 1.4
BRIEF = "Do the steps in order."
REPEATED = 0.6  # of `max_chars`: the longest sentence that is said twice
REPEATS = Step("remove_repeat_sentences_mapper")
_TRIES = 400


@dataclass(frozen=True)
class OrderSettings:
    """Groups (of two tasks) a split; `drop_share` of them with a text that is rejected."""

    train_sft: int = 120
    train_rl: int = 160
    heldout: int = 60
    validation: int | None = None  # None: a third of `heldout`
    drop_share: float = 2 / 3  # of the groups with a filter
    mapper_share: float = 0.0  # of all groups: two mappers in both orders, in place of a filter
    thresholds: tuple[int, ...] = (45, 50, 55)  # characters; texts are well below or well above
    max_chars: int = 100
    states: bool = False  # answers write the state after every step before the result
    brief: bool = False  # a short system message without the answer's form, which SFT has to teach
    operators: tuple[str, ...] = EASY_OPERATORS
    heldout_documents: float = 0.3
    validation_documents: float = 0.1  # of those not held out; without tasks none


def build_order_tasks(
    corpus: Corpus, settings: OrderSettings, seed: int, listed: Collection[str] = ()
) -> dict[str, list[Task]]:
    """Tasks of `train_sft`, `train_rl`, `validation` and `heldout`, siblings side by side;
    documents whose ids are listed are held out.

    No document or sentence of the held-out and validation splits occurs in any other. Raises
    `DemoTaskError` when the corpus is too small.
    """
    rest, heldout = split_documents(corpus.documents, settings.heldout_documents, seed, listed)
    count = settings.heldout // 3 if settings.validation is None else settings.validation
    share = settings.validation_documents if count else 0.0
    train, chosen = split_documents(rest, share, seed, key="validation")
    pool = PassagePool(p for d in train for p in cut_passages(d, settings.max_chars, 2))
    other = PassagePool(
        (p for d in heldout for p in cut_passages(d, settings.max_chars, 2)), sentence_keys(rest)
    )
    between = PassagePool(
        (p for d in chosen for p in cut_passages(d, settings.max_chars, 2)), sentence_keys(train)
    )
    used: set[str] = set()
    return {
        "train_sft": _split("train_sft", settings.train_sft, pool, settings, seed, used),
        "train_rl": _split("train_rl", settings.train_rl, pool, settings, seed, used),
        "validation": _split("validation", count, between, settings, seed, set()),
        "heldout": _split("heldout", settings.heldout, other, settings, seed, set()),
    }


@dataclass(frozen=True)
class _Draft:
    """A text for a group, the recipe of each slot, and what the executor makes of them."""

    passage: Passage
    text: str
    orders: Mapping[str, tuple[Step, ...]]
    runs: Mapping[str, Execution]


def _split(
    split: str, count: int, pool: PassagePool, settings: OrderSettings, seed: int, used: set[str]
) -> list[Task]:
    tasks: list[Task] = []
    swapped = round(count * settings.mapper_share)
    turns = sorted(range(count), key=lambda i: derive_seed(seed, split, "track", i))
    mapped = {index for index in range(count) if turns[index] < swapped}
    filtered = [index for index in range(count) if index not in mapped]
    drops = round(len(filtered) * settings.drop_share)
    order = sorted(range(len(filtered)), key=lambda i: derive_seed(seed, split, "kind", i))
    dropped = {index for place, index in enumerate(filtered) if order[place] < drops}
    for index in progress(range(count), f"order tasks {split}", "tasks"):
        if index in mapped:
            key, draft = (seed, split, "mappers", index), _with_mappers
        else:
            status = "DROP" if index in dropped else "KEEP"
            key, draft = (seed, split, index), partial(_with_filter, status)
        tasks += _group(split, index, key, draft, pool, settings, used)
    return tasks


def _group(
    split: str,
    index: int,
    key: tuple[int | str, ...],
    draft: Callable[[Step, PassagePool, OrderSettings, set[str], Random], _Draft | None],
    pool: PassagePool,
    settings: OrderSettings,
    used: set[str],
) -> list[Task]:
    """Both tasks of the first draft that is fit; draws depend on `key` and the attempt."""
    mapper = Step(settings.operators[index % len(settings.operators)])
    for attempt in range(_TRIES):
        rng = Random(derive_seed(*key, attempt))
        made = draft(mapper, pool, settings, used, rng)
        if made is None:
            continue
        pool.mark_used(made.passage)
        used.add(canonical_hash(made.text))
        meta = _meta(made.passage)
        return [
            _task(split, index, slot, steps, made.runs[slot], made.text, rng, meta, settings)
            for slot, steps in made.orders.items()
        ]
    raise DemoTaskError(f"split {split}: no passage fits order group {index}; use a larger corpus")


def _with_mappers(
    mapper: Step, pool: PassagePool, settings: OrderSettings, used: set[str], rng: Random
) -> _Draft | None:
    """For a group of track order_m: a mapper and the removal of repeated sentences."""
    passage = pool.draw(rng, 18, int(REPEATED * settings.max_chars))
    if passage is None or len(passage.sentences) != 1:
        return None
    made = before_sentence(passage.text, mapper.operator, rng)
    copies = [made.render(), passage.text]
    text = " ".join(copies if rng.random() < 0.5 else copies[::-1])
    if canonical_hash(text) in used or len(text) > settings.max_chars + 30:
        return None
    orders = {"canonical": (mapper, REPEATS), "swap_0_1": (REPEATS, mapper)}
    runs = {slot: execute(text, steps) for slot, steps in orders.items()}
    wanted = {"canonical": passage.text, "swap_0_1": f"{passage.text} {passage.text}"}
    if any(normalise(run.text) != normalise(wanted[slot]) for slot, run in runs.items()):
        return None
    return _Draft(passage, text, orders, runs)


def _with_filter(
    status: str,
    mapper: Step,
    pool: PassagePool,
    settings: OrderSettings,
    used: set[str],
    rng: Random,
) -> _Draft | None:
    """For a group of track order_f: a filter and a mapper, on a text that gets `status`."""
    number = pick(rng, settings.thresholds)
    filter_ = filter_step("text_length_filter", "min", number)
    low, high = (18, int(LOW * number)) if status == "DROP" else (int(HIGH * number), 10_000)
    passage = pool.draw(rng, low, min(high, settings.max_chars))
    if passage is None:
        return None
    woven = weave(passage.text, (mapper.operator,), rng)
    text = woven.render()
    if canonical_hash(text) in used or len(text) > settings.max_chars + 30:
        return None
    if status == "DROP" and len(text) > LOW * number:
        return None
    orders = {"pre": (filter_, mapper), "post": (mapper, filter_)}
    runs = {slot: execute(text, steps) for slot, steps in orders.items()}
    return _Draft(passage, text, orders, runs) if _as_meant(woven, mapper, runs, status) else None


def _meta(passage: Passage) -> dict[str, object]:
    """Where a text comes from."""
    return {
        "document": passage.document.id,
        "source": passage.document.source,
        "licence": passage.document.licence,
        "domain": passage.document.domain,
        "sentences": [canonical_hash(s) for s in passage.sentences],
    }


def _as_meant(woven: Woven, mapper: Step, runs: dict[str, Execution], status: str) -> bool:
    """The mapper does what its words mean, and both orders end as wanted."""
    cleaned = woven.render((mapper.operator,))
    post = runs["post"]
    meant = normalise(post.full_run_text) == normalise(cleaned)
    return (
        meant
        and normalise(cleaned) != normalise(woven.render())
        and bool(normalise(cleaned))
        and all(run.status == status for run in runs.values())
    )


def _task(
    split: str,
    index: int,
    slot: str,
    steps: Sequence[Step],
    run: Execution,
    text: str,
    rng: Random,
    meta: dict[str, object],
    settings: OrderSettings,
) -> Task:
    said = say_recipe(steps, rng, 3)
    if read_requirement(said) != list(steps):
        raise DemoTaskError(f"the wording {said!r} does not read back to its recipe")
    filtered = any(step.operator.endswith("_filter") for step in steps)
    dropped = run.status == "DROP"
    task = Task(
        id=f"order-{split}-{index:04d}-{slot}",
        family="refinement",
        track="order_f" if filtered else "order_m",
        split=split,
        prompt=[
            {"role": "system", "content": BRIEF if settings.brief else SYSTEM},
            {"role": "user", "content": f"{said}\nText:\n{text}"},
        ],
        gold={
            "status": run.status,
            "text": run.text,
            "recipe": [{"operator": s.operator, "params": dict(s.params)} for s in steps],
            "states": list(run.states),
            "input_text": text,
            "full_run_text": run.full_run_text,
        },
        group=f"order-{split}-{index:04d}",
        meta=meta
        | {
            "requirement": said,
            "order_slot": slot,
            "has_filter": filtered,
            "sensitive": dropped or not filtered,
            "difficulty": len(steps),
            "class": "drop" if dropped else "keep_filter" if filtered else "keep",
        },
    )
    if settings.states:
        task = with_states(task, settings.brief)
    if reason := verify(task):
        raise DemoTaskError(f"task {task.id} is refused: {reason}")
    return task
