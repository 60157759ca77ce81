"""The merge after the second map: everything measured, and the units that are chosen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from assay.console import Progress
from assay.workers import WorkerPool
from data_gen.cdr.domains import ALL_MAPPERS
from data_gen.cdr.records import Replays
from data_gen.cdr.stages.arrays import Array, Arrays, read_json, save_arrays, write_json
from data_gen.cdr.stages.choose import SWAP, UNIT, Chooser, rows_at_most
from data_gen.cdr.stages.documents import Part
from data_gen.cdr.stages.facts import CALIBRATED_FILTERS, Facts, filters_of
from data_gen.cdr.stages.measure import (
    Filtered,
    Grouped,
    Measured,
    measure_filter,
    measure_mapper,
    measure_recipe,
)
from data_gen.cdr.stages.ranks import Candidates
from data_gen.cdr.stages.recipes import Library
from data_gen.cdr.stages.traces import Trace
from data_gen.cdr.stages.units import RecipeRules, Rule, Rules
from data_gen.cdr.stages.work import (
    Work,
    documents_at,
    library_at,
    opened,
    trace_files,
    trace_of,
)
from data_gen.cdr.swaps import swap_pairs


class Pieces:
    """(part, its usable facts, its trace) of one recipe, part by part, as often as asked for."""

    def __init__(self, folder: Path, number: int) -> None:
        self._folder, self._number = folder, number

    def __call__(self) -> Iterator[tuple[Part, Facts, Trace]]:
        work = opened(self._folder)
        recipe = library_at(self._folder)[1][self._number]
        parts = documents_at(self._folder).usable(work.config)
        for (part, facts), path in zip(parts, trace_files(work), strict=True):
            trace = trace_of(Arrays(path), self._number, len(recipe.columns))
            if len(trace.places):
                yield part, facts, trace


Measuring = tuple[Path, str, str]  # folder, kind, operator or number of the recipe
Pairs = list[tuple[int, int, int]]  # recipe, swap, document


def measure(job: Measuring) -> int:
    """Measure one operator or recipe, and leave it in the work folder."""
    folder, kind, name = job
    path = folder / "plan" / f"{kind}-{name}"
    if path.is_file():
        return 1
    work, documents = opened(folder), documents_at(folder)
    library, recipes = library_at(folder)
    most = rows_at_most(work.config, library)
    if kind == "mapper":
        _save(path, [measure_mapper(documents, name, work.config, most)], None)
    elif kind == "filter":
        found = measure_filter(documents, name, work.config, most)
        _save(path, [found.keep, found.drop], _rule(found) | _counts(found))
    else:
        pieces = Pieces(folder, int(name))
        made = measure_recipe(pieces, recipes[int(name)], work.config, most)
        sides = [side for one in made.variants for side in (one.keep, one.drop)]
        groups = [one.groups for one in made.families]
        record: dict[str, object] = {
            "variants": [_rule(one) | _counts(one) for one in made.variants],
            "families": [_rule(one) for one in made.families],
        }
        _save(path, [made.clean, made.swaps, *sides, *groups], record)
    return 1


def _rule(found: Filtered | Grouped) -> dict[str, object]:
    return {"params": found.params, "meta": found.meta}


def _rule_of(record: dict[str, Any]) -> Rule:
    return Rule(record["params"], record["meta"])


def _counts(found: Filtered) -> dict[str, object]:
    return {"kept": found.kept, "dropped": found.dropped}


def _save(path: Path, candidates: list[Candidates], record: dict[str, object] | None) -> None:
    """The record first: the arrays say that both are there."""
    write_json(path.with_name(path.name + ".json"), record or {})
    save_arrays(
        path,
        {
            f"{name}{place}": getattr(one, name)
            for place, one in enumerate(candidates)
            for name in ("hashes", "numbers", "bits")
        },
    )


class Measurements:
    """What `measure` left, read when it is asked for."""

    def __init__(self, plan: Path) -> None:
        self._plan = plan

    def _candidates(self, arrays: Arrays, place: int) -> Candidates:
        return Candidates(*(arrays[f"{name}{place}"] for name in ("hashes", "numbers", "bits")))

    def mapper(self, name: str) -> Candidates:
        return self._candidates(Arrays(self._plan / f"mapper-{name}"), 0)

    def filter(self, name: str) -> Filtered:
        path = self._plan / f"filter-{name}"
        return self._filtered(Arrays(path), 0, read_json(path.with_name(path.name + ".json")))

    def _filtered(self, arrays: Arrays, place: int, record: dict[str, object]) -> Filtered:
        sides = [self._candidates(arrays, place + side) for side in (0, 1)]
        return Filtered(**record, keep=sides[0], drop=sides[1])  # type: ignore[arg-type]

    def recipe(self, number: int) -> Measured:
        path = self._plan / f"recipe-{number}"
        arrays, record = Arrays(path), read_json(path.with_name(path.name + ".json"))
        variants, families = record["variants"], record["families"]
        last = 2 + 2 * len(variants)
        return Measured(
            self._candidates(arrays, 0),
            tuple(self._filtered(arrays, 2 + 2 * place, one) for place, one in enumerate(variants)),
            tuple(
                Grouped(one["params"], one["meta"], self._candidates(arrays, last + place))
                for place, one in enumerate(families)
            ),
            self._candidates(arrays, 1),
        )

    def rules(self, library: Library) -> Rules:
        """All thresholds, without the documents."""

        def record(name: str) -> dict[str, Any]:
            return read_json(self._plan / f"{name}.json")

        return Rules(
            tuple(_rule_of(record(f"filter-{name}")) for name in sorted(CALIBRATED_FILTERS)),
            tuple(
                RecipeRules(
                    tuple(map(_rule_of, made["variants"])), tuple(map(_rule_of, made["families"]))
                )
                for made in (record(f"recipe-{n}") for n in range(len(library.entries)))
            ),
        )

    def swaps(self, number: int) -> Array:
        return self._candidates(Arrays(self._plan / f"recipe-{number}"), 1).numbers


def plan_units(work: Work, crew: WorkerPool) -> Array:
    """Measure everything and choose; the units of all tracks, order pairs last."""
    library, _ = library_at(work.folder)
    path = work.plan / "units"
    if path.is_file():
        return Arrays(path).load("units")
    trace_files(work)  # all of them are there
    count = len(library.entries)
    jobs: list[Measuring] = [
        *((work.folder, "mapper", name) for name in ALL_MAPPERS),
        *((work.folder, "filter", name) for name in CALIBRATED_FILTERS),
        *((work.folder, "recipe", str(number)) for number in range(count)),
    ]
    work.plan.mkdir(parents=True, exist_ok=True)
    with Progress("plan", "operators and recipes", len(jobs)) as progress:
        for done in crew.map(measure, jobs):
            progress.add(done)
    pairs = crew.map(_swap_recipe, [(work.folder, number) for number in range(count)])
    source = Measurements(work.plan)  # while the processes look for pairs
    filters = filters_of(work.config)
    chooser = Chooser(work.config.instances, len(documents_at(work.folder)), filters)
    units = [np.zeros(0, UNIT), *chooser.units(source, library)]
    write_json(work.plan / "rules.json", source.rules(library))
    made = np.concatenate([*units, _swap_units(pairs, work.config.swaps.total, count)])
    save_arrays(path, {"units": made})
    return made


def _swap_units(pairs: Iterator[Pairs], total: int, recipes: int) -> Array:
    found: Pairs = []
    with Progress("order pairs", "recipes", recipes) as progress:
        for own in pairs:
            found += own
            progress.add(1)
            if total and len(found) >= total:
                break
    units = np.zeros(len(found[: total or None]), UNIT)
    for place, (number, swap, document) in enumerate(found[: total or None]):
        units[place] = (SWAP, 1, number, swap, document)
    return units


def _swap_recipe(job: tuple[Path, int]) -> Pairs:
    """(recipe, swap, document) of the pairs of one recipe."""
    folder, number = job
    entry = library_at(folder)[0].entries[number]
    documents, config = documents_at(folder), opened(folder).config.swaps
    found: Pairs = []
    for document in Measurements(folder / "plan").swaps(number).tolist():
        limits = replace(config, per_recipe=config.per_recipe - len(found))
        for pair in swap_pairs(entry, [documents.record(document)], limits, Replays()):
            swap = int(pair.family_id.rsplit("_", 2)[1])
            found.append((number, swap, document))
        if len(found) >= config.per_recipe:
            break
    return found
