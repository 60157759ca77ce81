# duckdb ships partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""What a process does with a question that was drawn: is it stable, unambiguous and not trivial,
does every step matter, do both ways give the same, and what does listing everything earn?

The pipeline is our own template, but holds names and cells of foreign tables: it runs in the
sandbox only. The second way is SQL over the original file (`duckdb_sql.py`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from itertools import chain, permutations, repeat
from pathlib import Path
from typing import Any, cast

from assay.task import TaskError
from data_gen.certificate import AGREED, DIFFERS, ONCE, UNPROVABLE, Refusal
from data_gen.proof.forms import Shelf
from data_gen.proof.marks import number, text
from data_gen.proof.original import NotProvable, Opened
from data_gen.queries import ops
from data_gen.queries.duckdb_sql import part_of
from data_gen.queries.duckdb_sql import values as sql_values
from data_gen.queries.lake_checks import best_listing, score
from data_gen.queries.lake_questions import NAMES_LEAST, enough
from data_gen.queries.ops import Op, sources_of
from data_gen.queries.pipeline import BY_TREND, ONE_ROW, Checked, Question, Values, subtask_key
from rewards.krama.answer import score_response
from rollouts.event_loop import asyncio_run
from rollouts.krama.script import printed
from rollouts.sandbox.model import Config, Limits
from rollouts.sandbox.pool import Pool, plain_path

LEAST_MARGIN = 1e-3  # relative distance to another answer (ties, rounding boundaries)
SHUFFLES = (1, 2)
_FITTED = 10  # rows that a line is fitted to, or a correlation computed of
_ALIKE = 0.5  # outcome of the middle figure, given for every group
_CAUSES = {
    "IndexError": "no row or group is left",
    "KeyError": "a value that the rows left do not have",
}
_MARGINS = {ONE_ROW: "a group of one row", BY_TREND: "the first or the last years"}
_BASELINES: tuple[Any, ...] = (0, 1, "", "Yes", [], None)


def proved(build: str, job: tuple[Question, Path]) -> Checked:
    """What became of a question over the tables of a folder. `build` tells the builds of a process
    apart, which may be over the same folder."""
    question, folder = job
    values, why = validate(question, folder)
    if values is None:
        return Checked(None, why)
    kept = _shelves(build)
    if folder not in kept:
        kept[folder] = Shelf(folder)
    shelf = kept[folder]
    if refused := refusal(question, values, shelf):
        return Checked(values, refused=refused)
    steps = question.ops or ()
    once = any(source.path in shelf.once for source in sources_of(steps))
    lists = everything(steps, shelf)
    listing = best_listing(question.steps[-1].answer_type, values["main-task"], lists)
    return Checked(values, verdict=ONCE if once else AGREED, listing=listing)


@lru_cache(maxsize=1)
def _shelves(build: str) -> dict[Path, Shelf]:
    """The original files that this process has read, by folder. Those of an earlier build go."""
    return {}


# --- the runs of a pipeline


class PipelineFailed(ValueError):
    """The code raised, or printed no object."""


CODE = Path(__file__).with_name("pipeline_runner.py")
_LIMITS = Limits(wall_s=120.0)
# what pipelines and their readers import: the sandbox imports it once, and not in every call
_STACK = (
    *("numpy", "pandas", "sqlite3", "json", "encodings.cp1252", "encodings.cp437"),
    *("pyarrow.pandas_compat", "pyarrow.parquet", "pyarrow.dataset", "zstandard"),
    *("openpyxl", "lxml.html", "pandas.io.html"),
)


@cache
def _pool() -> Pool:
    """One a process, on the event loop of `asyncio_run`, and one run at a time: processes that
    prove share the cores."""
    return Pool(replace(Config(), workers=1, stack=_STACK))


def runs(
    question: Question, folder: Path, wanted: Sequence[tuple[int | None, int]]
) -> list[Values | PipelineFailed]:
    """What each run (seed of the rows' order, step left out) prints, and `margin`.

    The code holds names and cells of foreign tables, so all runs of a question are one call of the
    sandbox, which gets copies of the files it reads. Raises `TaskError` when the sandbox breaks.
    """
    job = {
        "margin": question.margin,
        "runs": [
            {"seed": seed, "code": question.code(without).partition("import pandas as pd\n")[2]}
            for seed, without in wanted
        ],
    }
    files = {"job.json": json.dumps(job).encode(), **_files(question, folder)}
    code = CODE.read_text(encoding="utf-8")
    result = asyncio_run(_pool().run(code, files, ["answers.json"], _LIMITS, 0))
    if result.status == "sandbox_error":
        raise TaskError(f"the sandbox could not run a gold pipeline: {result.why}")
    failed = PipelineFailed(f"{result.status}: {result.why}")
    try:
        found: Any = json.loads(result.files["answers.json"])
    except (KeyError, ValueError, RecursionError):
        return [failed for _ in wanted]
    if not isinstance(found, list) or len(cast("list[Any]", found)) != len(wanted):
        return [failed for _ in wanted]
    rows = cast("list[Any]", found)
    return [_checked(question, row, skip) for row, (_, skip) in zip(rows, wanted, strict=True)]


def script_values(question: Question, folder: Path) -> list[str] | PipelineFailed:
    """What the script of a question prints, line by line, run beside its files as a model's script
    is. Raises `TaskError` when the sandbox breaks."""
    files = _files(question, folder)
    result = asyncio_run(_pool().run(question.script, files, [], _LIMITS, 0))
    if result.status == "sandbox_error":
        raise TaskError(f"the sandbox could not run a gold script: {result.why}")
    if result.status != "ok":
        return PipelineFailed(f"{result.status}: {result.why}")
    return printed(result.stdout)


def _checked(question: Question, row: Any, without: int) -> Values | PipelineFailed:
    """The values of one run; `PipelineFailed` unless it printed one for every step that was run."""
    last = len(question.steps) - 1
    names = {subtask_key(n, last) for n in range(last + 1) if n != without} | {"margin"}
    if not isinstance(row, dict):
        return PipelineFailed("the pipeline printed no object")
    values = cast("Values", row)
    if set(values) != names or not isinstance(values["margin"], float):
        return PipelineFailed(str(values.get("error", "the pipeline printed another object")))
    return values


def _files(question: Question, folder: Path) -> dict[str, bytes]:
    """The files that a question reads, under the names it reads them by; one that is not there is
    left out, so that the pipeline fails."""
    names = sorted({s.path for s in sources_of(tuple(x.op for x in question.steps if x.op))})
    there = [name for name in names if plain_path(name) and (folder / name).is_file()]
    return {f"data/{name}": (folder / name).read_bytes() for name in there}


# --- whether its values can be gold


def reject(question: Question, values: Mapping[str, Any]) -> str:
    """Why values cannot be gold, "" when they can: missing, empty, huge, or a tie."""
    last = question.steps[-1]
    answer: Any = values.get("main-task")
    if not values["margin"] >= LEAST_MARGIN:
        return _MARGINS.get(values["margin"], "ambiguous")
    if why := _guessable(question, values):
        return why
    for value in values.values():
        if not _finite(value):
            return "not finite"
    if isinstance(answer, list):
        items = cast("list[Any]", answer)
        if not 2 <= len(items) <= 12 or len({str(i) for i in items}) < 2:
            return "trivial"
    elif isinstance(answer, str):
        if not 0 < len(answer.strip()) <= 80 or answer in question.text or answer == "nan":
            return "trivial"
    else:
        size = abs(float(cast("float", answer)))
        few = last.value.startswith("len(") and size < 2
        if few or size == 1 or not 1e-9 < size < 1e12:
            return "trivial"
        digits = getattr(last.op, "digits", 0)
        if digits and not 10 <= size * 10**digits < 1e10:  # a guess, or noise
            return "too few or too many digits"
    counts = [v for k, v in values.items() if k.startswith("subtask") and isinstance(v, int)]
    least = _FITTED if isinstance(last.op, ops.Fit | ops.Correlate) else 3
    if any(count < least for count in counts):
        return "too few rows"
    return "" if score(question, answer, answer) == 1.0 else "gold does not score 1"


def _guessable(question: Question, values: Mapping[str, Any]) -> str:
    """Why an answer can be had without the numbers: too few groups to choose from, or figures so
    alike that one of them, repeated, is nearly right."""
    last, answer = question.steps[-1], values["main-task"]
    groups = next(
        (values[subtask_key(n, -1)] for n, s in enumerate(question.steps) if s.kind == "group"), 0
    )
    if isinstance(last.op, ops.Best | ops.Nth) and groups < NAMES_LEAST:
        return "too few groups"
    if isinstance(last.op, ops.Top) and not enough(groups, last.op.k):
        return "too few groups"
    if isinstance(last.op, ops.Above) and not 2 <= int(answer) <= groups - 2:
        return "too few groups"
    if isinstance(last.op, ops.Each):
        middle = sorted(answer)[len(answer) // 2]
        if score(question, answer, [middle] * len(answer)) > _ALIKE:
            return "figures too alike"
    return ""


def _finite(value: Any) -> bool:
    if isinstance(value, list):
        return all(_finite(v) for v in cast("list[Any]", value))
    return not isinstance(value, float) or math.isfinite(value)


def validate(question: Question, folder: Path) -> tuple[Values | None, str]:
    """(values of every step, "") or (None, why). Runs the pipeline about six times, in one call.

    The run, a second run and runs on shuffled rows must agree in every step; leaving out an
    optional step (filter, join) must change the answer; no constant answer may score 1.
    """
    optional = [number for number, step in enumerate(question.steps) if step.optional]
    seeds: tuple[int | None, ...] = (None, None, *SHUFFLES)
    wanted = [*((seed, -1) for seed in seeds), *((None, number) for number in optional)]
    values, *others = runs(question, folder, wanted)
    if isinstance(values, PipelineFailed):
        cause = str(values).partition(":")[0]
        return None, _CAUSES.get(cause, f"pipeline failed ({cause})")
    if why := reject(question, values):
        return None, why
    for seed, again in zip(seeds[1:], others[: len(seeds) - 1], strict=True):
        if isinstance(again, PipelineFailed):
            return None, "unstable"
        if seed is None and again != values:
            return None, "not repeatable"
        if not _agree(question, values, again):
            return None, "unstable"
    for other in others[len(seeds) - 1 :]:
        if not _matters(question, other, values["main-task"]):
            return None, "a step changes nothing"
    if any(score(question, values["main-task"], base) > 0.95 for base in _BASELINES):
        return None, "trivial"
    if question.script and not _prints(question, values, script_values(question, folder)):
        return None, "the short script differs"
    return {k: v for k, v in values.items() if k != "margin"}, ""


def _agree(question: Question, values: Mapping[str, Any], again: Mapping[str, Any]) -> bool:
    """Every step's value the same; order of rows must not show, not even in the last digits."""
    last = len(question.steps) - 1
    for place, step in enumerate(question.steps):
        key = subtask_key(place, last)
        got = score_response(step.answer_type, values[key], {"answer": again[key]}).outcome
        exact = step.answer_type.endswith("exact") or isinstance(values[key], str)
        if got is None or got < (1.0 if exact else 1 - 1e-6):
            return False
        if isinstance(values[key], list) and not same(IN_ORDER, values[key], again[key], 1e-6):
            return False
    return True


def _prints(
    question: Question, values: Mapping[str, Any], lines: list[str] | PipelineFailed
) -> bool:
    """Whether a script printed the value of every step, in their order."""
    if isinstance(lines, PipelineFailed) or len(lines) != len(question.steps):
        return False
    last = len(question.steps) - 1
    return all(
        score_response(s.answer_type, values[subtask_key(n, last)], {"answer": line}).outcome == 1.0
        for n, (s, line) in enumerate(zip(question.steps, lines, strict=True))
    )


def _matters(question: Question, left_out: Mapping[str, Any] | PipelineFailed, answer: Any) -> bool:
    if isinstance(left_out, PipelineFailed):
        return True  # a later step needs it
    other = left_out["main-task"]
    if isinstance(answer, float) and isinstance(other, float | int):
        return not math.isclose(answer, other, rel_tol=0.01)
    return score(question, answer, other) < 0.999


# --- whether both ways agree

_TOLERANCE = 1e-7  # relative; two ways of adding up differ in the last digits


def refusal(question: Question, given: Mapping[str, Any], shelf: Shelf) -> Refusal | None:
    """None when both ways agree on every step; else why the question is refused."""
    steps = question.ops
    if steps is None:
        return Refusal(UNPROVABLE, "a step without a typed form")
    try:
        found = sql_values(steps, shelf)
    except NotProvable as error:
        return Refusal(UNPROVABLE, str(error))
    last = len(steps) - 1
    for place, (op, second) in enumerate(zip(steps, found, strict=True)):
        first = given[subtask_key(place, last)]
        if not same(op, first, second):
            kind = question.steps[place].kind
            said = f"step {place + 1} ({kind}) is {first!r}, by SQL {second!r}"
            return Refusal(DIFFERS, said)
    return None


IN_ORDER = ops.Each()  # a step whose list has an order


def same(op: Op, first: Any, second: Any, tolerance: float = _TOLERANCE) -> bool:
    """Whether two ways gave one value. The order of a list matters where the step has one."""
    if not isinstance(first, list) or not isinstance(second, list):
        return not isinstance(first, list | tuple) and _alike(first, second, tolerance)
    one, two = cast("list[Any]", first), cast("list[Any]", second)
    if not isinstance(op, ops.Each | ops.Fit):
        one, two = sorted(one, key=str), sorted(two, key=str)
    return len(one) == len(two) and all(map(_alike, one, two, repeat(tolerance)))


def _alike(one: Any, two: Any, tolerance: float) -> bool:
    if isinstance(one, list) or isinstance(two, list):
        return False
    if isinstance(one, str) or isinstance(two, str):
        return one == two
    return math.isclose(float(one), float(two), rel_tol=tolerance, abs_tol=1e-12)


# --- what listing everything would say

_LISTED = 1000  # values of one list
_PAIRED = 6  # columns of text of which two are listed together, as a pair is asked for


def everything(steps: tuple[Op, ...], shelf: Shelf) -> list[list[Any]]:
    """Lists of everything that a question could be about: the distinct values of each column it
    names (as numbers where they are), of each part of a split one, of two columns of text, all of
    them together, and the names of the columns of its tables."""
    lists: list[list[Any]] = []
    for source in sources_of(steps):
        held = shelf.table(source.path, source.part)
        for column in source.columns:
            for read in (text, number):
                try:
                    lists.append(_distinct(shelf, held, column, read(held, column)))
                except NotProvable:
                    continue  # a column that no question asks so about
        for op in steps:
            if isinstance(op, ops.Split) and op.column in held.ids:
                cell = part_of(text(held, op.column), op.cut)
                lists.append(_distinct(shelf, held, op.column, cell))
        lists.append(list(held.ids))
    texts = [one for one in lists if any(isinstance(c, str) for c in one)]
    pairs = [[*one, *other] for one, other in permutations(texts[:_PAIRED], 2)]
    together = list(dict.fromkeys(chain.from_iterable(lists)))
    return [one for one in [*lists, *pairs, together[:_LISTED]] if one]


def _distinct(shelf: Shelf, table: Opened, column: str, cell: str) -> list[Any]:
    """The distinct values of what SQL makes of the cells of a column, in order. A table of a shelf
    never changes, so that each is asked for once."""
    texts = f"SELECT DISTINCT {table.column(column)} FROM {table.table}"
    query = f"SELECT DISTINCT c FROM (SELECT {cell} AS c FROM ({texts})) ORDER BY c LIMIT {_LISTED}"
    if query not in shelf.listed:
        shelf.listed[query] = [c for (c,) in shelf.con.execute(query).fetchall() if c is not None]
    return shelf.listed[query]
