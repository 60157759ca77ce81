"""Tasks by their ids, from a file that may be larger than memory."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Protocol

from assay.family import require_families
from assay.rows import blocks, is_plain, is_url
from assay.task import Task, TaskError, parse_object, refuse_unfinished

KEPT = 512  # tasks in memory at a time: rows mostly come in the order of their tasks


class Tasks(Protocol):
    """Tasks by id; a dict of them is one."""

    def get(self, name: str, /) -> Task | None: ...


class TaskFile:
    """The tasks of a plain JSONL file: where each of them begins, and those used last.

    It can be sent to another process, which opens the file again.
    """

    def __init__(self, path: Path, places: dict[str, tuple[int, int]]) -> None:
        self.path, self._places = path, places
        self._kept: OrderedDict[str, Task] = OrderedDict()

    def get(self, name: str, /) -> Task | None:
        """The task of that id, or None. Raises `TaskError` when the file has changed."""
        if name in self._kept:
            self._kept.move_to_end(name)
            return self._kept[name]
        place = self._places.get(name)
        if place is None:
            return None
        with open(self.path, "rb") as file:
            file.seek(place[0])
            task = _task(file.read(place[1]), str(self.path))
        if task.id != name:
            raise TaskError(f"{self.path}: was changed while it was read; run it again")
        self._kept[name] = task
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return task

    def __len__(self) -> int:
        return len(self._places)


def open_tasks(name: str) -> Tasks:
    """The tasks of a file; one that is no plain file of lines is read into memory. Raises
    `TaskError` naming the line of a task that cannot be used, and for two tasks of one id."""
    places: dict[str, tuple[int, int]] = {}
    whole: dict[str, Task] = {}
    in_memory = not is_plain(name)
    if not is_url(name):
        refuse_unfinished(name)
    families: set[str] = set()
    for block in blocks([name]):
        start = block.position - len(block.data)
        for number, line in enumerate(block.data.split(b"\n"), block.number):
            if line.strip():
                task = _task(line, f"{name} line {number}")
                if task.family not in families:
                    require_families([task])
                    families.add(task.family)
                if task.id in places:
                    raise TaskError(f"{name}: two tasks have the id {task.id!r}; give each its own")
                places[task.id] = start, len(line)
                if in_memory:
                    whole[task.id] = task
            start += len(line) + 1
    return whole if in_memory else TaskFile(Path(name.removeprefix("file://")), places)


def _task(line: bytes, where: str) -> Task:
    return Task.from_json(parse_object(line.decode("utf-8", "replace"), where), where)
