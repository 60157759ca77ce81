"""Splits by source, and what a user says must be held out."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.console import Parser
from assay.family import Family, source_of
from assay.task import Task, TaskError, derive_seed

TRAIN = "train"
SPLITS = (TRAIN, "validation", "heldout")
HELDOUT = 0.2  # share that is held out by default
VALIDATION = 0.1  # and that validates, from `ENOUGH` sources on
ENOUGH = 10


def taken(
    names: Iterable[str],
    share: float,
    rank: Callable[[str], Any],
    listed: Collection[str] = (),
    *,
    of: int = 0,
    least: int = 0,
    spare: int = 0,
) -> list[str]:
    """The names that go to a side: the first by `rank` (a hash, so that more names move few), as
    many as a share of them, or of the number `of`, and those `listed` in any case. At least `least`
    where a share is asked for; at least `spare` stay."""
    ranked = sorted(set(names), key=lambda name: (name not in listed, rank(name), name))
    must = sum(name in listed for name in ranked)
    wanted = max(round(share * (of or len(ranked))), least if share > 0 else 0)
    return ranked[: max(must, min(wanted, len(ranked) - spare))]


def sides_of(
    names: Iterable[str],
    heldout: float | None,
    validation: float | None,
    rank: Callable[[str], Any],
    listed: Collection[str] = (),
) -> dict[str, str]:
    """Name → its split: a share of the names (None: `HELDOUT`), and those listed, is held out; a
    share of what is left validates (None: `VALIDATION` from `ENOUGH` names on). A share above 0
    takes at least one name as long as one is left to train on."""
    every = set(names)
    heldout = HELDOUT if heldout is None else heldout
    if validation is None:
        validation = VALIDATION if len(every) >= ENOUGH else 0.0
    held = taken(every, heldout, rank, listed, least=1, spare=1)
    rest = every - {*held}
    chosen = taken(rest, validation, rank, least=1, spare=1)
    side = dict.fromkeys(rest, TRAIN) | dict.fromkeys(held, "heldout")
    return side | dict.fromkeys(chosen, "validation")


def wanted_of(count: int, side: Mapping[str, str]) -> dict[str, int]:
    """How many of `count` tasks each split gets: as large a share as it has of the sources."""
    sizes = Counter(side.values())
    away = {n: round(count * sizes[n] / max(1, len(side))) for n in SPLITS[1:]}
    return {TRAIN: count - sum(away.values())} | away


def add_shares(
    to: Parser,
    what: str,
    heldout: str = "0.2; of two or more at least one",
    validation: str = "0.1 from ten on",
) -> None:
    """The options by which a user says how much is held out; the last two say defaults."""
    for name, of, default in (
        ("heldout", f"of the {what}, to test on", heldout),
        ("validation", f"of the {what} that are left, to choose settings on", validation),
    ):
        to.add_argument(f"--{name}-share", type=share_of, metavar="SHARE", help=f"{of} ({default})")


def add_splits(to: Parser, what: str, share: str, validation: str) -> None:
    """The same, and a list of what is held out by name."""
    add_shares(to, what, share, validation)
    to.add_argument(
        "--heldout", metavar="LIST", help=f"file of ids of {what} that must be held out, one a line"
    )


def share_of(text: str) -> float:
    """A share as a command line gives it. Raises `ArgumentTypeError` in one sentence."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise ArgumentTypeError(f"{text}: wanted a share from 0 to below 1, such as 0.2")
    return value


def read_list(path: str | None) -> frozenset[str]:
    """The names of a file, one a line; what follows `#` after a space, or a whole line of it, is a
    comment. Raises `TaskError` for a file that cannot be read or names nothing."""
    if not path:
        return frozenset()
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"--heldout {path}: cannot be read ({error}); give one id a line") from None
    said = (re.split(r"(?:^|\s)#", line)[0].strip() for line in text.splitlines())
    names = frozenset(name for name in said if name)
    if not names:
        raise TaskError(f"--heldout {path}: no id in it; give one a line")
    return names


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
    source = {task.id: source_of(family, task) for task in tasks}
    if gone := sorted(wanted.listed - {*source, *source.values()}):
        raise TaskError(
            f"--heldout: no task of split {TRAIN} has the id or source {gone[0]!r} "
            f"({len(gone)} are unknown)"
        )
    must = {s for name, s in source.items() if name in wanted.listed or s in wanted.listed}

    def rank(name: str) -> int:
        return derive_seed(seed, "heldout", name)

    names = {*source.values()}
    side = sides_of(names, wanted.heldout or 0.0, wanted.validation or 0.0, rank, must)
    if {*side.values()} in ({TRAIN}, {"heldout"}):
        raise TaskError(
            f"nothing would be left to train on: the {len(tasks)} tasks of split {TRAIN} come from "
            f"{len(side)} source(s); give more sources, or smaller shares"
        )
    moved = {name: [t for t in tasks if side[source[t.id]] == name] for name in SPLITS}
    splits[TRAIN] = moved[TRAIN]
    for name in SPLITS[1:]:
        if moved[name]:
            splits[name] = [*splits.get(name, []), *moved[name]]
    return splits
