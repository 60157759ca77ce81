"""The files that tasks name, and where each stands in a pushed set.

Files that lie outside of the folder are put under `files/`, and the tasks name them there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from assay.task import Task, TaskError

OUTSIDE = "files"


def places_of(task: Task, tasks_file: Path) -> Iterator[Path]:
    """What a task's files are, on this machine."""
    for name, text in task.files.items():
        place = (tasks_file.parent / text).resolve()
        if not place.exists():
            raise TaskError(
                f"{tasks_file}: task {task.id}: its file {name!r} is not at {text}; "
                "build the tasks again, or put the file there"
            )
        yield place


def moved(task: Task, tasks_file: Path, folder: Path, outside: dict[Path, str]) -> Task:
    """The task as it stands in the archive: every path relative to its own file."""
    up = "../" * len(tasks_file.relative_to(folder).parent.parts)
    files: dict[str, str] = {}
    for (name, _), place in zip(task.files.items(), places_of(task, tasks_file), strict=True):
        files[name] = up + place_in(place, folder, outside)
    return replace(task, files=files)


def place_in(place: Path, folder: Path, outside: dict[Path, str]) -> str:
    """Where a file lies in the archive, from its top. Raises `TaskError` for a task that names the
    folder of the tasks itself."""
    if folder.resolve().is_relative_to(place):
        raise TaskError(f"{folder}: a task names this whole folder as its file; name a part of it")
    if place.is_relative_to(folder.resolve()):
        return place.relative_to(folder.resolve()).as_posix()
    if place not in outside:
        taken = set(outside.values())
        name = f"{OUTSIDE}/{place.name}"
        number = 2
        while name in taken or (folder / name).exists():
            name, number = f"{OUTSIDE}/{number}-{place.name}", number + 1
        outside[place] = name
    return outside[place]


def files_of(place: Path, folder: Path, outside: dict[Path, str]) -> Mapping[str, Path]:
    """Every regular file of what a task names, by its name in the archive."""
    return _below(place, place_in(place, folder, outside))


def kept_with(place: Path, folder: Path, outside: dict[Path, str]) -> Mapping[str, Path]:
    """`files_of` what a task names, and where that lies deep in the folder all that a builder put
    beside it: of `a/b/c` everything below `a/b`, such as the verifier of a task directory."""
    parts = Path(place_in(place, folder, outside)).parts
    if len(parts) < 3 or not place.is_relative_to(folder.resolve()):
        return files_of(place, folder, outside)
    top = Path(*parts[:2])
    return _below(folder.resolve() / top, top.as_posix())


def _below(place: Path, top: str) -> Mapping[str, Path]:
    if place.is_file():
        return {top: place}
    inner = (p for p in sorted(place.rglob("*")) if p.is_file())
    return {f"{top}/{p.relative_to(place).as_posix()}": p for p in inner}
