"""`assay push T --out DEST`: a set of tasks as an ordinary dataset folder.

DEST is a folder, a file .tar.gz of this machine, a URL that fsspec knows, or
hf://datasets/OWNER/NAME. It gets a parquet file for each split, a card (README.md), the
certificate, and every file that tasks need; `datasets.load_dataset` reads it without a script, and
`assay pull` makes the set again. The same set and packages give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay import console
from assay.console import SeenTasks, TaskFilter, add_filter, licences_of, task_filter
from assay.files import atomic_write_set, file_hash, write_bytes, write_text
from assay.rows import is_url, read_rows
from assay.task import Task, TaskError, json_line, json_text, refuse_unfinished
from data_gen.certificate import CERTIFICATE
from data_gen.sharing import places
from data_gen.sharing.card import card
from data_gen.sharing.columns import row_of, write_parquet
from data_gen.sharing.layout import (
    CARD,
    FILES,
    MANIFEST,
    Manifest,
    Split,
    proved,
    split_name,
    without_gold,
)
from data_gen.sharing.named_files import files_of, kept_with, moved, place_in, places_of
from data_gen.tally import REFUSED

_TASK = {"id", "family", "prompt", "gold"}


def options() -> console.Parser:
    made = console.parser("push", __doc__)
    made.add_argument("folder", type=Path, metavar="T", help="folder that `assay tasks` wrote")
    made.add_argument(
        "--out",
        required=True,
        metavar="DEST",
        help="folder, .tar.gz, URL, or hf://datasets/OWNER/NAME",
    )
    made.add_argument("--name", default="", help="title of the card (default: DEST's last word)")
    made.add_argument(
        "--without-gold",
        action="store_true",
        help="leave gold out, and all that leads to it: a public test set",
    )
    made.add_argument(
        "--public", action="store_true", help="hf://: a new repository may be seen by everybody"
    )
    add_filter(made)
    return made


def main(argv: list[str]) -> int:
    """Exit status 0. Raises `TaskError` for a set that cannot be used or a place that fails."""
    args = options().parse_args(argv)
    name = args.name or args.out.rstrip("/").rpartition("/")[2]
    asked = Asked(args.folder, name, task_filter(args), not args.without_gold)
    remote, archived = is_url(args.out), args.out.endswith(places.ARCHIVES)
    if remote and archived:
        raise TaskError(f"--out {args.out}: an archive is written on this machine; give a path")
    if remote or archived:
        with tempfile.TemporaryDirectory(prefix="assay-") as folder:
            made = write(asked, Path(folder))
            if archived:
                places.archive(Path(folder), made, args.out)
            else:
                places.send(Path(folder), made, args.out, args.public)
    else:
        out = Path(args.out.removeprefix("file://"))
        if out.resolve() == args.folder.resolve():
            raise TaskError(f"--out {args.out}: is the set itself; give another folder")
        old = places.files_at(out)
        with atomic_write_set(out, stale=old) as new:
            made = write(asked, new)
        for place in made.folders:
            (out / FILES / place).mkdir(parents=True, exist_ok=True)
    splits = ", ".join(f"{s.tasks} {s.name}" for s in made.splits)
    print(f"{args.out}: {made.tasks} tasks ({splits}), {len(made.files)} files")
    said = "gold travels with the tasks" if made.gold else "without gold: nobody can score it alone"
    read = "" if archived else f"load_dataset({args.out!r}), or "
    print(f"{said}; {read}`assay pull {args.out} --out T`", file=sys.stderr)
    return console.DONE


@dataclass(frozen=True)
class Asked:
    """The set in `folder`, as far as it is `chosen`; `name`: the title of its card."""

    folder: Path
    name: str
    chosen: TaskFilter = field(default_factory=TaskFilter)
    gold: bool = True


def write(asked: Asked, new: Path) -> Manifest:
    """Write the data set into the empty folder `new`."""
    if not asked.folder.is_dir():
        raise TaskError(f"{asked.folder}: no such folder; give the one that `assay tasks` wrote")
    refuse_unfinished(asked.folder)
    work = _Work(asked, new)
    for path in sorted(asked.folder.rglob("*.jsonl")):
        if _holds_tasks(path):
            work.split(path)
    made = work.finished()
    write_text(new / CARD, card(asked.name, made))
    write_bytes(new / MANIFEST, made.to_bytes())
    return made


def _holds_tasks(path: Path) -> bool:
    """Whether a file holds tasks, by its first row; an empty one is a split without tasks."""
    if path.name == REFUSED:
        return False
    first = next(read_rows(path), None)
    return first is None or first[1].keys() >= _TASK


class _Work:
    """A data set while it is written."""

    def __init__(self, asked: Asked, new: Path) -> None:
        self._asked, self._new = asked, new
        self._seen = SeenTasks()
        self._splits: list[Split] = []
        self._outside: dict[Path, str] = {}
        self._named: set[Path] = set()
        self._counts = tuple(Counter[str]() for _ in range(3))  # families, tracks, licences

    def split(self, path: Path) -> None:
        """Write a file of tasks as parquet."""
        file = path.relative_to(self._asked.folder).as_posix()
        made = Split(split_name(file, {s.name for s in self._splits}), file, 0, "")
        digest = hashlib.sha256()
        target = self._new / made.parquet
        target.parent.mkdir(exist_ok=True)
        with open(target, "wb") as out:
            count = write_parquet(out, self._rows(path, digest))
        self._splits.append(Split(made.name, file, count, digest.hexdigest()))

    def _rows(self, path: Path, digest: Any) -> Iterator[dict[str, Any]]:
        tasks = (Task.from_json(row, where) for where, row in read_rows(path))
        for task in self._asked.chosen.stream(tasks, self._seen):
            self._named.update(places_of(task, path))
            for counts, names in zip(
                self._counts, ((task.family,), (task.track,), licences_of(task)), strict=True
            ):
                counts.update(names)
            placed = moved(task, path, self._asked.folder, self._outside)
            placed = placed if self._asked.gold else without_gold(placed)
            digest.update(json_line(placed.to_json()))
            yield row_of(placed)

    def finished(self) -> Manifest:
        """Copy what the tasks need, and list everything."""
        folder = self._asked.folder
        if not any(split.tasks for split in self._splits):
            if self._asked.chosen:
                raise self._seen.none_left(self._asked.chosen, str(folder))
            raise TaskError(f"{folder}: holds no task; give the folder that `assay tasks` wrote")
        found: dict[str, Path] = {}
        folders: list[str] = []
        take = kept_with if self._asked.gold else files_of
        for place in sorted(self._named):
            inner = take(place, folder, self._outside)
            found.update(inner)
            if not inner:
                folders.append(place_in(place, folder, self._outside))
        if self._asked.gold:
            found.update((p.name, p) for p in _records(folder))
        runs: list[str] = []
        for name, path in sorted(found.items()):
            target = self._new / FILES / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
            runs += [name] if path.stat().st_mode & 0o100 else []
        self._certificate(folder / CERTIFICATE)
        written = sorted(p for p in self._new.rglob("*") if p.is_file())
        listed = {
            p.relative_to(self._new).as_posix(): (file_hash(p), p.stat().st_size) for p in written
        }
        families, tracks, licences = (dict(sorted(c.items())) for c in self._counts)
        return Manifest(
            tuple(self._splits),
            self._asked.gold,
            listed,
            tuple(sorted(folders)),
            tuple(runs),
            families,
            tracks,
            licences,
        )

    def _certificate(self, path: Path) -> None:
        if not path.is_file():
            return
        target = self._new / CERTIFICATE
        if self._asked.gold:
            shutil.copyfile(path, target)
            return
        try:
            kept = proved(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError):
            raise TaskError(f"{path}: is no certificate; build the tasks again") from None
        target.write_bytes(json_text(kept, indent=1))


def _records(folder: Path) -> Sequence[Path]:
    """What a builder says of the set, but for its certificate."""
    found = [*folder.glob("*.json"), *folder.glob("*.yaml"), *folder.glob(REFUSED)]
    return [p for p in found if p.is_file() and p.name != CERTIFICATE]
