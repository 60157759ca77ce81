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

from collections.abc import Iterator, Sequence
from random import Random

from assay.console import progress
from assay.seeds import derive_seed
from assay.task import Task, TaskError
from data_gen.demo.inject import before_sentence, pick, weave
from data_gen.demo.passages import Passage, canonical_hash
from data_gen.demo.refinements import Draft, Refinements
from data_gen.demo.settings import OrderSettings
from data_gen.demo.wording import filter_step, say_recipe
from rewards.gold import Execution, Step, execute
from rewards.parse import normalise

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
