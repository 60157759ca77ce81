"""`assay pull SOURCE --out T`: a set of tasks that `assay push` wrote, as `assay tasks` leaves it.

SOURCE is a folder, a .tar.gz, a URL that fsspec knows, or hf://datasets/OWNER/NAME[@REVISION].
Every file is held against the hash that came with it; where one is missing or changed, nothing is
written. The tasks have the ids, the gold and the files that were pushed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from assay import console
from assay.console import SeenTasks, TaskFilter, add_filter, task_filter
from assay.files import atomic_write_set, file_hash, write_bytes
from assay.task import Task, TaskError, json_line, json_text
from data_gen.certificate import CERTIFICATE
from data_gen.dataset import FILES, Manifest, Split, fetched, inside, read_parquet

RECORD = "pulled.json"


def options() -> console.Parser:
    made = console.parser("pull", __doc__)
    made.add_argument(
        "source", metavar="SOURCE", help="folder, .tar.gz, URL, or hf://datasets/OWNER/NAME"
    )
    console.add_out(made, "folder to write into", required=True)
    add_filter(made)
    return made


def main(argv: list[str]) -> int:
    """Exit status 0. Raises `TaskError` for a set that is not whole."""
    args = options().parse_args(argv)
    with fetched(args.source) as (folder, listed):
        if folder.resolve() == args.out.resolve():
            raise TaskError(f"--out {args.out}: is the data set itself; give another folder")
        with atomic_write_set(args.out, stale=_earlier(args.out)) as new:
            counts = place(folder, listed, new, args.source, task_filter(args))
        for empty in listed.folders:
            (args.out / empty).mkdir(parents=True, exist_ok=True)
    for file, count in counts.items():
        print(f"{args.out / file}: {count} tasks")
    if not listed.gold:
        print(
            f"{args.source}: came without gold: answers to these tasks have no outcome here; "
            "whoever pushed them can score them",
            file=sys.stderr,
        )
    return console.DONE


def _earlier(out: Path) -> list[str]:
    """The files of the set that was pulled to this folder before."""
    try:
        names = json.loads((out / RECORD).read_bytes())["files"]
        return [name for name in names if inside(str(name))]
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return []


def place(
    folder: Path, listed: Manifest, new: Path, source: str, asked: TaskFilter
) -> dict[str, int]:
    """Check the data set in `folder` and write its set of tasks into the empty folder `new`;
    returns the numbers of tasks by file."""
    runs = set(listed.runs)
    for name, (digest, _) in listed.files.items():
        inner = name.removeprefix(f"{FILES}/") if name.startswith(f"{FILES}/") else ""
        target = new / (inner or name) if inner or name == CERTIFICATE else None
        _copied(folder / name, target, digest, f"{source}: {name}")
        if target is not None and inner in runs:
            os.chmod(target, 0o755)
    for empty in listed.folders:
        (new / empty).mkdir(parents=True, exist_ok=True)
    there, counts = SeenTasks(), dict[str, int]()
    for split in listed.splits:
        counts[split.file] = _split(folder, split, new, source, asked, there)
    if asked and not any(counts.values()):
        raise there.none_left(asked, source)
    record = {
        "source": source,
        "gold": listed.gold,
        "tasks": counts,
        "files": sorted(p.relative_to(new).as_posix() for p in new.rglob("*") if p.is_file()),
    }
    write_bytes(new / RECORD, json_text(record, indent=1))
    return counts


def _copied(path: Path, target: Path | None, digest: str, where: str) -> None:
    """Copy a file (or only read it) and hold it against its hash."""
    if not path.is_file():
        raise TaskError(f"{where} is missing; get the data set again, or push it again")
    if target is not None:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    if file_hash(target or path) != digest:
        raise TaskError(f"{where} was changed since it was pushed; get it again, or push it again")


def _split(
    folder: Path, split: Split, new: Path, source: str, asked: TaskFilter, there: SeenTasks
) -> int:
    """Write the file of a split. Raises `TaskError` for tasks that are not those that were pushed,
    and for one that names a file that did not come along."""
    where, digest = f"{source}: {split.parquet}", hashlib.sha256()

    def tasks() -> Iterator[Task]:
        count = 0
        for task in read_parquet(folder / split.parquet, where):
            digest.update(json_line(task.to_json()))
            _has_its_files(task, split, new, where)
            count += 1
            yield task
        if (count, digest.hexdigest()) != (split.tasks, split.sha256):
            raise TaskError(f"{where} does not hold the tasks that were pushed; push them again")

    target = new / split.file
    target.parent.mkdir(parents=True, exist_ok=True)
    kept = 0
    with open(target, "wb") as out:
        for task in asked.stream(tasks(), there):
            out.write(json_line(task.to_json()))
            kept += 1
    return kept


def _has_its_files(task: Task, split: Split, new: Path, where: str) -> None:
    start = PurePosixPath(split.file).parent
    for name, path in task.files.items():
        place = os.path.normpath(start / path)
        if os.path.isabs(path) or not inside(place) or not (new / place).exists():
            raise TaskError(
                f"{where}: task {task.id}: its file {name!r} ({path}) did not come along"
            )
