"""What a model was trained on: `trained_on.bin` beside its weights, through all stages.

The file is one line of JSON (format, stages, how many marks and numbers of sketches) and, as
little-endian int64, the sorted marks of every task (assay/fingerprints.py) and the sketches of each
distinct table's columns of numbers (assay/fingerprints.py): about 16 bytes a task of text, so
160 MB for ten million, and 0.4 kB a column. Training copies an ancestor's marks into the new file;
the folder it stands in is renamed into place as a whole, so the file is there with the weights or
not at all."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.files import write_bytes
from assay.fingerprints import Numbers, marks_of, packed, same_numbers, unpacked
from assay.task import Task, TaskError, with_absolute_files

# Columns that are alike have more marks in common than this; no table with fewer is looked at.
FEW = 6


class Tables:
    """Sketches of tables, held as the numbers that `assay.fingerprints.packed` makes of them.
    Raises ValueError for other numbers."""

    def __init__(self, sketches: NDArray[np.int64]) -> None:
        self.sketches = sketches
        starts = np.flatnonzero(sketches == packed(_ANY)[0])
        if len(sketches) and (not len(starts) or starts[0]):
            raise ValueError("sketches of tables are out of order")
        self._starts = starts
        self._ends = np.append(starts[1:], len(sketches))

    def and_those_of(self, parts: Iterable[bytes]) -> Tables:
        """With the tables of more sketches, each once; the same tables give the same bytes."""
        found = {tuple(packed(table)) for table in unpacked(self.sketches.tolist())}
        for part in parts:
            more = np.frombuffer(part, dtype=np.int64).tolist()
            found.update(tuple(packed(table)) for table in unpacked(more))
        every = np.fromiter(chain.from_iterable(sorted(found)), dtype=np.int64)
        return Tables(every)

    @cached_property
    def _places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(marks in order, number of each mark's table)."""
        owners = np.repeat(np.arange(len(self._starts)), self._ends - self._starts)
        order = np.argsort(self.sketches, kind="stable")
        return self.sketches[order], owners[order]

    def have(self, numbers: Sequence[Numbers]) -> bool:
        """Whether one of the tables has these columns, but for a factor and some of the rows."""
        own = np.unique([mark for one in numbers for mark in (*one.values, *one.ratios)])
        if not len(self.sketches) or not len(own):
            return False
        marks, owners = self._places
        low, high = np.searchsorted(marks, own), np.searchsorted(marks, own, "right")
        hits = [owners[i:j] for i, j in zip(low, high, strict=True)]
        count = np.bincount(np.concatenate(hits), minlength=len(self._starts))
        for table in np.flatnonzero(count > FEW):
            found = unpacked(self.sketches[self._starts[table] : self._ends[table]].tolist())
            if same_numbers(numbers, found[0]):
                return True
        return False


_ANY = (Numbers((), ()), Numbers((), ()))
NO_TABLES = Tables(np.zeros(0, np.int64))


NAME = "trained_on.bin"
ADAPTER = "adapter_config.json"  # of a LoRA folder, which names its base model
FORMAT = 2  # 1 has no sketches of tables, and is written where there are none
Marks = NDArray[np.int64]


@dataclass(frozen=True)
class Stage:
    """One training: `sft` or `rl`, on how many rows, of which file. The first stage of a model that
    was not trained here is `base`, and `data` its name."""

    stage: str
    tasks: int
    data: str

    def __str__(self) -> str:
        return f"base {self.data}" if self.stage == "base" else f"{self.stage} on {self.tasks} rows"


@dataclass(frozen=True)
class Trained:
    """The record of one model. `marks` are sorted, each once; `tables`: what is known of each
    table's columns of numbers."""

    stages: tuple[Stage, ...]
    marks: Marks
    tables: Tables = NO_TABLES

    def has(self, marks: Sequence[int]) -> list[bool]:
        """Of each mark whether it is in the record."""
        if not len(self.marks):
            return [False] * len(marks)
        wanted = np.asarray(marks, dtype=np.int64)
        at = np.searchsorted(self.marks, wanted).clip(max=len(self.marks) - 1)
        return (self.marks[at] == wanted).tolist()

    def saw(self, task: Task) -> bool:
        """Whether the task, or what it must not share with training tasks, was trained on. Its
        files have paths that can be opened."""
        return marks_of(task).within(self.has, self.tables.have)

    def after(self, stage: str, data: str, rows: Iterable[Sequence[int]]) -> Trained:
        """The record after one more training, on rows with these marks."""
        count, new, sketches = 0, array("q"), set[bytes]()
        for marks in rows:
            count += 1
            first = next((place for place, mark in enumerate(marks) if mark < 0), len(marks))
            new.extend(marks[:first])
            if first < len(marks):
                sketches.add(np.asarray(marks[first:], dtype=np.int64).tobytes())
        together = np.union1d(self.marks, np.asarray(new, dtype=np.int64))
        tables = self.tables.and_those_of(sketches)
        return Trained((*self.stages, Stage(stage, count, Path(data).name)), together, tables)

    def __str__(self) -> str:
        return ", then ".join(map(str, self.stages))


def read_trained(folder: Path) -> Trained | None:
    """The record of a model folder, with that of its base model where it holds adapters; None
    where there is none. Raises `TaskError` for one that is damaged."""
    own, base = _read(folder / NAME), None
    if (folder / ADAPTER).is_file():
        base = _read(_base_of(folder) / NAME)
    if own is None or base is None:
        return own or base
    tables = base.tables.and_those_of([own.tables.sketches.tobytes()])
    return Trained((*base.stages, *own.stages), np.union1d(base.marks, own.marks), tables)


def trained_before(source: Path) -> Trained:
    """The record that a training from this folder goes on from."""
    found = read_trained(source)
    return found or Trained((Stage("base", 0, source.name),), np.empty(0, np.int64))


def write_trained(folder: Path, trained: Trained) -> None:
    """Write `trained_on.bin` into a folder, whole or not at all."""
    sketches = trained.tables.sketches
    head: dict[str, Any] = {
        "format": FORMAT if len(sketches) else 1,
        "marks": len(trained.marks),
        "stages": [asdict(stage) for stage in trained.stages],
    }
    if len(sketches):
        head["sketches"] = len(sketches)
    data = np.concatenate([trained.marks, sketches]).astype("<i8").tobytes()
    write_bytes(folder / NAME, json.dumps(head).encode() + b"\n" + data)


def marks_from(tasks: Iterable[Task], root: Path) -> Iterable[list[int]]:
    """The marks of each task; its files are relative to `root`."""
    return (marks_of(with_absolute_files(task, root)).flat() for task in tasks)


def _base_of(folder: Path) -> Path:
    try:
        said = json.loads((folder / ADAPTER).read_text(encoding="utf-8"))
        return Path(str(said["base_model_name_or_path"])).expanduser()
    except (OSError, ValueError, KeyError, TypeError):
        return folder


def _read(path: Path) -> Trained | None:
    if not path.is_file():
        return None
    try:
        line, _, data = path.read_bytes().partition(b"\n")
        head = json.loads(line)
        stages = tuple(Stage(s["stage"], int(s["tasks"]), s["data"]) for s in head["stages"])
        if head["format"] not in range(1, FORMAT + 1):
            said = f"this Assay reads formats 1 to {FORMAT}"
            raise TaskError(f"{path}: format {head['format']}; {said}")
        numbers = np.frombuffer(data, dtype="<i8").astype(np.int64)
        count = int(head["marks"])
        if len(numbers) != count + int(head.get("sketches", 0)):
            raise ValueError("marks are missing")
        tables = Tables(numbers[count:])
    except TaskError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TaskError(
            f"{path}: damaged ({error}); restore it, or remove it if nothing need be known of what "
            "the model was trained on"
        ) from None
    return Trained(stages, numbers[:count], tables)
