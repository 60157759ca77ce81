"""Rows of `assay score`: each brings its gold, or names a task."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, cast

from assay.family import Family, all_families, family_named, output_of, score_answer
from assay.filters import ALL, Chosen
from assay.rows import Block
from assay.task import Answer, Score, Task, TaskError, json_line, refuse_without_gold
from rewards.task_file import Tasks

Row = dict[str, Any]
Weights = Mapping[str, Any]
ROLLOUT = "task_id"  # the field that names the task of a rollout
NO_WEIGHTS: Weights = {}  # every family's own defaults


def score_row(row: Row, tasks: Tasks | None = None, weights: Weights = NO_WEIGHTS) -> Row:
    """One result row: `{id, outcome, reward, parts, why}`, of a rollout with its `sample`. Raises
    `TaskError` or ValueError when the row itself cannot be used."""
    if tasks is None:
        return {"id": row.get("id"), **_open_row(row, weights).to_json()}
    named, name = task_named(row)
    task = tasks.get(str(name))
    if task is None:
        raise TaskError(f"field {named!r} is {name!r}, which is no task of --tasks")
    family = family_named(task.family)
    refuse_without_gold([task], "--tasks")
    if named == ROLLOUT:
        score = score_answer(task, rollout_answer(row), weights)
        return {"id": task.id, "sample": row.get("sample"), **score.to_json()}
    if family.row is not None and "output" not in row and "files" not in row:
        score = family.row(task.gold, row, weights.get(family.name) or _defaults(family))
    else:
        score = score_answer(task, _answer(row), weights)
    return {"id": task.id, **score.to_json()}


def task_named(row: Row) -> tuple[str, Any]:
    """(the field that names a row's task, what it says): `id`, of a rollout `task_id`."""
    named = ROLLOUT if ROLLOUT in row and "id" not in row else "id"
    return named, row.get(named)


def rollout_answer(row: Row) -> Answer:
    """What a row of `assay rollout` handed in. Of its files it keeps the names and sizes alone, so
    with files it is an answer that cannot be scored again: its `failure` says so.

    Raises `TaskError` for a row without a text.
    """
    truncated = row.get("stop") == "length" or bool(row.get("truncated"))
    if row.get("failure") is not None:
        return Answer(failure=str(row["failure"]))
    text = row.get("text")
    if text is None:
        listed = cast("list[Any]", row["messages"] if isinstance(row.get("messages"), list) else [])
        last: Any = listed[-1] if listed else None
        text = last.get("content") if isinstance(last, dict) else None  # pyright: ignore
    if not isinstance(text, str):
        raise TaskError("a rollout without `text`, and without `messages` that end in an answer")
    files: Any = row.get("files") or {}
    if not isinstance(files, dict):
        raise TaskError("field 'files' is no object; give {name: text}")
    left: dict[str, bytes] = {}
    for name, held in cast("dict[str, Any]", files).items():
        if isinstance(held, str):
            left[name] = held.encode("utf-8", "surrogatepass")
        elif held == 0:
            left[name] = b""
        else:
            why = f"the row keeps the size of {name!r} ({held} bytes) and not what it held"
            return Answer(text, truncated, failure=f"{why}: sample it again to score it again")
    return Answer(text, truncated, left)


def _defaults(family: Family) -> Any:
    """The family's weights where none are given; they are frozen, so all rows may share them."""
    return _made(family.weights)


@cache
def _made(weights: type) -> Any:
    return weights()


def _open_row(row: Row, weights: Weights) -> Score:
    """A row with its gold in it."""
    name, gold = row.get("family"), row.get("task")
    if task_named(row)[0] == ROLLOUT and gold is None:
        raise TaskError("a rollout, which holds no gold; give the file of its tasks with --tasks")
    if not isinstance(name, str):
        known = ", ".join(all_families())
        raise TaskError(f"field 'family' is {name!r}; wanted one of {known}, or give --tasks")
    family = family_named(name, f"field 'family' is {name!r}")
    if not isinstance(gold, dict):
        raise TaskError("field 'task' is missing or not an object; give the task's gold there")
    found = cast("dict[str, Any]", gold)
    if family.row is not None:
        return family.row(found, row, weights.get(name) or _defaults(family))
    task = Task(str(row.get("id")), name, str(row.get("track") or ""), "", [], found)
    return score_answer(task, _answer(row), weights)


def _answer(row: Row) -> Answer:
    files = row.get("files")
    if files is None:
        return Answer(output_of(row), bool(row.get("truncated")))
    if not isinstance(files, dict):
        raise TaskError("field 'files' is no object; give {name: text}")
    named = cast("dict[str, Any]", files)
    left = {name: str(text).encode("utf-8", "surrogatepass") for name, text in named.items()}
    return Answer(str(row.get("output") or ""), bool(row.get("truncated")), left)


@dataclass(frozen=True)
class Fault:
    """A line that cannot be scored: the row's id where it has one, its number from 1, and why.
    `place` is where its error belongs among the bytes of the results."""

    id: Any
    number: int
    why: str
    place: int = 0

    def row(self, where: str, before: int) -> Row:
        """Its result, of a line that `before` others precede."""
        return {"id": self.id, "error": f"{where} {before + self.number}: {self.why}"}


def score_lines(
    lines: Iterable[str],
    tasks: Tasks | None = None,
    weights: Weights = NO_WEIGHTS,
    where: str = "line",
    first: int = 1,
) -> Iterator[Row]:
    """A result for every non-blank line, in order; a bad line gives `{id, error}`, which names it
    as `where` and its number, from `first` on."""
    for found in _results(lines, tasks, weights):
        yield found.row(where, first - 1) if isinstance(found, Fault) else found


def _results(
    lines: Iterable[str], tasks: Tasks | None, weights: Weights, asked: Chosen = ALL
) -> Iterator[Row | Fault]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            made = _result(number, line, tasks, weights, asked)
            if made is not None:
                yield made


def _result(
    number: int, line: str, tasks: Tasks | None, weights: Weights, asked: Chosen
) -> Row | Fault | None:
    """None for a row that is not asked for."""
    name: Any = None
    try:
        row: Any = json.loads(line)
        if not isinstance(row, dict):
            raise TaskError("wanted a JSON object")
        name = task_named(cast("Row", row))[1]
        if asked and not _asked_for(cast("Row", row), tasks, asked):
            return None
        return score_row(cast("Row", row), tasks, weights)
    except json.JSONDecodeError as error:
        return Fault(None, number, f"not valid JSON ({error.msg})")
    except RecursionError:
        return Fault(name, number, "JSON nested too deep")
    except ValueError as error:
        return Fault(name, number, str(error))


def _asked_for(row: Row, tasks: Tasks | None, asked: Chosen) -> bool:
    """By the row's task, where it names one; a row of an unknown task is told of as ever."""
    if tasks is None:
        return asked.takes_row(row)
    task = tasks.get(str(task_named(row)[1]))
    return task is None or asked.takes(task)


@dataclass(frozen=True)
class Scored:
    """The results of some lines of `source` as JSON lines, without those of the faults, which are
    numbered when all lines before are known. `unscored`: rows without an outcome, faults too;
    `read`: lines, blank ones too; `position` is the job's."""

    source: str
    results: bytes
    faults: tuple[Fault, ...]
    rows: int
    unscored: int
    read: int
    position: int

    def lines(self, where: str, before: int) -> bytes:
        """All results, of lines that `before` others of the source precede."""
        made: list[bytes] = []
        done = 0
        for fault in self.faults:
            made += self.results[done : fault.place], json_line(fault.row(where, before))
            done = fault.place
        return b"".join([*made, self.results[done:]]) if made else self.results


@dataclass
class _Settings:
    """What the rows of this process are scored with."""

    tasks: Tasks | None = None
    weights: Weights = field(default_factory=dict[str, Any])
    asked: Chosen = ALL


_settings = _Settings()


def prepare(tasks: Tasks | None, weights: Weights, asked: Chosen = ALL) -> None:
    """Set what `score_block` scores with in this process, and which rows."""
    _settings.tasks, _settings.weights, _settings.asked = tasks, weights, asked


def score_block(job: Block) -> Scored:
    """Results for the lines of a job, in order."""
    data = job.data
    # A byte that is not UTF-8 becomes a replacement character: its row may still be readable.
    lines = data.decode("utf-8", "replace").split("\n")
    rows = unscored = place = 0
    made: list[bytes] = []
    faults: list[Fault] = []
    for result in _results(lines, _settings.tasks, _settings.weights, _settings.asked):
        rows += 1
        if isinstance(result, Fault):
            faults.append(replace(result, place=place))
            continue
        unscored += result["outcome"] is None
        made.append(json_line(result))
        place += len(made[-1])
    return Scored(
        job.source,
        b"".join(made),
        tuple(faults),
        rows,
        unscored + len(faults),
        data.count(b"\n"),
        job.position,
    )


def numbered(found: Iterable[Scored], several: bool) -> Iterator[tuple[Scored, bytes]]:
    """Each job's results with all lines; errors name the input too where there are `several`."""
    source, before = "", 0
    for scored in found:
        if scored.source != source:
            source, before = scored.source, 0
        yield scored, scored.lines(f"{source} line" if several else "line", before)
        before += scored.read
