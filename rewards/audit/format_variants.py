"""Gold in harmless respellings: which of them score 1, and whose reading decides.

A respelling changes spaces, the form of a number, quotes, the order of keys and the like. Where the
benchmark's own reading takes one, training must not reject its content.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from assay.family import Family, as_answer
from assay.task import RIGHT, Task
from rewards.audit.laws import scored


@dataclass(frozen=True)
class Respelled:
    """How many of `tasks` score 1 in the training reading, and in the benchmark's own (None: the
    family has no other)."""

    name: str
    tasks: int
    training: int
    benchmark: int | None


def respelled(family: Family, tasks: Sequence[Task]) -> dict[str, list[Respelled]]:
    """By kind, every respelling of the family; empty where it has none."""
    if family.spellings is None:
        return {}
    found: dict[str, dict[str, list[tuple[bool, bool | None]]]] = {}
    for task in tasks:
        kind = found.setdefault(family.kind(task), {})
        for name, said in family.spellings(task).items():
            answer = as_answer(said)
            training = scored(task, answer).outcome
            own = None
            if family.benchmark is not None:
                own = (family.benchmark(task, answer) or 0.0) >= RIGHT
            kind.setdefault(name, []).append(((training or 0.0) >= RIGHT, own))
    return {kind: [_counted(name, pairs) for name, pairs in r.items()] for kind, r in found.items()}


def _counted(name: str, pairs: Sequence[tuple[bool, bool | None]]) -> Respelled:
    own = None if pairs[0][1] is None else sum(bool(b) for _, b in pairs)
    return Respelled(name, len(pairs), sum(t for t, _ in pairs), own)


def lines(found: Mapping[str, Sequence[Respelled]]) -> list[str]:
    """One line a kind: how many respellings score 1, and which do not."""
    said: list[str] = []
    for kind, rows in sorted(found.items()):
        whole = [r for r in rows if r.training == r.tasks]
        failed = [f"{r.name} ({_whose(r)})" for r in rows if r.training < r.tasks]
        line = f"  gold respelled, {kind}: {len(whole)} of {len(rows)} score 1"
        said.append(line + (f"; not: {', '.join(failed)}" if failed else ""))
    return said


def _whose(row: Respelled) -> str:
    """Who rejects it."""
    if row.benchmark is None:
        return "rejected"
    if row.benchmark < row.tasks and row.training <= row.benchmark:
        return "the benchmark's own reading too"
    return "training only"
