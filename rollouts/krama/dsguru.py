"""DS-Guru, KramaBench's reference system, as an environment (specification notes, section 8).

Three variants: `no-context` (file names only, one try), `one-shot` (a snippet of the lake, one
try) and `few-shot` (up to five tries; code, output and error of a try go back to the model). The
prompt names no number of tries, so that a run with more tries begins as one with fewer.
Differences from the release, on purpose: the snippet is budgeted and typed and sees every file, a
run counts as failed by its exit status rather than by any word on stderr, and pipelines run
confined and with a time limit.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from rewards.family import THOUGHT
from rewards.task import Task
from rollouts.environment import Closing, LakeSettings, Opening, Reply, Said
from rollouts.krama.contract import EXHAUSTED, answer_of, blocks, printed_values
from rollouts.krama.folder import LakeFolder, clip, closing
from rollouts.krama.index import groups, more_rows, snippet, title
from rollouts.sandbox.model import Result
from rollouts.sandbox.pool import Pool

Variant = Literal["no-context", "one-shot", "few-shot"]
SYSTEM = "You are an experienced data scientist."
_NAMES_MOST = 300

_TASK = """Write a plan and a Python pipeline that answer a question from the files of a data lake.

Question: {question}

Files: {files}
{snippet}
Think step by step first. Expect dirty data: missing values, markers such as M or <, notes and \
totals among the rows, several header lines, numbers written as text. Do not trust the types you \
see; convert columns before you compute, compare or join.

Then write the plan as a JSON array in one block that starts with ```json and ends with ```. Each \
step has "id" ("main-task" for the whole question; "subtask-1", "subtask-2", … for its parts), \
"query" (what the step finds out), "data_sources" (file names) and "subtasks" (a list of steps of \
the same shape), for example:
[{{"id": "main-task", "query": "…", "data_sources": ["a.csv"], "subtasks": [{{"id": "subtask-1", \
"query": "Which column holds the year?", "data_sources": ["a.csv"]}}]}}]

Then write the pipeline in one block that starts with ```python and ends with ```. The files are \
below the folder data/. It prints nothing but one JSON object whose keys are the step ids:
print(json.dumps({{"subtask-1": first, "main-task": answer}}))
Give "main-task" as the bare answer (a number, a text or a list), rounded only where the question \
says so."""

_REPAIR = """The pipeline failed. Correct it and give the whole pipeline again in one block that \
starts with ```python and ends with ```.

Code:
{code}

Output:
{output}

Error:
{error}"""


_MISSING = {
    "no_code": "The reply holds no block that starts with ```python.",
    THOUGHT: "The reply ended before its reasoning did; it holds no answer.",
}


class DsGuru:
    """An `Environment`: the model writes plan and pipeline, the pipeline runs beside the lake."""

    def __init__(
        self,
        task: Task,
        seed: int,
        root: Path,
        pool: Callable[[], Pool],
        settings: LakeSettings,
        variant: Variant,
    ) -> None:
        self._task = task
        self._variant: Variant = variant
        self._lake = LakeFolder(task, seed, root, pool, settings)
        self._plan = self._code = ""
        self._tries = 0
        self._most = settings.tries if variant == "few-shot" else 1
        self._response: dict[str, Any] = {}
        self._published: dict[str, Any] = {}
        self._values: list[Any] = []
        self._kind = "no_reply"

    async def open(self) -> Opening:
        await self._lake.open()
        question = str(self._task.prompt[-1]["content"])
        names = [f"data/{name}" for name in self._lake.index.files]
        if len(names) > _NAMES_MOST:
            names = [title(g) for g in groups(self._lake.index)]
        shown = ""
        if self._variant != "no-context":
            settings = self._lake.settings
            heads = await asyncio.to_thread(
                more_rows, self._lake.path, self._lake.index, settings.rows
            )
            text = snippet(
                self._lake.index, settings.snippet_tokens, question, settings.rows, heads
            )
            shown = f"\nWhat the files hold (types and odd cells as found, sample rows):\n{text}\n"
        text = _TASK.format(question=question, files=", ".join(names), snippet=shown)
        return Opening([{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}])

    async def reply(self, said: Said) -> Reply:
        """Run the pipeline of this message; done once one runs, else its error goes back."""
        found = blocks(said.text)
        if self._tries == 0:
            self._plan = found.plan  # the plan of the first try stays
        self._tries += 1
        if not found.code:
            self._kind = found.missing
            return self._after("", "", _MISSING[found.missing], 0.0)
        result = await self._lake.run(found.code, max(said.seconds, 0.1))
        failed = result.status != "ok"
        self._kind = "ran" if not failed else result.status
        if failed:
            return self._after(found.code, result.stdout, _error(result), result.wall_s)
        self._code = found.code
        self._response, self._published = answer_of(self._plan, result.stdout, failed=False)
        self._values = list((printed_values(result.stdout) or {}).values())
        if not self._response:
            self._kind = "no_answer"
        record = {"try": self._tries, "status": result.status, "seconds": round(result.wall_s, 3)}
        return Reply(done=True, records=[record], seconds=result.wall_s)

    def _after(self, code: str, output: str, error: str, seconds: float) -> Reply:
        record = {"try": self._tries, "status": self._kind, "seconds": round(seconds, 3)}
        if self._tries >= self._most:
            self._give_up(code, output)
            return Reply(done=True, records=[record], errors={self._kind: 1}, seconds=seconds)
        most = self._lake.settings.feedback // 3
        text = _REPAIR.format(
            code=clip(code, 2 * most), output=clip(output, most), error=clip(error, most)
        )
        return Reply(
            [{"role": "user", "content": text}],
            records=[record],
            errors={self._kind: 1},
            seconds=seconds,
        )

    def _give_up(self, code: str, output: str) -> None:
        if self._variant == "few-shot":
            self._published = {"id": "main-task", "answer": EXHAUSTED.format(self._most)}
        else:
            self._code = code  # the release keeps a single try's code, run or not
            self._published = answer_of(self._plan, output, failed=bool(code))[1]

    async def close(self) -> Closing:
        notes = {
            "agent": f"ds-guru {self._variant}",
            "tries": self._tries,
            "ended": self._kind,
            "runs": self._lake.runs,
            "run_s": round(self._lake.run_s, 3),
            "sandbox": self._lake.level,
            "plan_read": _is_array(self._plan),
        }
        return closing(self._response, self._published, self._values, self._code, notes)


def _error(result: Result) -> str:
    return "\n".join(part for part in (result.stderr.rstrip(), result.why) if part)


def _is_array(text: str) -> bool:
    try:
        return isinstance(json.loads(text), list)
    except (ValueError, RecursionError):
        return False
