"""The lake of a task as its agents have it: an index to read, and a read-only mount to run in; and
how DS-Guru's answers are read."""

from __future__ import annotations

import asyncio
import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from assay.family import THOUGHT
from assay.task import Task, TaskError
from assay.thoughts import parted
from rollouts.environment import EnvironmentFailure, EpisodeEnd, shared_name
from rollouts.krama import LAKE
from rollouts.krama.index import LakeIndex, index_lake
from rollouts.sandbox.model import MIB, Limits, Result
from rollouts.tool_calls import json_value, too_deep

if TYPE_CHECKING:
    from rollouts.environments import EnvironmentFactory

# a pipeline prints every step's result, and one gold list has 77,760 elements
OUTPUT_KB = 8192
ANSWER, PIPELINE = "answer.json", "pipeline.py"  # what an episode leaves to be scored


class LakeFolder:
    """One task's lake: indexed on opening, mounted as `data/` in every run, never copied.

    It keeps what an agent leaves: its `response`, what the `published` system would have answered
    (None: the same), the `values` that were printed, and the `code` that was run.
    """

    def __init__(self, task: Task, seed: int, shop: EnvironmentFactory) -> None:
        if LAKE not in task.files:
            raise TaskError(f"task {task.id}: files has no {LAKE!r}; build it with `assay tasks`")
        self.path = shop.root / task.files[LAKE]
        if not self.path.is_dir():
            raise TaskError(
                f"task {task.id}: lake {self.path} is not there; build the tasks again, or move "
                "the lake back"
            )
        self._seed, self._pool, self.settings = seed, shop.pool, shop.settings
        self._name = shared_name(self.path)
        self.index: LakeIndex = {}
        self.run_s = 0.0
        self.runs = 0
        self.level: str | None = None  # of the sandbox
        self.response: dict[str, Any] = {}
        self.published: dict[str, Any] | None = None
        self.values: list[Any] = []
        self.code: list[str] = []

    @property
    def shared(self) -> dict[str, str]:
        """What a run is given: the folder it sees → the sandbox's name of the lake."""
        return {"data": self._name}

    async def open(self, indexed: bool = True) -> None:
        """Announce the lake to the sandbox, and index it for an agent that is told of its files."""
        if indexed:
            rows = self.settings.snippet_rows
            self.index = await asyncio.to_thread(index_lake, self.path, rows=rows)
        try:
            self._pool().share(self._name, str(self.path.resolve()))
        except ValueError as error:
            raise EnvironmentFailure(str(error)) from None

    async def run(self, code: str, left: float = math.inf) -> Result:
        """Run Python beside the lake, for `left` seconds at most. Raises `EnvironmentFailure` when
        the sandbox broke."""
        limits = Limits(output_kb=OUTPUT_KB, wall_s=min(self.settings.lake_run_s, left))
        result = await self._pool().run(
            code, limits=limits, seed=self._seed % (1 << 32), shared=self.shared
        )
        self.runs += 1
        self.run_s += result.wall_s
        self.level = result.layers.get("level") or self.level
        if result.status == "sandbox_error":
            raise EnvironmentFailure(result.why)
        return result

    def close(self, **notes: Any) -> EpisodeEnd:
        """What an agent leaves: the response, the printed values, the pipeline, and its cost."""
        published = self.response if self.published is None else self.published
        row = {"response": self.response, "published": published, "values": self.values}
        data = json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogatepass")
        if len(data) > 64 * MIB:
            data = json.dumps({"response": {}, "published": {}, "values": []}).encode()
        cost = {"runs": self.runs, "run_s": round(self.run_s, 3), "sandbox": self.level}
        code = "\n\n".join(self.code).encode("utf-8", "surrogatepass")
        return EpisodeEnd({ANSWER: data, PIPELINE: code}, {**cost, **notes})


# ---- DS-Guru's answer contract
# DS-Guru's answer contract: a plan fenced as json, a pipeline fenced as python, and what the
# pipeline prints, made into an explanation (specification notes, section 8).
#
# `explain` computes what the published system does, exceptions included; `answer_of` is what is
# scored here, which also takes an answer that was printed under a plan that could not be read.


FAILED = "SUT failed to answer this question."
MISSING = "Warning: No answer found in the Python pipeline."
EXHAUSTED = "Pipeline not successful after {} tries."
_JSON = re.compile(r"```json(.*?)```", re.DOTALL)
_PYTHON = re.compile(r"```python(.*?)```", re.DOTALL)

Explanation = dict[str, Any]


@dataclass(frozen=True)
class Blocks:
    """The first json and the first python block of a reply, stripped; "" where there is none.
    `missing`: what is wrong with a reply without code, in a word."""

    plan: str
    code: str
    missing: str = ""


def blocks(text: str) -> Blocks:
    """The blocks of a reply; those that were only thought of do not count."""
    said = parted(text)
    plan, code = _JSON.search(said.answer), _PYTHON.search(said.answer)
    script = code.group(1).strip() if code else ""
    missing = "" if script else "no_code" if said.ended else THOUGHT
    return Blocks(plan.group(1).strip() if plan else "", script, missing)


def without_nan(value: Any) -> Any:
    """NaN as None, through nested lists and objects."""
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, list):
        return [without_nan(v) for v in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {k: without_nan(v) for k, v in cast("dict[str, Any]", value).items()}
    return value


def _failed(plan: Any, why: str) -> Explanation:
    """The plan's main step with `why` as its answer; later steps only complete its sub-tasks."""
    found: Explanation = {}
    for step in plan:
        if step["id"] == "main-task":
            found |= step
            found.setdefault("answer", why)
        elif "subtasks" in found:
            known = False
            for sub in found["subtasks"]:
                known = known or sub["id"] == step["id"]
                sub.setdefault("answer", why)
            if not known:
                found["subtasks"].append(step)
    return found


def explain(
    plan_text: str, stdout: str, stderr: str | None, out: str = "out/q/_intermediate", run: int = 0
) -> Explanation:
    """The published system's explanation object. `stderr` None: errors do not count (a repaired
    run). Raises KeyError or TypeError where the published system does."""
    try:
        plan: Any = json.loads(plan_text)
    except ValueError:
        return {"id": "main-task", "answer": FAILED}
    if stderr:
        return _failed(plan, f"** ERRORS ** found during execution in {out}/errors-{run}.txt")
    try:
        printed: Any = json.loads(stdout)
    except ValueError:
        return _failed(plan, f"** ERRORS ** decoding output in {out}/pipeline-{run}_out.json")
    for step in plan:
        # every top-level step gets the main answer, whatever its id
        step["answer"] = _printed(printed, "main-task")
        for sub in step.get("subtasks", []):
            sub["answer"] = _printed(printed, sub["id"])
    found: Explanation = {"system_subtasks_responses": []}
    for step in plan:
        if step["id"] == "main-task":
            found |= step
        else:
            found["system_subtasks_responses"].append(step)
    return cast("Explanation", without_nan(found))


def _printed(printed: Any, name: str) -> Any:
    if name in printed:  # also a list or a text, where the next line may raise, as it does there
        return printed[name]
    return MISSING


def printed_values(stdout: str) -> dict[str, Any] | None:
    """The one JSON object of a pipeline's output; None when it is anything else, or nested too
    deeply to be an answer."""
    found = json_value(stdout)
    return without_nan(found) if isinstance(found, dict) and not too_deep(found) else None


def answer_of(plan_text: str, stdout: str, failed: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """(response, the published system's response) of a pipeline's run.

    The first has `answer` only when the pipeline printed one; the second is what the release would
    have scored, or `{}` where it would have stopped with an exception.
    """
    printed = None if failed else printed_values(stdout)
    response: dict[str, Any] = {}
    if printed is not None and "main-task" in printed:
        response = {"answer": printed["main-task"]}
    try:
        published = explain(plan_text, stdout, "failed" if failed else None)
    except (KeyError, TypeError, AttributeError, RecursionError):
        published = {}
    if too_deep(published):
        published = {}
    return response, published
