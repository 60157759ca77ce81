# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
"""Which files hold the rollouts of a run, and reading them while something is still writing.

A folder may hold `rollouts/step_*.jsonl` (training), `rows.jsonl` (the journal of an evaluation)
and `results.json`; a file is one of the last two or what `assay rollout` wrote. Rollouts carry no
gold; the run's files of tasks do. Also the address of one rollout in a page: the part of a link
behind `#`.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any
from urllib.parse import quote

from assay.rows import is_plain, parse_object, read_rows
from assay.task import Task, TaskError, read_tasks
from train.evaluation.results import named_rows, read_results

PAGE = "view.html"
TRAINING, ANSWERS, EVALUATION = "training", "rollouts", "evaluation"  # names of sets


def fragment(set_name: str, step: int | None, task: str, sample: int, again: int = 0) -> str:
    """`/set/step/task/sample`, and a count where several rollouts have the same four."""
    parts = [set_name, "-" if step is None else str(step), task, str(sample)]
    parts += [str(again)] if again else []
    return "/" + "/".join(_quoted(part) for part in parts)


def list_fragment(words: Mapping[str, str]) -> str:
    """The list of the rollouts that pass a filter: facet → value, such as `set`, `step`, `outcome`
    (right, partly, wrong, none), `why`, `stop`, `label`, `said`, `slice:NAME`. `left`, `right` and
    `differ` (outcome, up, down) ask for two sets side by side."""
    said = (f"{_quoted(name)}={_quoted(value)}" for name, value in words.items())
    return "?" + "&".join(said)


def _quoted(part: str) -> str:
    return quote(part, safe="", errors="replace")


@dataclass(frozen=True)
class Source:
    """A file with rollouts of one set. `step`: of training; `whole`: one JSON document whose rows
    stand under the name `set_name`, or in a list."""

    path: Path
    set_name: str
    step: int | None = None
    whole: bool = False


@dataclass(frozen=True)
class Line:
    """A row, and where it stands in words: file and line."""

    row: dict[str, Any]
    where: str
    shown: str
    """The same for the page, which says nothing of this machine's folders."""


def find_sources(place: Path) -> list[Source]:
    """The files of a run directory, an evaluation or a single file. Raises `TaskError` that says
    what to give."""
    if place.is_dir():
        found = _in_folder(place)
        if not found and not _begun(place):
            raise TaskError(
                f"{place}: neither rollouts/step_*.jsonl nor rows.jsonl nor results.json is there; "
                "give a run directory, an evaluation or a file of rollouts"
            )
        return found
    if not place.is_file():
        raise TaskError(f"{place}: no such file or folder; give a run directory or rollouts")
    if place.suffix == ".json":
        return _of_results(place)
    in_steps = place.name.startswith("step_") and place.parent.name == "rollouts"
    if in_steps:
        return [Source(place, TRAINING, _step(place))]
    name = EVALUATION if place.name == "rows.jsonl" else ANSWERS
    return [Source(place, name)]


def _begun(folder: Path) -> bool:
    """Whether the folder is a run that has no rollouts yet."""
    return any((folder / n).is_file() for n in ("run.json", "metrics.jsonl", "eval.json"))


def _in_folder(folder: Path) -> list[Source]:
    steps = sorted((folder / "rollouts").glob("step_*.jsonl"))
    found = [Source(path, TRAINING, _step(path)) for path in steps]
    if (folder / "rows.jsonl").is_file():  # it has the conversations, which results.json has not
        return [*found, Source(folder / "rows.jsonl", EVALUATION)]
    if (folder / "results.json").is_file():
        found += _of_results(folder / "results.json")
    return found


def _of_results(path: Path) -> list[Source]:
    data = read_results(path)
    if isinstance(data["rows"], list):
        return [Source(path, EVALUATION, whole=True)]
    return [Source(path, name, whole=True) for name in named_rows(data)]


def _step(path: Path) -> int:
    try:
        return int(path.stem.removeprefix("step_"))
    except ValueError:
        raise TaskError(f"{path}: no number of a step in its name; rename it") from None


class Tail:
    """A file that may still be written."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._marks: list[int] = []  # of the lines that were read
        self._stamp: tuple[int, int, int] | None = None

    def more(self) -> tuple[int, list[Line]] | None:
        """(how many of the rows that were read stand as before, the rows behind them); None where
        the file is as it was. A last line that is not whole yet is left for later. Raises
        `TaskError` naming file and line, and `OSError`; the next call then reads the same again."""
        stat = self.source.path.stat()
        stamp = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        if stamp == self._stamp:
            return None
        kept, found = 0, list[Line]()
        if self.source.whole or not is_plain(str(self.source.path)):
            found += self._document() if self.source.whole else self._packed()
        else:
            raw = self.source.path.read_bytes().split(b"\n")
            raw = raw if _complete(raw[-1]) else raw[:-1]
            lines = [(n, line) for n, line in enumerate(raw, 1) if line.strip()]
            marks = [hash(line) for _, line in lines]
            pairs = zip(self._marks, marks, strict=False)
            kept = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            for number, line in lines[kept:]:
                where = f"{self.source.path} line {number}"
                row = parse_object(line.decode("utf-8", "replace"), where)
                found.append(Line(row, where, f"{_short(self.source.path)} line {number}"))
            self._marks = marks
        self._stamp = stamp
        return kept, found

    def _packed(self) -> Iterator[Line]:
        """The rows of a compressed or parquet file, which is written whole."""
        for where, row in read_rows(self.source.path):
            short = where.removeprefix(str(self.source.path))
            yield Line(row, where, f"{_short(self.source.path)}{short}")

    def _document(self) -> Iterator[Line]:
        data = read_results(self.source.path)
        rows = data["rows"]
        mine = rows if isinstance(rows, list) else rows.get(self.source.set_name, [])
        for number, row in enumerate(mine):
            at = f"row {number} of {self.source.set_name}"
            yield Line(row, f"{self.source.path} {at}", f"{self.source.path.name} {at}")


def _short(path: Path) -> str:
    return f"rollouts/{path.name}" if path.parent.name == "rollouts" else path.name


def _complete(line: bytes) -> bool:
    """Whether a last line without its end is a whole object all the same."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def labels_of(places: Sequence[Path]) -> list[str]:
    """A short name for each run that no other one has."""
    names = [place.resolve().name or str(place) for place in places]
    if len(set(names)) == len(names):
        return names
    longer = ["/".join(place.resolve().parts[-2:]) for place in places]
    return longer if len(set(longer)) == len(longer) else [str(place) for place in places]


def crc(text: str) -> int:
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))


# --- the tasks that rollouts answer


def task_files(place: Path, records: Iterable[Mapping[str, Any]]) -> list[Path]:
    """Task files of a run: `tasks/*.jsonl` of its folder, and those that its records name."""
    folder = place if place.is_dir() else place.parent
    found = sorted((folder / "tasks").glob("*.jsonl"))
    for record in records:
        for name in _named(record):
            path = Path(name)
            found += [p for p in (path, folder / path) if p.is_file() and p.suffix == ".jsonl"]
    return list(dict.fromkeys(path.resolve() for path in found))


def _named(record: Mapping[str, Any]) -> Iterator[str]:
    """Words of a run's record that may name a tasks file."""
    config = record.get("config")
    for held in (config, record.get("settings"), record.get("meta"), record):
        if not isinstance(held, Mapping):
            continue
        for key in ("data", "validation", "tasks"):
            value = held.get(key)
            for word in value if isinstance(value, list) else [value]:
                if isinstance(word, str) and word:
                    yield word
    for made in record.get("made") or ():
        words = made.get("command") if isinstance(made, Mapping) else None
        yield from (str(word).partition("=")[2] or str(word) for word in words or ())


def read_records(place: Path) -> list[dict[str, Any]]:
    """What a run wrote down of itself, as far as it is there and can be read."""
    folder = place if place.is_dir() else place.parent
    names = [folder / n for n in ("run.json", "eval.json", "provenance.json")]
    if not place.is_dir():
        names += [place.with_name(f"{place.name}.provenance.json")]
        names += [place.with_name(f"{place.name}.settings.json")]
    found: list[dict[str, Any]] = []
    for path in names:
        try:
            record: Any = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(record, dict) and "rows" not in record:
            found.append(record)
    return found


class Tasks:
    """Tasks by id. The first file that has an id wins: files that were asked for come first."""

    def __init__(self, asked: Sequence[Path], found: Sequence[Path]) -> None:
        """Raises `TaskError` for an asked file that cannot be read; a found one is left out."""
        self._tasks: dict[str, list[Task]] = {}
        for path in asked:
            self._add(read_tasks(path))
        for path in found:
            try:
                self._add(read_tasks(path))
            except (TaskError, OSError):
                continue

    def _add(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            self._tasks.setdefault(task.id, []).append(task)

    def of(self, task_id: str, messages: Sequence[Any], prompt: str) -> Task | None:
        """The task that was asked: of its id, and with its prompt where that can be compared. Other
        builds have other tasks of the same id."""
        for task in self._tasks.get(task_id, ()):
            if task.tools or not (messages or prompt):
                return task
            said = [m.get("content") for m in messages if isinstance(m, dict)]
            wanted = [m["content"] for m in task.prompt]
            if said[: len(wanted)] == wanted or (prompt and wanted and wanted[-1] == prompt):
                return task
        return None
