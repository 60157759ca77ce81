"""`assay score`: outputs in, scores out; JSONL or parquet, `-` for standard input or output.

With --tasks, rows are `{id, output}` and `id` names the task; `files` may hold what an episode left
(name to text). Files of `assay rollout` can be given as they are. Without --tasks each row brings
its gold: `{id, family, task, output}`, where `task` is the gold of the row's family. Table rows
hold `prediction_csv`, `prediction_b64` or `prediction_path` in place of `output`, answer rows
`response: {"answer": …}`; both may name a `reading`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Protocol, cast

from assay.console import (
    ALL_TASKS,
    DONE,
    UNSCORED,
    Parser,
    Progress,
    TaskFilter,
    add_family,
    add_filter,
    parser,
    task_filter,
)
from assay.family import (
    Family,
    all_families,
    all_weights,
    family_named,
    require_families,
    score_answer,
    use_families,
)
from assay.rows import (
    STANDARD,
    Block,
    blocks,
    is_plain,
    is_url,
    json_line,
    matching,
    parse_object,
    total_bytes,
    writing_lines,
)
from assay.task import Answer, Score, Task, TaskError, refuse_unfinished, refuse_without_gold
from assay.workers import map_ordered, workers_for

SMALL = 8 << 20  # bytes that one process scores in about a second
SENT = 1 << 20  # bytes that a process is sent at a time
Row = dict[str, Any]
Weights = Mapping[str, Any]
ROLLOUT = "task_id"  # the field that names the task of a rollout
NO_WEIGHTS: Weights = {}  # every family's own defaults
# Rows of published releases hold fields of their own in place of `output` and `files`.
# family: `function(gold, row, weights)`, which scores such a row
OWN_FIELDS = {
    "refinement": "rewards.cdr.family:score_release_row",
    "structured": "rewards.cdr.family:score_release_row",
    "table": "rewards.dare.score:score_table_row",
    "answer": "rewards.krama.episode:score_lake_row",
}


def _weights(judge_url: str, judge_model: str) -> dict[str, Any]:
    """Default weights of every family that asks a judge, with this one."""
    made: dict[str, Any] = {}
    for name, kind in all_weights().items() if judge_url else ():
        if any(f.name == "judge_url" for f in fields(kind)):
            made[name] = kind(judge_url=judge_url, judge_model=judge_model)
    return made


def options() -> Parser:
    """Make the parser of `assay score`."""
    made = parser("score", __doc__)
    made.add_argument(
        "input",
        nargs="*",
        default=[STANDARD],
        help="rows: files (.jsonl, .gz, .zst, .parquet), patterns, URLs (default: standard input)",
    )
    made.add_argument("--tasks", metavar="FILE", help="tasks whose ids the rows name")
    add_family(made)
    add_filter(made, "rows of tasks")
    made.add_argument("--out", default=STANDARD, help="scores: .jsonl, .gz, .zst or .parquet")
    made.add_argument(
        "--workers", type=int, default=0, metavar="N", help="processes (default: all cores)"
    )
    made.add_argument("--judge-url", help="OpenAI-compatible endpoint that judges paraphrases")
    made.add_argument("--judge-model", default="", help="its model's name")
    return made


def main(argv: list[str]) -> int:
    """Run `assay score`. Exit status 0; 3 when some row has no outcome. Raises `TaskError` and
    OSError for a file or family that cannot be used."""
    args = options().parse_args(argv)
    if args.workers < 0:
        raise TaskError(f"--workers {args.workers}: wanted 1 or more, or 0 for all cores")
    use_families(args.family)
    names = matching(args.input)
    total = total_bytes(names)
    weights = _weights(args.judge_url or "", args.judge_model)
    listed = None if args.tasks is None else open_tasks(args.tasks)
    asked = task_filter(args)
    unscored = scored = 0
    with ExitStack() as files:
        out = files.enter_context(writing_lines(args.out))
        bar = files.enter_context(Progress("assay score", "rows", total))
        workers = workers_for(args.workers, names, total, SMALL)
        # whoever feeds us row by row is answered so: what comes is scored as it comes
        jobs = blocks(names) if workers == 1 else blocks(names, SENT)
        settings = (listed, weights, asked, len(names) > 1)
        for done in map_ordered(score_block, jobs, workers, prepare, settings):
            out.write(done.results)
            unscored += done.unscored
            scored += done.rows
            bar.add(done.rows, place=done.position)
            if workers == 1:
                out.flush()
        out.flush()
        if asked and not scored:
            raise TaskError(f"{', '.join(names)}: no row is left by {asked.options()}")
    if unscored:
        print(
            f"assay score: {unscored} rows have no outcome; `why` or `error` says why",
            file=sys.stderr,
        )
    return UNSCORED if unscored else DONE


# ---- one row


def score_row(row: Row, tasks: Tasks | None = None, weights: Weights = NO_WEIGHTS) -> Row:
    """Score one row: `{id, outcome, reward, parts, why}`, of a rollout with its `sample`. Raises
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
    if family.name in OWN_FIELDS and "output" not in row and "files" not in row:
        score = _by_own_fields(family, task.gold, row, weights)
    else:
        score = score_answer(task, _answer(row), weights)
    return {"id": task.id, **score.to_json()}


def task_named(row: Row) -> tuple[str, Any]:
    """Find the field that names a row's task, and what it says: `id`, of a rollout `task_id`."""
    named = ROLLOUT if ROLLOUT in row and "id" not in row else "id"
    return named, row.get(named)


def rollout_answer(row: Row) -> Answer:
    """Read what a row of `assay rollout` handed in. It keeps what short files of text held
    (`file_texts`); with another file it is an answer that cannot be scored again: its `failure`
    says so.

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
    left: dict[str, bytes] = {}
    for name, held in {**_files(row), **_files(row, "file_texts")}.items():
        if held != 0 and not isinstance(held, str):
            why = f"the row keeps the size of {name!r} ({held} bytes) and not what it held"
            return Answer(text, truncated, failure=f"{why}: sample it again to score it again")
        left[name] = str(held or "").encode("utf-8", "surrogatepass")
    return Answer(text, truncated, left)


def _files(row: Row, field: str = "files") -> dict[str, Any]:
    files: Any = row.get(field) or {}
    if not isinstance(files, dict):
        raise TaskError(f"field {field!r} is no object; give {{name: text}}")
    return cast("dict[str, Any]", files)


def _by_own_fields(family: Family, gold: Row, row: Row, weights: Weights) -> Score:
    scorer = resolve_name(OWN_FIELDS[family.name])
    return scorer(gold, row, weights.get(family.name) or family.weights())


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
    if name in OWN_FIELDS:
        return _by_own_fields(family, found, row, weights)
    task = Task(str(row.get("id")), name, str(row.get("track") or ""), "", [], found)
    return score_answer(task, _answer(row), weights)


def _answer(row: Row) -> Answer:
    output, cut = row.get("output"), bool(row.get("truncated"))
    if row.get("files") is None:
        if not isinstance(output, str):
            raise TaskError(
                "field 'output' is missing or not a string; give the model's answer there"
            )
        return Answer(output, cut)
    left = {name: str(text).encode("utf-8", "surrogatepass") for name, text in _files(row).items()}
    return Answer(str(output or ""), cut, left)


# ---- lines


def score_lines(
    lines: Iterable[str],
    tasks: Tasks | None = None,
    weights: Weights = NO_WEIGHTS,
    where: str = "line",
    first: int = 1,
    asked: TaskFilter = ALL_TASKS,
) -> Iterator[Row]:
    """Score every non-blank line that is asked for, in order; a bad line gives `{id, error}`,
    which names it as `where` and its number, from `first` on."""
    for number, line in enumerate(lines, first):
        if line.strip() and (made := _result(f"{where} {number}", line, tasks, weights, asked)):
            yield made


def _result(
    where: str, line: str, tasks: Tasks | None, weights: Weights, asked: TaskFilter
) -> Row | None:
    """Score one line of the input. Returns the row to write, or None for a row that the filter
    `asked` leaves out."""
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
        return {"id": None, "error": f"{where}: not valid JSON ({error.msg})"}
    except RecursionError:
        return {"id": name, "error": f"{where}: JSON nested too deep"}
    except ValueError as error:
        return {"id": name, "error": f"{where}: {error}"}


def _asked_for(row: Row, tasks: Tasks | None, asked: TaskFilter) -> bool:
    """By the row's task, where it names one; a row of an unknown task is told of as ever."""
    if tasks is None:
        return asked.accepts_row(row)
    task = tasks.get(str(task_named(row)[1]))
    return task is None or asked.accepts(task)


@dataclass(frozen=True)
class Scored:
    """The results of a block as JSON lines. `unscored` counts rows without an outcome, faulty ones
    too; `position` is the block's."""

    results: bytes
    rows: int
    unscored: int
    position: int


# what the rows of this process are scored with; whether faults name the file too
_given: tuple[Tasks | None, Weights, TaskFilter, bool] = (None, NO_WEIGHTS, ALL_TASKS, False)


def prepare(
    tasks: Tasks | None, weights: Weights, asked: TaskFilter = ALL_TASKS, several: bool = False
) -> None:
    """Set what `score_block` scores with in this process, and which rows. `several`: faults name
    the file too."""
    global _given
    _given = tasks, weights, asked, several


def score_block(job: Block) -> Scored:
    """Score the lines of a block, in order."""
    tasks, weights, asked, several = _given
    # A byte that is not UTF-8 becomes a replacement character: its row may still be readable.
    lines = job.data.decode("utf-8", "replace").split("\n")
    where = f"{job.source} line" if several else "line"
    made = [*score_lines(lines, tasks, weights, where, job.number, asked)]
    unscored = sum(row.get("outcome") is None for row in made)
    return Scored(b"".join(map(json_line, made)), len(made), unscored, job.position)


# ---- tasks by their ids, from a file that may be larger than memory


class Tasks(Protocol):
    """Tasks by id; a dict of them is one."""

    def get(self, name: str, /) -> Task | None: ...


KEPT = 512  # tasks in memory at a time: rows mostly come in the order of their tasks


@dataclass(frozen=True)
class TaskFile:
    """The tasks of a plain JSONL file by the place (offset and length in bytes) of each. It can be
    sent to another process, which opens the file again."""

    path: Path
    changed: int  # when, in nanoseconds
    places: dict[str, tuple[int, int]]

    def get(self, name: str, /) -> Task | None:
        """Return the task of that id, or None. Raises `TaskError` when the file has changed."""
        place = self.places.get(name)
        return None if place is None else _task_at(self.path, self.changed, name, *place)

    def __len__(self) -> int:
        return len(self.places)


@lru_cache(maxsize=KEPT)
def _task_at(path: Path, changed: int, name: str, start: int, size: int) -> Task:
    with open(path, "rb") as file:
        file.seek(start)
        task = _task(file.read(size), str(path))
    if task.id != name:
        raise TaskError(f"{path}: was changed while it was read; run it again")
    return task


def open_tasks(name: str) -> Tasks:
    """Open the tasks of a file by id; one that is no plain file of lines is read into memory.
    Raises `TaskError` naming the line of a task that cannot be used, and for two tasks of one
    id."""
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
    if in_memory:
        return whole
    path = Path(name.removeprefix("file://"))
    return TaskFile(path, path.stat().st_mtime_ns, places)


def _task(line: bytes, where: str) -> Task:
    return Task.from_json(parse_object(line.decode("utf-8", "replace"), where), where)
