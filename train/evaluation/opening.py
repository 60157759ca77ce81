"""`--tasks`: files, folders and `NAME:DIR` of benchmarks as one list of tasks to ask, without what
the model was trained on, drawn down to `--limit` and to one `--part` of several."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from assay.console import task_filter
from assay.family import family_of, has_family, require_families, slices_of
from assay.seeds import derive_seed
from assay.task import (
    Task,
    TaskError,
    read_tasks,
    refuse_without_gold,
    with_absolute_files,
)
from train.evaluation.answering import is_folder
from train.evaluation.benchmarks import (
    FAMILIES,
    HELDOUT,
    OF_A_RELEASE,
    Opened,
    all_heldout,
    benchmark,
    benchmark_of,
    splits_of,
)
from train.run.trained_on import NAME, read_trained

# --- rows that the model was trained on ----------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """What the model's record says of the tasks asked for.

    `stages` is None where there is no record to look at. `ids` are the tasks that were trained on;
    they are among the tasks evaluated only if `included`. `said`: the same in words.
    """

    stages: Sequence[str] | None = None
    ids: frozenset[str] = frozenset()
    included: bool = False
    said: str = ""

    def to_json(self) -> dict[str, Any]:
        """For results.json."""
        return {
            "record": self.stages is not None,
            "stages": list(self.stages or ()),
            "rows": len(self.ids),
            "left_out": 0 if self.included else len(self.ids),
            "included": self.included and bool(self.ids),
            "said": self.said,
        }


def without_trained(tasks: Sequence[Task], args: Any) -> tuple[list[Task], Seen]:
    """The tasks to ask, and what is known: rows that the model was trained on are left out unless
    `--include-trained`. Raises `TaskError` where none is left."""
    if not is_folder(args.model):
        return list(tasks), Seen()
    record = read_trained(Path(args.model).expanduser())
    if record is None:
        said = f"{args.model} has no {NAME}: what it was trained on is not known; none is left out"
        return list(tasks), Seen(said=said)
    stages, every = [*map(str, record.stages)], len(tasks)
    ids = frozenset(task.id for task in tasks if record.saw(task))
    if not ids:
        said = f"none of {every} rows was trained on ({record})"
        return list(tasks), Seen(stages, said=said)
    said = f"{len(ids)} of {every} rows were trained on ({record})"
    if args.include_trained:
        said += "; they are asked too: this is no held-out result"
        return list(tasks), Seen(stages, ids, True, said)
    if len(ids) == every:
        raise TaskError(
            f"--model {args.model}: all {every} rows of --tasks were trained on ({record}) "
            "and are left out; give held-out tasks, or --include-trained to ask them"
        )
    said += " and are left out; --include-trained asks them too"
    return [task for task in tasks if task.id not in ids], Seen(stages, ids, False, said)


# --- the tasks of a command line -----------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """All tasks of a run, and which opened word each came from. Paths of files are absolute. `seen`
    says which of the tasks asked for the model was trained on."""

    tasks: list[Task]
    opened: list[Opened]
    of: dict[str, int]  # task id → index into `opened`
    seen: Seen

    def benchmark(self, task: Task) -> str:
        """The benchmark that asks and records the task, "" without one."""
        return self.opened[self.of[task.id]].benchmark or benchmark_of(task.family)


def open_all(words: Sequence[str], args: Any) -> Asked:
    """Every word of `--tasks` without what the model was trained on, drawn down to `--limit`.
    Raises `TaskError` in one sentence for what cannot be read, for a family that is not known, for
    two tasks of one id, and where nothing is left."""
    opened = [open_word(word, args) for word in words]
    of: dict[str, int] = {}
    for index, (word, part) in enumerate(zip(words, opened, strict=True)):
        for task in part.tasks:
            if task.id in of:
                raise TaskError(
                    f"--tasks {word}: task {task.id} is there twice (first in "
                    f"{words[of[task.id]]}); give each task once"
                )
            of[task.id] = index
    tasks = [task for part in opened for task in part.tasks]
    if not tasks:
        raise TaskError(f"--tasks {' '.join(words)}: no task is left")
    tasks = task_filter(args).select(tasks, f"--tasks {' '.join(words)}")
    require_families(tasks)
    refuse_without_gold(tasks, f"--tasks {' '.join(words)}")
    tasks, seen = without_trained(tasks, args)
    drawn = part_of(even_draw(tasks, args.limit, args.seed), args.part)
    if not drawn:
        raise TaskError(f"--part {args.part}: no task is left for it; give fewer parts")
    return Asked(drawn, opened, of, seen)


def open_word(word: str, args: Any) -> Opened:
    """One word of `--tasks`. Raises `TaskError`."""
    name, colon, rest = word.partition(":")
    if colon and name in FAMILIES:
        opened = benchmark(name).open(rest, args)
        published = bool(opened.tasks) and all(t.meta.get("published") for t in opened.tasks)
        called = opened.asked or (OF_A_RELEASE if published else "")
        return replace(opened, benchmark=name, asked=called)
    path = Path(word)
    if path.is_dir():
        path = _in_folder(path)
    if not path.is_file():
        known = ", ".join(f"{n}:DIR" for n in FAMILIES)
        raise TaskError(f"--tasks {word}: no such file; give a tasks.jsonl, a folder, or {known}")
    found = [with_absolute_files(task, path.parent) for task in read_tasks(path)]
    if not found:
        raise TaskError(f"{path}: no tasks in it; build some with `assay tasks`")
    return Opened(found, heldout=all_heldout(found), split=splits_of(path, found))


def files_of(words: Sequence[str]) -> list[Path]:
    """The files of tasks that words of `--tasks` mean; a benchmark's folder is none."""
    paths = [Path(word) for word in words]
    return [_in_folder(path) if path.is_dir() else path for path in paths if path.exists()]


def _in_folder(folder: Path) -> Path:
    for name in (HELDOUT, "tasks.jsonl"):
        if (folder / name).is_file():
            return folder / name
    known = ", ".join(f"{n}:{folder}" for n in FAMILIES)
    raise TaskError(
        f"--tasks {folder}: the folder holds neither {HELDOUT} nor tasks.jsonl; name a file of it, "
        f"or a benchmark ({known})"
    )


# --- `--part` and `--limit` ----------------------------------------------------------------------


def part_of(tasks: Sequence[Task], word: str) -> list[Task]:
    """The tasks of part `word`, "I/N" with I from 0; all for "". Parts are decided by the tasks and
    N alone, so jobs agree on them without talking; tasks of one unit stay together. Raises
    `TaskError`."""
    if not word:
        return list(tasks)
    first, slash, second = word.partition("/")
    if not (slash and first.isdecimal() and second.isdecimal() and int(first) < int(second)):
        raise TaskError(f"--part {word}: wanted I/N, with I from 0 to N-1, such as 0/8")
    numbers = {name: k for k, name in enumerate(dict.fromkeys(map(unit_of, tasks)))}
    return [task for task in tasks if numbers[unit_of(task)] % int(second) == int(first)]


def even_draw(tasks: Sequence[Task], limit: int, seed: int) -> list[Task]:
    """At most about `limit` tasks (0: all), the same number of each track and within a track as
    even over the values of its slices as can be, drawn by seed and in their old order.

    A task that is asked in several ways counts once; order groups and such ways are kept whole, so
    that a few more than `limit` may be left.
    """
    if not limit:
        return list(tasks)
    if limit < 0:
        raise TaskError(f"--limit {limit}: give 1 or more, or 0 for all")
    units: dict[str, list[Task]] = {}
    for task in tasks:
        units.setdefault(unit_of(task), []).append(task)
    tracks: dict[str, list[str]] = {}
    for unit, members in units.items():
        tracks.setdefault(members[0].track, []).append(unit)
    draws = [_drawn(track, names, units, seed) for track, names in tracks.items()]
    taken: set[str] = set()
    count = 0
    for unit in chain.from_iterable(zip_longest(*draws)):
        if count >= limit:
            break
        if unit is not None:
            taken.add(unit)
            count += len({task.meta.get("instance") or task.id for task in units[unit]})
    return [task for task in tasks if unit_of(task) in taken]


def _drawn(
    track: str, names: Sequence[str], units: Mapping[str, Sequence[Task]], seed: int
) -> Iterator[str]:
    """Units of one track, drawn so that values of slices come up as evenly as they can; those of
    the same values in an order by seed."""
    had: Counter[tuple[str, str]] = Counter()
    alike: dict[tuple[tuple[str, str], ...], deque[tuple[int, str]]] = {}
    for key, name in sorted((derive_seed(seed, "limit", track, n), n) for n in names):
        alike.setdefault(_slices(units[name][0]), deque()).append((key, name))
    while alike:  # next are those whose slices were drawn least
        chosen = min(alike, key=lambda pairs: (sum(had[pair] for pair in pairs), alike[pairs][0]))
        had.update(chosen)
        yield alike[chosen].popleft()[1]
        if not alike[chosen]:
            del alike[chosen]


def _slices(task: Task) -> tuple[tuple[str, str], ...]:
    if not has_family(task.family):
        return ()
    return tuple(slices_of(family_of(task), task).items())


def unit_of(task: Task) -> str:
    """What is drawn whole: an order group, an instance in all its wordings, or a task."""
    return f"{task.family}/{task.group or task.meta.get('instance') or task.id}"
