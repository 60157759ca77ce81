"""`assay score`: outputs in, scores out; JSONL, `-` for standard input or output.

With --tasks, rows are `{id, output}` and `id` names the task; `files` may hold what an episode left
(name to text). Without it, each row brings its gold: `{id, family, task, output}`, where `task` is
the gold of the row's family. Table rows hold `prediction_csv`, `prediction_b64` or
`prediction_path` in place of `output`, answer rows `response: {"answer": …}`; both may name a
`reading`.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from rewards.console import DONE, UNSCORED, Parser, add_family, parser
from rewards.families import (
    all_families,
    family_named,
    require_families,
    score_answer,
    use_families,
)
from rewards.family import output_of
from rewards.files import replacing
from rewards.task import Answer, Score, Task, TaskError, json_line, read_tasks

Row = dict[str, Any]
Weights = Mapping[str, Any]
NO_WEIGHTS: Weights = {}  # every family's own defaults


def score_row(
    row: Row, tasks: Mapping[str, Task] | None = None, weights: Weights = NO_WEIGHTS
) -> Row:
    """One result row: `{id, outcome, reward, parts, why}`. Raises `TaskError` or ValueError when
    the row itself cannot be used."""
    if tasks is None:
        return {"id": row.get("id"), **_open_row(row, weights).to_json()}
    task = tasks.get(str(row.get("id")))
    if task is None:
        raise TaskError(f"field 'id' is {row.get('id')!r}, which is no task of --tasks")
    family = family_named(task.family)
    if family.row is not None and "output" not in row and "files" not in row:
        score = family.row(task.gold, row, weights.get(family.name) or family.weights())
    else:
        score = score_answer(task, _answer(row), weights)
    return {"id": task.id, **score.to_json()}


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
        return family.row(found, row, weights.get(name) or family.weights())
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
    lines: Iterable[str], tasks: Mapping[str, Task] | None = None, weights: Weights = NO_WEIGHTS
) -> Iterator[Row]:
    """A result for every non-blank line, in order; a bad line gives `{id, error}`."""
    for number, line in enumerate(lines, 1):
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
            result = {"id": None, "error": f"line {number}: not valid JSON ({error.msg})"}
        except RecursionError:
            result = {"id": name, "error": f"line {number}: JSON nested too deep"}
        except ValueError as error:
            result = {"id": name, "error": f"line {number}: {error}"}
        yield result


def _weights(judge_url: str, judge_model: str) -> dict[str, Any]:
    """Default weights of every family that asks a judge, with this one."""
    made: dict[str, Any] = {}
    for name, family in all_families().items():
        if judge_url and any(f.name == "judge_url" for f in fields(family.weights)):
            made[name] = replace(family.weights(), judge_url=judge_url, judge_model=judge_model)
    return made


def options() -> Parser:
    made = parser("score", __doc__)
    made.add_argument("input", nargs="?", default="-", help="rows, JSONL")
    made.add_argument("--tasks", type=Path, metavar="FILE", help="tasks whose ids the rows name")
    add_family(made)
    made.add_argument("--out", default="-", help="scores, JSONL")
    made.add_argument("--judge-url", help="OpenAI-compatible endpoint that judges paraphrases")
    made.add_argument("--judge-model", default="", help="its model's name")
    return made


def main(argv: list[str]) -> int:
    """Exit status 0; 3 when some row has no outcome. Raises `TaskError` and OSError for a file or
    family that cannot be used."""
    args = options().parse_args(argv)
    use_families(args.family)
    tasks = None
    if args.tasks is not None:
        listed = read_tasks(args.tasks)
        require_families(listed)
        tasks = {task.id: task for task in listed}
        if twice := [name for name, count in Counter(t.id for t in listed).items() if count > 1]:
            raise TaskError(f"{args.tasks}: two tasks have the id {twice[0]!r}; give each its own")
    weights = _weights(args.judge_url or "", args.judge_model)
    unscored = 0
    with ExitStack() as files:
        source: TextIO = sys.stdin
        if args.input != "-":
            source = files.enter_context(open(args.input, encoding="utf-8", errors="replace"))
        out: BinaryIO = sys.stdout.buffer
        if args.out != "-":
            out = files.enter_context(replacing(args.out))
        for result in score_lines(source, tasks, weights):
            unscored += result.get("outcome") is None
            out.write(json_line(result))
        out.flush()
    if unscored:
        print(
            f"assay score: {unscored} rows have no outcome; `why` or `error` says why",
            file=sys.stderr,
        )
    return UNSCORED if unscored else DONE
