"""Rows of `assay score`: each brings its gold, or names a task."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

from rewards.families import all_families, family_named, score_answer
from rewards.family import Family, output_of
from rewards.streams import Block
from rewards.task import Answer, Score, Task, TaskError, json_line
from rewards.task_file import Tasks

Row = dict[str, Any]
Weights = Mapping[str, Any]
NO_WEIGHTS: Weights = {}  # every family's own defaults


def score_row(row: Row, tasks: Tasks | None = None, weights: Weights = NO_WEIGHTS) -> Row:
    """One result row: `{id, outcome, reward, parts, why}`. Raises `TaskError` or ValueError when
    the row itself cannot be used."""
    if tasks is None:
        return {"id": row.get("id"), **_open_row(row, weights).to_json()}
    task = tasks.get(str(row.get("id")))
    if task is None:
        raise TaskError(f"field 'id' is {row.get('id')!r}, which is no task of --tasks")
    family = family_named(task.family)
    if family.row is not None and "output" not in row and "files" not in row:
        score = family.row(task.gold, row, weights.get(family.name) or _defaults(family))
    else:
        score = score_answer(task, _answer(row), weights)
    return {"id": task.id, **score.to_json()}


def _defaults(family: Family) -> Any:
    """The family's weights where none are given; they are frozen, so all rows may share them."""
    return _made(family.weights)


@cache
def _made(weights: type) -> Any:
    return weights()


def _open_row(row: Row, weights: Weights) -> Score:
    """A row with its gold in it."""
    name, gold = row.get("family"), row.get("task")
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


def score_lines(
    lines: Iterable[str],
    tasks: Tasks | None = None,
    weights: Weights = NO_WEIGHTS,
    where: str = "line",
    first: int = 1,
) -> Iterator[Row]:
    """A result for every non-blank line, in order; a bad line gives `{id, error}`, which names it
    as `where` and its number, from `first` on."""
    for number, line in enumerate(lines, first):
        if not line.strip():
            continue
        name: Any = None
        try:
            row: Any = json.loads(line)
            if not isinstance(row, dict):
                raise TaskError("wanted a JSON object")
            name = cast("Row", row).get("id")
            result = score_row(cast("Row", row), tasks, weights)
        except json.JSONDecodeError as error:
            result = {"id": None, "error": f"{where} {number}: not valid JSON ({error.msg})"}
        except RecursionError:
            result = {"id": name, "error": f"{where} {number}: JSON nested too deep"}
        except ValueError as error:
            result = {"id": name, "error": f"{where} {number}: {error}"}
        yield result


@dataclass(frozen=True)
class Scored:
    """The results of a block as JSON lines, and how many of its rows have no outcome."""

    lines: bytes
    rows: int
    unscored: int
    position: int  # of the block


@dataclass
class _Settings:
    """What the rows of this process are scored with."""

    tasks: Tasks | None = None
    weights: Weights = field(default_factory=dict[str, Any])
    several: bool = False


_settings = _Settings()


def prepare(tasks: Tasks | None, weights: Weights, several: bool) -> None:
    """Set what `score_block` scores with in this process; `several`: errors name the file too."""
    _settings.tasks, _settings.weights, _settings.several = tasks, weights, several


def score_block(block: Block) -> Scored:
    """Results for the lines of a block, in order."""
    where = f"{block.source} line" if _settings.several else "line"
    # A byte that is not UTF-8 becomes a replacement character: its row may still be readable.
    lines = block.data.decode("utf-8", "replace").split("\n")
    found = score_lines(lines, _settings.tasks, _settings.weights, where, block.number)
    rows = unscored = 0
    made: list[bytes] = []
    for result in found:
        rows += 1
        unscored += result.get("outcome") is None
        made.append(json_line(result))
    return Scored(b"".join(made), rows, unscored, block.position)
