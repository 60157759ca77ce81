"""What a user wants held out of the tasks that a family's own builder gave, taken by source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.family import Family, source_of
from assay.seeds import derive_seed
from assay.task import Task, TaskError

TRAIN = "train"


@dataclass(frozen=True)
class Wanted:
    """Shares of the sources of split `train` (None: none are taken), and ids of tasks, or names of
    their sources, that must be held out."""

    heldout: float | None = None
    validation: float | None = None
    listed: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.heldout or self.validation or self.listed)


def resplit(
    family: Family, made: Mapping[str, Sequence[Any]], wanted: Wanted, seed: int
) -> dict[str, list[Any]]:
    """The splits with whole sources moved from `train` to `heldout` and `validation`.

    Raises `TaskError` for a split that the builder gives already and is asked a share of, for a
    listed name that no task has, and where nothing would be left to train on.
    """
    splits = {name: list(tasks) for name, tasks in made.items()}
    if not wanted:
        return splits
    for name, share in (("heldout", wanted.heldout), ("validation", wanted.validation)):
        if share and splits.get(name):
            raise TaskError(
                f"--{name}-share {share:g}: the build of family {family.name} gives "
                f"{len(splits[name])} tasks for {name} itself; leave the option"
            )
    tasks: list[Task] = [task for task in splits.get(TRAIN, []) if isinstance(task, Task)]
    side = _sides(family, tasks, wanted, seed)
    moved = {name: [t for t in tasks if side[source_of(family, t)] == name] for name in SIDES}
    if not moved[TRAIN]:
        raise TaskError(
            f"nothing would be left to train on: the {len(tasks)} tasks of split {TRAIN} come from "
            f"{len(side)} source(s); give more sources, or smaller shares"
        )
    splits[TRAIN] = moved[TRAIN]
    for name in SIDES[1:]:
        if moved[name]:
            splits[name] = [*splits.get(name, []), *moved[name]]
    return splits


SIDES = (TRAIN, "validation", "heldout")


def _sides(family: Family, tasks: Sequence[Task], wanted: Wanted, seed: int) -> dict[str, str]:
    """Source → its split."""
    sources = {task.id: source_of(family, task) for task in tasks}
    known = {*sources, *sources.values()}
    if gone := sorted(wanted.listed - known):
        raise TaskError(
            f"--heldout: no task of split {TRAIN} has the id or source {gone[0]!r} "
            f"({len(gone)} are unknown)"
        )
    must = {s for name, s in sources.items() if name in wanted.listed or s in wanted.listed}
    names = sorted({*sources.values()} - must, key=lambda s: (derive_seed(seed, "heldout", s), s))
    count = len(names) + len(must)
    away = _share(wanted.heldout, count) - len(must)
    side = dict.fromkeys(must, "heldout") | dict.fromkeys(names[: max(away, 0)], "heldout")
    rest = names[max(away, 0) :]
    chosen = rest[: _share(wanted.validation, len(rest))]
    return {**dict.fromkeys(rest, TRAIN), **dict.fromkeys(chosen, "validation"), **side}


def _share(share: float | None, count: int) -> int:
    """So many of `count`: at least one where a share is asked for."""
    return max(1, round(share * count)) if share else 0
