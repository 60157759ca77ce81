"""The demo's tasks: short real passages, small recipes, gold by the executors.

A recipe with a filter is built as a pair, the same words once with a passage it keeps and once
with one it drops. So nothing in the instruction tells the status; only the text decides, as far as
the two counts (KEEP and DROP) are asked to be equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import Any

from assay.console import progress
from assay.seeds import derive_seed
from assay.task import Task, TaskError
from data_gen.demo.inject import WEAVERS, Woven, frame, pick, weave, weave_markup, wrap
from data_gen.demo.passages import Passage, canonical_hash
from data_gen.demo.refinements import Draft, Refinements
from data_gen.demo.settings import DemoTaskSettings
from data_gen.demo.wording import filter_number, filter_step, say_recipe
from rewards.gold import Execution, Step, execute
from rewards.parse import normalise

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
