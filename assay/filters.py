"""Which tasks a command works on: `--track` and `--licence`, the same on every command."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, cast

from assay.task import Task, TaskError

UNKNOWN = "unknown"
# `--licence permissive`: the licences of DARE-bench's strictly open subset (its appendix E), which
# neither bind what is made from the data nor forbid any use of it.
PERMISSIVE = ("MIT", "Apache-2.0", "CC0-1.0", "CC-BY-4.0")


def licences_of(task: Task) -> tuple[str, ...]:
    """The licences of what a task was made from, sorted: `meta.licences`, else `meta.licence`."""
    return licences_in(task.meta)


def licences_in(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The same of a task's `meta` or of a row that was written about a task."""
    several: Any = row.get("licences")
    if isinstance(several, list | tuple) and several:
        return tuple(sorted({str(name) for name in cast("list[Any]", several)}))
    return (str(row.get("licence") or UNKNOWN),)


@dataclass(frozen=True)
class Chosen:
    """Tracks and licences that are asked for, patterns such as `CC-BY*`; (): all. A pattern after
    `!` takes away, from all or from what the others name."""

    tracks: tuple[str, ...] = ()
    licences: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.tracks or self.licences)

    def takes_track(self, track: str) -> bool:
        return _passes(track, self.tracks)

    def takes_licences(self, licences: Iterable[str]) -> bool:
        """Whether every one of them is asked for: a task is bound by all it was made from."""
        named = (PERMISSIVE if p == "permissive" else (p,) for p in self.licences)
        patterns = [pattern.lower() for one in named for pattern in one]
        return all(_passes(name.lower(), patterns) for name in licences)

    def takes(self, task: Task) -> bool:
        return self.takes_track(task.track) and self.takes_licences(licences_of(task))

    def takes_row(self, row: Mapping[str, Any]) -> bool:
        """The same of a row of a file, which says it itself or, as a task, in `meta`."""
        meta: Any = row.get("meta")
        about = cast("Mapping[str, Any]", {**row, **meta} if isinstance(meta, Mapping) else row)
        track = str(row.get("track") or "")
        return self.takes_track(track) and self.takes_licences(licences_in(about))

    def words(self) -> str:
        """The options that say this."""
        tracks = [f"--track {name}" for name in self.tracks]
        return " ".join([*tracks, *(f"--licence {name}" for name in self.licences)])

    def of(self, tasks: Iterable[Task], where: str) -> list[Task]:
        """The tasks that are asked for, in order. Raises `TaskError` where none is left."""
        if not self:
            return list(tasks)
        there = Seen()
        left = list(self.passing(tasks, there))
        if not left:
            raise there.nothing(self, where)
        return left

    def passing(self, tasks: Iterable[Task], there: Seen) -> Iterator[Task]:
        """The tasks that are asked for; `there` remembers what all of them are."""
        for task in tasks:
            there.add(task)
            if self.takes(task):
                yield task


def _passes(name: str, patterns: Sequence[str]) -> bool:
    """Whether a name is one of those asked for, and none that is taken away."""
    wanted = [p for p in patterns if not p.startswith("!")]
    gone = any(fnmatchcase(name, p[1:]) for p in patterns if p.startswith("!"))
    return not gone and (not wanted or any(fnmatchcase(name, p) for p in wanted))


ALL = Chosen()


class Seen:
    """The tracks and licences of tasks, to say what there is where nothing is left."""

    def __init__(self) -> None:
        self._tracks, self._licences = Counter[str](), Counter[str]()

    def add(self, task: Task) -> None:
        self._tracks[task.track] += 1
        self._licences.update([", ".join(licences_of(task))])

    def nothing(self, asked: Chosen, where: str) -> TaskError:
        return TaskError(
            f"{where}: no task is left by {asked.words()}; there are tracks "
            f"{_shown(self._tracks)} and licences {_shown(self._licences)}"
        )


def _shown(counts: Counter[str], most: int = 8) -> str:
    names = [f"{name!r} ({count})" for name, count in counts.most_common(most)]
    more = len(counts) - len(names)
    return (", ".join(names) or "none") + (f" and {more} more" if more > 0 else "")


def add_chosen(to: Any, what: str = "tasks") -> None:
    """`--track` and `--licence` for a parser, or a group of one."""
    to.add_argument(
        "--track",
        action="append",
        default=[],
        metavar="LIST",
        help=f"only {what} of these tracks, with commas, or patterns; '!*-IF' takes away; may be "
        "repeated",
    )
    to.add_argument(
        "--licence",
        action="append",
        default=[],
        metavar="LIST",
        help=f"only {what} made from data of these licences alone, with commas, or patterns such "
        "as CC-BY*; permissive: MIT, Apache-2.0, CC0-1.0 and CC-BY-4.0; may be repeated",
    )


def chosen(args: argparse.Namespace) -> Chosen:
    """What the two options say."""
    licences = [*args.licence, *_listed(args.licence)]  # the name of one may hold a comma
    return Chosen(_listed(args.track), tuple(dict.fromkeys(licences)))


def _listed(words: Sequence[str]) -> tuple[str, ...]:
    names = (name.strip() for word in words for name in word.split(","))
    return tuple(dict.fromkeys(name for name in names if name))
