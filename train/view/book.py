"""Everything a page shows: the runs' rollouts in order, their groups and advantages, and the index
that the page reads first, as columns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, cast

from assay.task import TaskError
from train.run.log import read_metrics
from train.view.bodies import number_of
from train.view.gold import Tasks, read_records, task_files
from train.view.links import TRAINING
from train.view.pieces import Pieces, find_tokenizer
from train.view.rollouts import Asked, Reader, Rollout
from train.view.sources import Source, Tail, find_sources, labels_of

_METRICS = ("reward/mean", "outcome/mean")


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
    runs: list[Run] = []
    noted = [read_records(place) for place in places]
    files = [task_files(place, records) for place, records in zip(places, noted, strict=True)]
    for n, (place, label) in enumerate(zip(places, labels_of(places), strict=True)):
        records = noted[n]
        # runs that are compared answer the same tasks: where one does not know them, another may
        known = [*files[n], *(file for other in files for file in other)]
        path = model / "tokenizer.json" if model else find_tokenizer(place, records)
        pieces = _pieces(path, asked=model is not None)
        reader = Reader(Tasks(tasks, list(dict.fromkeys(known))), pieces)
        runs.append(Run(place, label, reader, _divides(_first(records))))
    return runs


def _first(records: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    return records[0] if records else {}


def _pieces(path: Path | None, asked: bool) -> Pieces | None:
    try:
        return Pieces(path) if path else None
    except TaskError:
        if asked:
            raise
        return None


def _divides(record: Mapping[str, Any]) -> bool:
    """Whether the run divided its advantages by the group's spread."""
    held: Any = record
    for name in ("config", "rl", "divide_by_std"):
        held = cast("Mapping[str, Any]", held).get(name) if isinstance(held, Mapping) else None
    return held is True


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


class Names:
    """Words as numbers, in the order they come."""

    def __init__(self) -> None:
        self.of: dict[Any, int] = {}

    def __call__(self, word: Any) -> int:
        return self.of.setdefault(word, len(self.of))

    def list(self) -> list[Any]:
        return [*self.of]


@dataclass
class Book:
    """Rollouts in the page's order, each with its set's number, and the index over them."""

    rollouts: list[Rollout]
    bodies: list[str]
    index: dict[str, Any]
    """What the page reads first; JSON-ready."""


def bind(runs: Sequence[Run], title: str, live: bool = False) -> Book:
    """The runs as one book. The same files give the same book."""
    sets, tasks, answers = Names(), Names(), Names()
    rollouts: list[Rollout] = []
    columns: dict[str, list[Any]] = {name: [] for name in ("task", "set", "answer")}
    for number, run in enumerate(runs):
        for rollout in (r for mine in run.rollouts.values() for r in mine):
            rollouts.append(rollout)
            columns["set"].append(sets((number, rollout.set_name)))
            columns["task"].append(tasks(rollout.task))
            columns["answer"].append(answers(rollout.answer))
    asked = [_best(runs, key) for key in tasks.list()]
    known_sets = cast("list[tuple[int, str]]", sets.list())
    columns |= _plain_columns(rollouts)
    columns["advantage"] = _advantages(rollouts, columns, runs, known_sets)
    words = {name: Names() for name in ("why", "stop", "wrong", "label", "said")}
    for name, known in words.items():
        columns[name] = [known(getattr(r, name)) for r in rollouts]
    families, tracks = Names(), Names()
    index = {
        "title": title,
        "live": live,
        "runs": [run.label for run in runs],
        "sets": [
            {"run": n, "name": name, "key": name if len(runs) == 1 else f"{runs[n].label}:{name}"}
            for n, name in known_sets
        ],
        "by_std": [run.by_std for run in runs],
        "tasks": {
            "id": [a.task_id for a in asked],
            "prompt": [a.prompt for a in asked],
            "family": [families(a.family) for a in asked],
            "track": [tracks(a.track) for a in asked],
            "group": [a.group for a in asked],
            "slices": _slices([a.slices for a in asked]),
        },
        "names": {n: known.list() for n, known in words.items()}
        | {"family": families.list(), "track": tracks.list()},
        "parts": _parts(rollouts),
        "rows": columns,
        "metrics": _metrics(runs, known_sets),
    }
    return Book(rollouts, [a.body for a in asked], index)


def _best(runs: Sequence[Run], key: tuple[str, int]) -> Asked:
    """A task as the run shows it that knows its gold, else as any run does."""
    found = [run.reader.asked[key] for run in runs if key in run.reader.asked]
    return next((asked for asked in found if asked.known), found[0])


def _plain_columns(rollouts: Sequence[Rollout]) -> dict[str, list[Any]]:
    return {
        "step": [-1 if r.step is None else r.step for r in rollouts],
        "sample": [r.sample for r in rollouts],
        "outcome": [_short(r.outcome) for r in rollouts],
        "reward": [_short(r.reward) for r in rollouts],
        "length": [r.length for r in rollouts],
        "seconds": [_short(r.seconds, 3) for r in rollouts],
        "calls": [r.calls for r in rollouts],
    }


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
        values = Names()
        numbers = [values(mine[name]) if name in mine else -1 for mine in found]
        out[name] = {"values": values.list(), "of": numbers}
    return out


def _parts(rollouts: Sequence[Rollout]) -> dict[str, list[float | int | None]]:
    names = dict.fromkeys(n for r in rollouts for n in r.parts)
    return {name: [_short(r.parts.get(name)) for r in rollouts] for name in names}


def _metrics(runs: Iterable[Run], sets: Sequence[tuple[int, str]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for number, run in enumerate(runs):
        mine = sets.index((number, TRAINING)) if (number, TRAINING) in sets else None
        for row in run.metrics():
            reward, outcome = (_short(number_of(row.get(name))) for name in _METRICS)
            found.append(
                {
                    "run": number,
                    "set": mine,
                    "step": int(row["step"]),
                    "reward": reward,
                    "outcome": outcome,
                }
            )
    return found
