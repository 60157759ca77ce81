"""A gold pipeline: typed steps, each with its code, its words, and a sub-question; and its runs.

The code is the gold: what a step does is written once, and executed as it will be shown. It is
made of our own templates, but holds names and cells of foreign tables: it runs in the sandbox only.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

from assay.syntax import parse_python
from assay.task import TaskError
from assay.workers import usable_cores
from data_gen.queries.ops import Op, in_order, sources_of
from rollouts.event_loop import asyncio_run
from rollouts.krama.script import printed
from rollouts.sandbox.model import Config, Limits
from rollouts.sandbox.pool import Pool, plain_path

StepKind = Literal[
    "load", "clean", "join", "filter", "group", "interpolate", "rank", "regress", "finish"
]


@dataclass(frozen=True)
class LakeStep:
    """One step. `code` binds its result to variables; `value` is the expression whose value
    answers `query`; `text` says in words what a correct pipeline must do here."""

    kind: StepKind
    text: str
    code: str
    query: str
    value: str
    answer_type: str
    optional: bool = False  # the answer must change when it is left out
    op: Op | None = None  # what it does, as data; the code was written from it


@dataclass(frozen=True)
class Question:
    """A question with its pipeline. `margin` is an expression of how far the answer is from
    another one, relative (ties, rounding); negative where it rests on a single row."""

    text: str
    steps: tuple[LakeStep, ...]
    shape: str  # the template and its columns: two of one shape ask the same
    margin: str = "1.0"
    script: str = ""  # stands in gold in place of the pipeline; prints a line for each step

    @property
    def ops(self) -> tuple[Op, ...] | None:
        """The steps as data; None when one has no such form."""
        found = tuple(step.op for step in self.steps if step.op is not None)
        return found if len(found) == len(self.steps) else None

    def code(self, without: int = -1) -> str:
        """The whole script, as DS-Guru's contract wants it."""
        lines = ["import json", "", "import numpy as np", "import pandas as pd", ""]
        keys: list[str] = []
        last = len(self.steps) - 1
        for number, step in enumerate(self.steps):
            if number == without:
                continue
            lines.append(f"# {_on_one_line(step.text)}")
            lines += step.code.splitlines()
            name = "answer" if number == last else f"found_{number + 1}"
            lines.append(f"{name} = {step.value}")
            keys.append(f"{subtask_key(number, last)!r}: {name}")
        lines.append(f"print(json.dumps({{{', '.join(keys)}}}))")
        return "\n".join(lines) + "\n"


def subtask_key(number: int, last: int) -> str:
    """What a pipeline prints the value of a step under; `last` is the number of the last step."""
    return "main-task" if number == last else f"subtask-{number + 1}"


def _on_one_line(text: str) -> str:
    """The text with every line break and control character escaped: names and cells of foreign
    tables stand in it, and must not end the comment that they stand in."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


class PipelineFailed(ValueError):
    """The code raised, or printed no object."""


Values = dict[str, Any]
CODE = Path(__file__).with_name("pipeline_runner.py")
_LIMITS = Limits(wall_s=120.0)
# what pipelines and their readers import: the sandbox imports it once, and not in every call
_STACK = (
    *("numpy", "pandas", "sqlite3", "json", "encodings.cp1252", "encodings.cp437"),
    *("pyarrow.pandas_compat", "pyarrow.parquet", "pyarrow.dataset", "zstandard"),
    *("openpyxl", "lxml.html", "pandas.io.html"),
)
_pools: list[Pool] = []  # one a process, on the event loop of `asyncio_run`


def _pool() -> Pool:
    if not _pools:
        workers = usable_cores()
        _pools.append(Pool(replace(Config(), workers=workers, stack=_STACK)))
    return _pools[0]


def run(question: Question, folder: Path, seed: int | None = None, without: int = -1) -> Values:
    """The printed object of a question's pipeline, and `margin`. Raises `PipelineFailed`."""
    (found,) = asyncio_run(runs(question, folder, [(seed, without)]))
    if isinstance(found, PipelineFailed):
        raise found
    return found


async def runs(
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
    result = await _pool().run(code, files, ["answers.json"], _LIMITS, 0)
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


async def script_values(question: Question, folder: Path) -> list[str] | PipelineFailed:
    """What the script of a question prints, line by line, run beside its files as a model's script
    is. Raises `TaskError` when the sandbox breaks."""
    files = _files(question, folder)
    result = await _pool().run(question.script, files, [], _LIMITS, 0)
    if result.status == "sandbox_error":
        raise TaskError(f"the sandbox could not run a gold script: {result.why}")
    if result.status != "ok":
        return PipelineFailed(f"{result.status}: {result.why}")
    return printed(result.stdout)


def _checked(question: Question, row: Any, without: int) -> Values | PipelineFailed:
    """The row, when it holds a value for every step."""
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
    try:
        nodes = list(ast.walk(parse_python(question.code())))
    except (SyntaxError, ValueError):
        return {}
    said = {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    said |= {f"data/{source.path}" for source in sources_of(question.ops or ())}
    found: dict[str, bytes] = {}
    for name in sorted(said):
        path = folder / name.removeprefix("data/")
        if name.startswith("data/") and plain_path(name) and path.is_file():
            found[name] = path.read_bytes()
    return found


def gold_subtasks(question: Question, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The sub-tasks of a task's gold: one for every step, the last one being the question."""
    out: list[dict[str, Any]] = []
    last = len(question.steps) - 1
    for number, step in enumerate(question.steps):
        out.append(
            {
                "id": f"{number + 1}",
                "kind": step.kind,
                "step": step.text,
                "query": step.query,
                "answer_type": step.answer_type,
                "answer": values[subtask_key(number, last)],
                **({"ordered": True} if in_order(step.op, step.answer_type) else {}),
            }
        )
    return out
