"""`assay push T --out DEST`: a set of tasks as an ordinary dataset folder.

DEST is a folder, a file .tar.gz of this machine, a URL that fsspec knows, or
hf://datasets/OWNER/NAME. It gets a parquet file for each split, a card (README.md), the
certificate, and every file that tasks need; `datasets.load_dataset` reads it without a script, and
`assay pull` makes the set again. The same set and packages give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from assay import console
from assay.console import SeenTasks, TaskFilter, add_filter, licences_of, task_filter
from assay.files import atomic_write_set, file_hash, write_bytes, write_text, yaml_beside
from assay.rows import is_url, read_rows
from assay.task import Task, TaskError, json_line, json_text, refuse_unfinished
from data_gen.certificate import CERTIFICATE, REFUSED
from data_gen.dataset import (
    ARCHIVES,
    CARD,
    COLUMNS,
    FILES,
    MANIFEST,
    Manifest,
    Split,
    archive,
    files_at,
    parquet_of,
    proved,
    row_of,
    send,
    split_name,
    without_gold,
    write_parquet,
)

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
    remote, archived = is_url(args.out), args.out.endswith(ARCHIVES)
    if remote and archived:
        raise TaskError(f"--out {args.out}: an archive is written on this machine; give a path")
    if remote or archived:
        with tempfile.TemporaryDirectory(prefix="assay-") as folder:
            made = write(asked, Path(folder))
            if archived:
                archive(Path(folder), made, args.out)
            else:
                send(Path(folder), made, args.out, args.public)
    else:
        out = Path(args.out.removeprefix("file://"))
        if out.resolve() == args.folder.resolve():
            raise TaskError(f"--out {args.out}: is the set itself; give another folder")
        old = files_at(out)
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
    """Write the data set into the empty folder `new`: every file of tasks as parquet, what the
    tasks need, the certificate, the card, and the list of all that."""
    folder = asked.folder
    if not folder.is_dir():
        raise TaskError(f"{folder}: no such folder; give the one that `assay tasks` wrote")
    refuse_unfinished(folder)
    seen, places = SeenTasks(), _Places(folder)
    families, tracks, licences = (Counter[str]() for _ in range(3))

    def rows(path: Path, digest: Any) -> Iterator[dict[str, Any]]:
        tasks = (Task.from_json(row, where) for where, row in read_rows(path))
        for task in asked.chosen.stream(tasks, seen):
            families[task.family] += 1
            tracks[task.track] += 1
            licences.update(licences_of(task))
            placed = places.moved(task, path)
            placed = placed if asked.gold else without_gold(placed)
            digest.update(json_line(placed.to_json()))
            yield row_of(placed)

    splits: list[Split] = []
    for path in filter(_holds_tasks, sorted(folder.rglob("*.jsonl"))):
        file, digest = path.relative_to(folder).as_posix(), hashlib.sha256()
        name = split_name(file, {split.name for split in splits})
        target = new / parquet_of(name)
        target.parent.mkdir(exist_ok=True)
        with open(target, "wb") as out:
            count = write_parquet(out, rows(path, digest))
        splits.append(Split(name, file, count, digest.hexdigest()))
    if not any(split.tasks for split in splits):
        if asked.chosen:
            raise seen.none_left(asked.chosen, str(folder))
        raise TaskError(f"{folder}: holds no task; give the folder that `assay tasks` wrote")
    found: dict[str, Path] = {}
    folders: list[str] = []
    for place in sorted(places.named):
        inner = places.files(place, asked.gold)
        found.update(inner)
        folders += [] if inner else [places.name_of(place)]
    if asked.gold:
        found.update((p.name, p) for p in _records(folder))
    for name, path in found.items():
        target = new / FILES / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    _certificate(folder / CERTIFICATE, new / CERTIFICATE, asked.gold)
    written = sorted(p for p in new.rglob("*") if p.is_file())
    made = Manifest(
        tuple(splits),
        asked.gold,
        {p.relative_to(new).as_posix(): (file_hash(p), p.stat().st_size) for p in written},
        tuple(sorted(folders)),
        tuple(name for name, path in sorted(found.items()) if path.stat().st_mode & 0o100),
        *(dict(sorted(counts.items())) for counts in (families, tracks, licences)),
    )
    write_text(new / CARD, _card(asked.name, made))
    write_bytes(new / MANIFEST, made.to_bytes())
    return made


def _holds_tasks(path: Path) -> bool:
    """Whether a file holds tasks, by its first row; an empty one is a split without tasks."""
    if path.name == REFUSED:
        return False
    first = next(read_rows(path), None)
    return first is None or first[1].keys() >= _TASK


def _certificate(path: Path, target: Path, gold: bool) -> None:
    """Copy what a builder said of the set, without gold as far as it leads to none."""
    if gold and path.is_file():
        shutil.copyfile(path, target)
    elif path.is_file():
        try:
            kept = proved(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError):
            raise TaskError(f"{path}: is no certificate; build the tasks again") from None
        target.write_bytes(json_text(kept, indent=1))


def _records(folder: Path) -> Sequence[Path]:
    """What a builder says of the set, but for its certificate."""
    found = [*folder.glob("*.json"), *folder.glob("*.yaml"), *folder.glob(REFUSED)]
    return [p for p in found if p.is_file() and p.name != CERTIFICATE]


class _Places:
    """The files that tasks name, and where each stands in the set: those that lie outside of the
    folder below `files/`."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._home = folder, folder.resolve()
        self._outside: dict[Path, str] = {}
        self.named: set[Path] = set()

    def moved(self, task: Task, tasks_file: Path) -> Task:
        """The task as it stands in the set: every path relative to its own file. Raises `TaskError`
        for a file that is not there."""
        up = "../" * len(tasks_file.relative_to(self._folder).parent.parts)
        files: dict[str, str] = {}
        for name, text in task.files.items():
            place = (tasks_file.parent / text).resolve()
            if not place.exists():
                raise TaskError(
                    f"{tasks_file}: task {task.id}: its file {name!r} is not at {text}; "
                    "build the tasks again, or put the file there"
                )
            self.named.add(place)
            files[name] = up + self.name_of(place)
        return replace(task, files=files)

    def name_of(self, place: Path) -> str:
        """Where a file lies, from the top of the set. Raises `TaskError` for the folder of the
        tasks itself."""
        if self._home.is_relative_to(place):
            raise TaskError(
                f"{self._folder}: a task names this whole folder as its file; name a part of it"
            )
        if place.is_relative_to(self._home):
            return place.relative_to(self._home).as_posix()
        if place not in self._outside:
            taken = set(self._outside.values())
            name, number = f"{FILES}/{place.name}", 2
            while name in taken or (self._folder / name).exists():
                name, number = f"{FILES}/{number}-{place.name}", number + 1
            self._outside[place] = name
        return self._outside[place]

    def files(self, place: Path, gold: bool) -> Mapping[str, Path]:
        """Every regular file of what a task names, by its name in the set. With gold, where that
        lies deep in the folder, all that a builder put beside it: of `a/b/c` everything below
        `a/b`, such as the verifier of a task directory."""
        top = self.name_of(place)
        parts = Path(top).parts
        if gold and len(parts) > 2 and place.is_relative_to(self._home):
            top = Path(*parts[:2]).as_posix()
            place = self._home / top
        if place.is_file():
            return {top: place}
        inner = (p for p in sorted(place.rglob("*")) if p.is_file())
        return {f"{top}/{p.relative_to(place).as_posix()}": p for p in inner}


# --- the card

_SAID: dict[str, Any] = yaml_beside(__file__, "card.yaml")
_KNOWN: dict[str, str] = {name: name for name in _SAID["licences"]} | {"cc0": "cc0-1.0"}
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))


def _card(name: str, made: Manifest) -> str:
    """The text of README.md."""
    front = yaml.safe_dump(_front(name, made), sort_keys=False, allow_unicode=True)
    return f"---\n{front}---\n\n{_body(name, made)}"


def _front(name: str, made: Manifest) -> dict[str, Any]:
    files = [{"split": s.name, "path": s.parquet} for s in made.splits if s.tasks]
    known = sorted({_KNOWN.get(licence.lower(), "other") for licence in made.licences})
    licence: dict[str, Any] = {"license": known[0] if len(known) == 1 else known}
    if "other" in known:
        other = [n for n in made.licences if n.lower() not in _KNOWN]
        licence["license_name"] = re.sub(r"[^a-z0-9.]+", "-", " ".join(other).lower()).strip("-")
    return {
        "pretty_name": name,
        "configs": [{"config_name": "default", "data_files": files}],
        **licence,
        "size_categories": [next((said for most, said in _SIZES if made.tasks < most), "n>1M")],
        "tags": ["assay", *made.families],
    }


def _body(name: str, made: Manifest) -> str:
    size = sum(count for _, count in made.files.values())
    splits = [(s.name, f"`{s.parquet}`", str(s.tasks)) for s in made.splits]
    parts = [
        f"# {name}",
        f"{made.tasks} tasks of Assay with deterministic gold, {len(made.files)} files, "
        f"{size} bytes.",
        _SAID["with_gold" if made.gold else "without_gold"],
        _table(("split", "file", "tasks"), splits),
        _counted("family", made.families),
        _counted("track", made.tracks),
        _counted("licence of the data", made.licences)
        + "\nA task that was made from data of several licences is bound by each of them.",
        _SAID["use"],
        _table(("column", "what"), [(f"`{n}`", what) for n, what in COLUMNS.items()]),
    ]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _counted(what: str, counts: Mapping[str, int]) -> str:
    return _table((what, "tasks"), [(name, str(count)) for name, count in counts.items()])


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    said = ("| " + " | ".join(re.sub(r"\s+|\|", " ", c) for c in line) + " |" for line in lines)
    return "\n".join(said) + "\n"
