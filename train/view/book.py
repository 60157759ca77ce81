"""Everything a page shows: the runs' rollouts in order, their groups and advantages, and the index
that the page reads first, as columns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, TypeVar

from assay.task import TaskError
from train.run.log import read_metrics
from train.view.rollouts import Asked, Pieces, Reader, Rollout, find_tokenizer, number_of
from train.view.sources import (
    TRAINING,
    Source,
    Tail,
    Tasks,
    find_sources,
    labels_of,
    read_records,
    task_files,
)

# numbers of a rollout, and the digits that the page has of them
DIGITS = {"sample": 0, "outcome": 4, "reward": 4, "length": 0, "seconds": 3, "calls": 0}
T = TypeVar("T")


@dataclass
class Run:
    """One of the places that were given, and what of it has been read so far."""

    place: Path
    label: str
    reader: Reader
    by_std: bool
    tails: dict[Source, Tail] = field(default_factory=dict[Source, Tail])
    rollouts: dict[Source, list[Rollout]] = field(default_factory=dict[Source, list[Rollout]])

    def refresh(self) -> bool:
        """Read what is new; returns whether anything is."""
        sources = find_sources(self.place)
        gone = set(self.tails) - set(sources)
        for source in gone:  # a resumed run starts its last steps again
            del self.tails[source], self.rollouts[source]
        changed = bool(gone)
        for source in sources:
            try:
                kept, lines = self.tails.setdefault(source, Tail(source)).more() or (None, [])
                old = self.rollouts.get(source, [])
                new = [self.reader.read(line, source) for line in lines]
                self.rollouts[source] = [*old[:kept], *new]
                changed |= bool(new) or len(self.rollouts[source]) < len(old)
            except (TaskError, OSError):  # said again at the next look, until it is mended
                self.tails.pop(source, None)
                self.rollouts.pop(source, None)
                raise
        self.rollouts = {source: self.rollouts[source] for source in sources}
        return changed

    def metrics(self) -> list[dict[str, Any]]:
        """Reward and outcome of each logged RL step, also where the rollouts were not kept."""
        rows = read_metrics(self.place) if self.place.is_dir() else []
        found = [row for row in rows if row.get("stage") == "rl"]
        return [row for row in found if number_of(row.get("step")) is not None]


def open_runs(
    places: Sequence[Path], tasks: Sequence[Path] = (), model: Path | None = None
) -> list[Run]:
    """The runs, not read yet. `tasks`: files of tasks beside those that the runs name; `model`: a
    folder with the tokenizer. Raises `TaskError`."""
    noted = [read_records(place) for place in places]
    files = [task_files(place, records) for place, records in zip(places, noted, strict=True)]
    runs: list[Run] = []
    for n, (place, label) in enumerate(zip(places, labels_of(places), strict=True)):
        # runs that are compared answer the same tasks: where one does not know them, another may
        known = [*files[n], *(file for other in files for file in other)]
        path = model / "tokenizer.json" if model else find_tokenizer(place, noted[n])
        try:
            pieces = Pieces(path) if path else None
        except TaskError:
            if model:
                raise
            pieces = None
        reader = Reader(Tasks(tasks, list(dict.fromkeys(known))), pieces)
        runs.append(Run(place, label, reader, _divides(noted[n])))
    return runs


def _divides(records: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the run divided its advantages by the group's spread."""
    try:
        return records[0]["config"]["rl"]["divide_by_std"] is True
    except (IndexError, KeyError, TypeError):
        return False


def advantages(rewards: Sequence[float | None], by_std: bool) -> list[float | None]:
    """Reward minus the mean of the group's valid rewards, as the trainer computes it; 0 where all
    are alike, None without a reward and in a group of one."""
    if len(rewards) < 2:
        return [None] * len(rewards)
    valid = [r for r in rewards if r is not None]
    if not valid or max(valid) <= min(valid):
        return [None if r is None else 0.0 for r in rewards]
    mean = fmean(valid)
    scale = stdev(valid) + 1e-6 if by_std and len(valid) > 1 else 1.0
    return [None if r is None else (r - mean) / scale for r in rewards]


def numbered(words: Iterable[T]) -> tuple[list[T], list[int]]:
    """(the words that there are, in the order they come; the number of each word)."""
    of: dict[T, int] = {}
    numbers = [of.setdefault(word, len(of)) for word in words]
    return [*of], numbers


@dataclass
class Book:
    """Rollouts in the page's order, each with its set's number, and the index over them."""

    rollouts: list[Rollout]
    bodies: list[str]
    index: dict[str, Any]
    """What the page reads first; JSON-ready."""


def bind(runs: Sequence[Run], title: str, live: bool = False) -> Book:
    """The runs as one book. The same files give the same book."""
    found = [(n, r) for n, run in enumerate(runs) for mine in run.rollouts.values() for r in mine]
    rollouts = [rollout for _, rollout in found]
    sets, set_of = numbered((number, r.set_name) for number, r in found)
    tasks, task_of = numbered(r.task for r in rollouts)
    asked = [_best(runs, key) for key in tasks]
    columns: dict[str, list[Any]] = {"task": task_of, "set": set_of}
    columns["answer"] = numbered(r.answer for r in rollouts)[1]
    columns["step"] = [-1 if r.step is None else r.step for r in rollouts]
    for name, digits in DIGITS.items():
        columns[name] = [_short(getattr(r, name), digits) for r in rollouts]
    columns["advantage"] = _advantages(rollouts, columns, runs, sets)
    names: dict[str, list[str]] = {}
    for name in ("why", "stop", "wrong", "label", "said"):
        names[name], columns[name] = numbered(str(getattr(r, name)) for r in rollouts)
    names["family"], families = numbered(a.family for a in asked)
    names["track"], tracks = numbered(a.track for a in asked)
    parts = dict.fromkeys(n for r in rollouts for n in r.parts)
    index = {
        "title": title,
        "live": live,
        "runs": [run.label for run in runs],
        "sets": [
            {"run": n, "name": name, "key": name if len(runs) == 1 else f"{runs[n].label}:{name}"}
            for n, name in sets
        ],
        "by_std": [run.by_std for run in runs],
        "tasks": {
            "id": [a.task_id for a in asked],
            "prompt": [a.prompt for a in asked],
            "family": families,
            "track": tracks,
            "group": [a.group for a in asked],
            "slices": _slices([a.slices for a in asked]),
        },
        "names": names,
        "parts": {name: [_short(r.parts.get(name)) for r in rollouts] for name in parts},
        "rows": columns,
        "metrics": _metrics(runs, sets),
    }
    return Book(rollouts, [a.body for a in asked], index)


def _best(runs: Sequence[Run], key: tuple[str, int]) -> Asked:
    """A task as the run shows it that knows its gold, else as any run does."""
    found = [run.reader.asked[key] for run in runs if key in run.reader.asked]
    return next((asked for asked in found if asked.known), found[0])


def _short(value: float | None, digits: int = 4) -> float | int | None:
    if value is None or not math.isfinite(value):
        return None
    rounded = round(value, digits)
    return int(rounded) if rounded == int(rounded) else rounded


def _advantages(
    rollouts: Sequence[Rollout],
    columns: Mapping[str, Sequence[int]],
    runs: Sequence[Run],
    sets: Sequence[tuple[int, str]],
) -> list[float | int | None]:
    """By group: the rollouts of one task in one step of one set."""
    groups: dict[tuple[int, int, int], list[int]] = {}
    for i, rollout in enumerate(rollouts):
        step = -1 if rollout.step is None else rollout.step
        groups.setdefault((columns["set"][i], step, columns["task"][i]), []).append(i)
    found: list[float | int | None] = [None] * len(rollouts)
    for (number, _, _), places in groups.items():
        run, name = sets[number]
        rewards = [rollouts[i].reward if rollouts[i].outcome is not None else None for i in places]
        by_std = runs[run].by_std and name == TRAINING
        for i, value in zip(places, advantages(rewards, by_std), strict=True):
            found[i] = _short(value)
    return found


def _slices(found: Sequence[Mapping[str, str]]) -> dict[str, dict[str, list[Any]]]:
    """Name of a slice → its values, and a number a task (−1: it has none)."""
    out: dict[str, dict[str, list[Any]]] = {}
    for name in dict.fromkeys(n for mine in found for n in mine):
        values, numbers = numbered(mine[name] for mine in found if name in mine)
        left = iter(numbers)
        of = [next(left) if name in mine else -1 for mine in found]
        out[name] = {"values": values, "of": of}
    return out


def _metrics(runs: Iterable[Run], sets: Sequence[tuple[int, str]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for number, run in enumerate(runs):
        mine = sets.index((number, TRAINING)) if (number, TRAINING) in sets else None
        for row in run.metrics():
            means = {n: _short(number_of(row.get(f"{n}/mean"))) for n in ("reward", "outcome")}
            found.append({"run": number, "set": mine, "step": int(row["step"]), **means})
    return found
