"""The one table from a task's family to what is known of it, and scoring through it.

Rejection sampling, RL, evaluation and every backend score through `score_answer`. Families from
outside join the table by `use_families`; a process that another one started takes them over from
the environment variable `ASSAY_FAMILIES`.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from assay.family import Family, score_after_thoughts
from assay.plugins import load_object
from assay.scorer_timeout import guarded
from assay.task import GOLD_LEFT_OUT, Answer, Score, Task, TaskError, unscored

# name of a built-in family: where it is, loaded when a task of it is met
_PLACES = {
    "refinement": "rewards.cdr.family:REFINEMENT",
    "structured": "rewards.cdr.family:STRUCTURED",
    "table": "rewards.dare.family:TABLE",
    "answer": "rewards.krama.family:ANSWER",
    "sql": "rewards.sql.family:SQL",
    "harbor": "rewards.harbor.family:HARBOR",
}


class _BuiltIn(Mapping[str, Family]):
    """The families of this package by name."""

    def __getitem__(self, name: str) -> Family:
        module, _, entry = _PLACES[name].partition(":")
        return getattr(importlib.import_module(module), entry)

    def __iter__(self) -> Iterator[str]:
        return iter(_PLACES)

    def __len__(self) -> int:
        return len(_PLACES)


BUILT_IN = _BuiltIn()
VARIABLE = "ASSAY_FAMILIES"
GROUP = "assay.families"  # entry points of installed packages
_added: dict[str, Family] = {}


def use_families(specs: Iterable[str]) -> list[Family]:
    """Load families from `FILE.py[:NAME]` or `pkg.module:NAME` and add them to the table.

    `NAME` is `FAMILY` where it is not said. Child processes get them too. Raises `TaskError` in
    one sentence for a file that cannot be loaded and for the name of another family.
    """
    found = [load_family(spec) for spec in specs]
    for family in found:
        other = BUILT_IN.get(family.name) or _added.get(family.name)
        if other is not None and other.origin != family.origin:
            where = other.origin or "a built-in family"
            raise TaskError(
                f"{family.origin}: family {family.name!r} is the name of {where} already; "
                "give it another name"
            )
    _added.update({f.name: f for f in found})
    if found:
        os.environ[VARIABLE] = "\n".join(f.origin for f in _added.values())
    return found


def load_family(spec: str) -> Family:
    """The family that `FILE.py[:NAME]` or `pkg.module:NAME` names. Raises `TaskError`."""
    family, origin = load_object(spec, "FAMILY", "--family")
    if not isinstance(family, Family):
        got = "nothing" if family is None else type(family).__name__
        name = origin.rpartition(":")[2]
        raise TaskError(f"--family {spec}: {name} is {got}; wanted a assay.family.Family")
    return replace(family, origin=origin)


def all_families() -> dict[str, Family]:
    """Built-in families and those added, by name."""
    return {**BUILT_IN, **_added}


def has_family(name: str) -> bool:
    """Whether there is a family of that name: built in, added, or of an installed package."""
    return (BUILT_IN.get(name) or _added.get(name) or _from_outside(name)) is not None


def family_named(name: str, where: str = "") -> Family:
    """The family of that name. Raises `TaskError` that says how to add one."""
    found = BUILT_IN.get(name) or _added.get(name) or _from_outside(name)
    if found is not None:
        return found
    known = ", ".join(all_families())
    near = difflib.get_close_matches(name, all_families(), 1)
    hint = f"did you mean {near[0]!r}?" if near else "add yours with --family FILE.py"
    raise TaskError(f"{where}{': ' * bool(where)}no family {name!r} (there is {known}); {hint}")


def _from_outside(name: str) -> Family | None:
    """A family of the parent process or of an installed package."""
    if specs := [s for s in os.environ.get(VARIABLE, "").split("\n") if s]:
        use_families(specs)
    if name not in _added:
        use_families(point.value for point in _installed() if point.name == name)
    return _added.get(name)


@lru_cache(maxsize=1)
def _installed() -> tuple[importlib.metadata.EntryPoint, ...]:
    """Families of installed packages; reading them takes milliseconds, and rows are many."""
    return tuple(importlib.metadata.entry_points(group=GROUP))


def family_of(task: Task) -> Family:
    """The task's family. Raises `TaskError` naming the task and, where the task says it, the file
    that its family came from."""
    try:
        return family_named(task.family, f"task {task.id}")
    except TaskError as error:
        origin = task.meta.get("family_origin")
        hint = f"; it was built with --family {origin}" if origin else ""
        raise TaskError(f"{error}{hint}") from None


def require_families(tasks: Iterable[Task]) -> None:
    """Raise `TaskError` for the first task whose family is not known, before any work is done."""
    seen: set[str] = set()
    for task in tasks:
        if task.family not in seen:
            family_of(task)
            seen.add(task.family)


def score_answer(task: Task, answer: Answer, weights: Mapping[str, Any] | None = None) -> Score:
    """Score one answer. `weights`: settings by family name; a family's defaults where it has none.

    Never raises on what a model wrote; an infrastructure failure has no outcome. A thought before
    an answer is no part of it. A scorer from outside that raises, runs into the deadline or returns
    no usable score gives no outcome and says why. Raises `TaskError` for a family that is not known
    or gold that cannot be read.
    """
    family = family_of(task)
    if answer.failure is not None:
        return unscored(f"failure: {answer.failure}")
    if task.meta.get(GOLD_LEFT_OUT):
        return unscored("the task came without its gold")
    mine = (weights or {}).get(family.name)
    arguments = (mine if mine is not None else family.weights(),) if family.takes_weights else ()
    if family.origin:
        return guarded(family, task, answer, arguments)
    return score_after_thoughts(family, task, answer, arguments)


def states_of(task: Task) -> Sequence[Task]:
    """The task begun for the model (`Family.states`); empty where its family knows no states."""
    family = family_of(task)
    return () if family.states is None else family.states(task)
