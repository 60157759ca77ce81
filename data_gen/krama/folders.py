"""Folders of lakes: found or unpacked, shown in part, and named in tasks so that these can move."""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from assay.task import Task, write_jsonl


def find_lake(lakes: Path, domain: str, out: Path) -> Path | None:
    """The folder of one domain's files, None where there is none; an archive is unpacked into `out`
    first, once."""
    for folder in (lakes / domain / "input", lakes / domain):
        if folder.is_dir():
            return folder.resolve()
    archive = lakes / f"{domain}.tar.gz"
    if not archive.is_file():
        return None
    target = out / "lakes" / domain
    if not target.is_dir():
        work = target.with_name(f".{domain}-{os.getpid()}")
        with tarfile.open(archive) as tar:
            if hasattr(tarfile, "data_filter"):
                tar.extractall(work, filter="data")
            else:  # Pythons before 3.11.4 know no filters
                tar.extractall(work)
        _readable(work)
        os.makedirs(target.parent, exist_ok=True)
        work.rename(target)
    inner = target / domain / "input"
    return (inner if inner.is_dir() else target).resolve()


def _readable(folder: Path) -> None:
    """Open to other users, as the sandbox's own id needs it."""
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)


def link_view(lake: Path, files: Sequence[str], target: Path) -> Path:
    """A folder that shows some of a lake's files, by hard links (copies across file systems)."""
    if target.is_dir():
        shutil.rmtree(target)
    target.mkdir(parents=True)
    for name in files:
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(lake / name, place)
        except OSError:
            shutil.copyfile(lake / name, place)
    return target.resolve()


def write_tasks(path: Path, tasks: Sequence[Task]) -> None:
    """Write tasks with every file named relative to the tasks file."""
    write_jsonl(path, (with_relative_files(task, path.parent).to_json() for task in tasks))


def with_relative_files(task: Task, home: Path) -> Task:
    """The task with every file named relative to the folder of its tasks file, which can then be
    moved together with what it names."""
    here = os.path.realpath(home)
    files = {n: os.path.relpath(os.path.realpath(p), here) for n, p in task.files.items()}
    return replace(task, files=files)
