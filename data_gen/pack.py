"""`assay tasks pack DIR --out FILE.tar.gz`: a set of tasks in one file that can be moved.

The archive holds the task files, every file and folder that a task names, the certificate and the
record of provenance. Files that lie outside of the folder are put under `files/`, and the tasks in
the archive name them there. The same set gives the same bytes: no times, no owners. `tar -xf`
unpacks it.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from assay import console
from assay.files import atomic_write
from assay.rows import read_rows
from assay.task import Task, TaskError, json_line

OUTSIDE = "files"


def main(argv: Sequence[str]) -> int:
    """Exit status 0. Raises `TaskError` for a folder without tasks, or a file that is missing."""
    made = console.parser("tasks pack", __doc__)
    made.add_argument("folder", type=Path, help="folder of task files (.jsonl)")
    console.add_out(made, "archive to write, .tar.gz", required=True)
    args = made.parse_args(argv)
    if not args.out.name.endswith((".tar.gz", ".tgz")):
        raise TaskError(f"{args.out}: name the archive .tar.gz")
    count, files = pack(args.folder, args.out)
    print(f"{args.out}: {count} tasks, {files} files of theirs")
    return console.DONE


def pack(folder: Path, out: Path) -> tuple[int, int]:
    """Write the archive; returns the numbers of tasks and of files that tasks name."""
    if not folder.is_dir():
        raise TaskError(f"{folder}: no such folder; give the folder that holds the task files")
    entries: dict[str, Path | bytes] = {}
    outside: dict[Path, str] = {}
    count = 0
    for path in sorted(folder.rglob("*.jsonl")):
        tasks = _tasks(path)
        if tasks is None:
            continue
        count += len(tasks)
        name = path.relative_to(folder).as_posix()
        entries[name] = b"".join(
            json_line(moved(t, path, folder, outside).to_json()) for t in tasks
        )
        for task in tasks:
            for place in places_of(task, path):
                entries.update(kept_with(place, folder, outside))
    if not count:
        raise TaskError(f"{folder}: holds no task file; give the folder that `assay tasks` wrote")
    named = len(entries) - sum(isinstance(body, bytes) for body in entries.values())
    for path in (*folder.glob("*.json"), *folder.glob("*.yaml")):
        entries.setdefault(path.name, path)
    _write(out, folder.resolve().name, entries)
    return count, named


def _tasks(path: Path) -> list[Task] | None:
    """The tasks of a file; None for a file of other rows."""
    rows = list(read_rows(path))
    if not rows or not all({"prompt", "gold", "family"} <= row.keys() for _, row in rows):
        return None
    return [Task.from_json(row, where) for where, row in rows]


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


def _write(out: Path, top: str, entries: Mapping[str, Path | bytes]) -> None:
    """A tar of regular files in order of name, without times and owners."""
    with (
        atomic_write(out) as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, body in sorted(entries.items()):
            about = tarfile.TarInfo(f"{top}/{name}")
            about.mode = 0o644
            about.size = len(body) if isinstance(body, bytes) else body.stat().st_size
            if isinstance(body, bytes):
                archive.addfile(about, io.BytesIO(body))
                continue
            with open(body, "rb") as data:
                archive.addfile(about, data)
