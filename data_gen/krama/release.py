"""A copy of KramaBench's release, as it lies on a disk: its workload files, its lakes, and what of
them is not there.

The release holds `workload/DOMAIN.json` and `data/DOMAIN/input/`. Its workload folder also has
files for a first try, named after no domain: they repeat tasks, also with other questions and
answers, and number others anew. A domain's own file decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.task import TaskError
from data_gen.krama.importer import Entry, entry_of, read_rows, resolve
from rewards.krama.release import LISTS_WHAT_IS_NOT_THERE

_LAKES = ("data", "lakes", "lake")  # folders that lakes lie in, beside the workload


@dataclass(frozen=True)
class Copy:
    """Workload files, and the folder of the lakes that belong to them."""

    workloads: tuple[Path, ...]
    lakes: Path


def find_copy(place: Path) -> Copy:
    """What lies at a place: the release's checkout, its workload folder, or one workload file.

    Raises `TaskError` where there is no workload, or no folder of lakes beside it.
    """
    if not place.exists():
        raise TaskError(
            f"{place}: no such file or folder; the release is a git repository, mitdbg/Kramabench "
            "on GitHub: clone it and give the folder"
        )
    if place.is_file():
        workloads, home = (place,), place.parent
    else:
        home = place / "workload" if (place / "workload").is_dir() else place
        workloads = tuple(sorted(p for p in home.glob("*.json") if p.name != "manifest.json"))
    if not workloads:
        raise TaskError(
            f"{place}: neither workload/*.json of the release nor a workload file is there; give "
            "its checkout, or --workload and --lakes"
        )
    for folder in (root / name for root in (home, home.parent) for name in _LAKES):
        if folder.is_dir():
            return Copy(workloads, folder)
    raise TaskError(
        f"{place}: no lakes are beside the workload ({home.parent / _LAKES[0]}/DOMAIN/input); "
        "fetch the release's data folder, or give --workload and --lakes"
    )


@dataclass(frozen=True)
class Gathered:
    """Each task once, and lines about what was named more than once."""

    entries: list[Entry]
    said: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class _Read:
    path: Path
    row: dict[str, Any]
    entry: Entry


def gathered(workloads: Sequence[Path]) -> Gathered:
    """The tasks of several workload files.

    Of a domain whose own file (DOMAIN.json) is among them, that file's tasks are taken, and those
    of other files left out. A task that two files hold alike, or one with fewer fields, is one
    task. Raises `TaskError` naming both files and the field where they differ.
    """
    paths = list({path.resolve(): path for path in workloads}.values())
    read = [
        _Read(path, row, entry_of(row, path, number))
        for path in paths
        for number, row in enumerate(read_rows(path), 1)
    ]
    own = {r.path.stem: r.path for r in read if r.path.stem == r.entry.domain}
    kept: dict[str, _Read] = {}
    aside: dict[tuple[Path, Path], list[_Read]] = {}
    twice: dict[tuple[Path, Path], int] = {}
    for one in read:
        home = own.get(one.entry.domain, one.path)
        if home != one.path:
            aside.setdefault((one.path, home), []).append(one)
            continue
        other = kept.setdefault(one.entry.id, one)
        if other is one:
            continue
        if other.path == one.path or _differs(other.row, one.row):
            raise TaskError(_clash(other, one))
        twice[other.path, one.path] = twice.get((other.path, one.path), 0) + 1
        if len(one.row) > len(other.row):
            kept[one.entry.id] = one
    said = [
        f"{path}: {_tasks(len(some))} left out ({', '.join(r.entry.id for r in some)}): "
        f"{home.name} is this domain's own file{_otherwise(some, kept)}"
        for (path, home), some in aside.items()
    ]
    said += [f"{a} and {b}: {_tasks(n)} in both, taken once" for (a, b), n in twice.items()]
    return Gathered([r.entry for r in kept.values()], said)


def _tasks(count: int) -> str:
    return f"{count} task{'' if count == 1 else 's'}"


def _clash(one: _Read, other: _Read) -> str:
    if one.path == other.path:
        return f"{one.path}: task {one.entry.id} is there twice; remove one"
    return (
        f"task {one.entry.id} is in {one.path} and, with another {_differs(one.row, other.row)!r}, "
        f"in {other.path}; give one of the two files"
    )


def _otherwise(some: Sequence[_Read], kept: dict[str, _Read]) -> str:
    """Which of the tasks that are left out ask something else than the one that is taken."""
    other = [
        f"{r.entry.id} in {field!r}"
        for r in some
        if r.entry.id in kept and (field := _differs(kept[r.entry.id].row, r.row))
    ]
    return f"; they differ: {', '.join(other)}" if other else ""


def _differs(one: dict[str, Any], other: dict[str, Any]) -> str:
    """The first field that both have with other values; "" where one says nothing against the
    other."""
    return next((name for name in one if name in other and one[name] != other[name]), "")


def absent_files(entry: Entry, files: Sequence[str]) -> list[str]:
    """Sources of a task that match nothing in its lake; none of a task whose list names what the
    release itself does not have. A pattern that matches some files is taken for whole."""
    if entry.gold_files:
        there = set(files)
        return [name for name in entry.gold_files if name not in there]
    if entry.id in LISTS_WHAT_IS_NOT_THERE:
        return []
    return [s for s in entry.sources if s.strip("./ ") and not resolve([s], files)]
