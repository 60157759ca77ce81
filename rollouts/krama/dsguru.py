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
from dataclasses import replace
from typing import TYPE_CHECKING

from assay.task import Task
from rollouts.environment import EpisodeEnd, EpisodeStart, ModelTurn, Reply
from rollouts.krama.index import groups, snippet, title
from rollouts.krama.lake import EXHAUSTED, LakeFolder, answer_of, blocks, printed_values
from rollouts.tool_calls import json_value
from rollouts.tools import clip
from rollouts.words.krama import KIND, csv_files, question_of, tables_of
from rollouts.words.templates import ours, places

if TYPE_CHECKING:
    from rollouts.environments import EnvironmentFactory

NAME = "ds_guru_"  # and the variant: no_context, one_shot or few_shot
_NAMES_MOST = 300


class DsGuru:
    """An `Environment`: the model writes plan and pipeline, the pipeline runs beside the lake."""

    def __init__(self, task: Task, seed: int, shop: EnvironmentFactory) -> None:
        self._task, settings = task, shop.settings
        name = next(tool for tool in task.tools if tool.startswith(NAME))
        self._variant = name.removeprefix(NAME).replace("_", "-")
        self._words = settings.words.get("ds_guru") or ours(KIND)
        self._lake = LakeFolder(task, seed, shop)
        self._plan = ""
        self._tries = 0
        self._most = settings.tries if self._variant == "few-shot" else 1
        self._lake.published = {}
        self._kind = "no_reply"

    async def open(self) -> EpisodeStart:
        await self._lake.open()
        words = self._words
        field = "task_without_files" if self._variant == "no-context" else "task"
        question = question_of(self._task, words)
        asked = {name: await self._value(name, question) for name in places(words.texts[field])}
        said = {"system": words["system"], "user": words.fill(field, **asked)}
        return EpisodeStart([{"role": r, "content": text} for r, text in said.items() if text])

    async def _value(self, place: str, question: str) -> str:
        """What stands at a place of the first message."""
        lake, settings = self._lake, self._lake.settings
        match place:
            case "question":
                return question
            case "question_json":  # inside a JSON text
                return json.dumps(question)[1:-1]
            case "files":
                names = [f"data/{name}" for name in lake.index]
                if len(names) > _NAMES_MOST:
                    names = [title(g) for g in groups(lake.index)]
                return ", ".join(names)
            case "names":
                return str(csv_files(lake.path))
            case "paths":
                return str([f"data/{name}" for name in csv_files(lake.path)])
            case "tables":
                sizes = (settings.snippet_rows, settings.snippet_tokens)
                return await asyncio.to_thread(tables_of, lake.path, self._words, *sizes)
            case _:
                sizes = (settings.snippet_tokens, question, settings.snippet_rows)
                return snippet(lake.index, *sizes)

    async def reply(self, said: ModelTurn) -> Reply:
        """Run the pipeline of this message; done once one runs, else its error goes back."""
        found = blocks(said.text)
        if self._tries == 0:
            self._plan = found.plan  # the plan of the first try stays
        self._tries += 1
        if not found.code and (error := self._words[found.missing]):
            self._kind = found.missing
            return self._after("", "", error, 0.0)
        result = await self._lake.run(found.code, max(said.seconds, 0.1))
        failed = result.status != "ok"
        self._kind = "ran" if not failed else result.status
        if failed:
            error = "\n".join(filter(None, (result.stderr.rstrip(), result.why)))
            return self._after(found.code, result.stdout, error, result.wall_s)
        lake = self._lake
        lake.code = [found.code]
        lake.response, lake.published = answer_of(self._plan, result.stdout, failed=False)
        lake.values = list((printed_values(result.stdout) or {}).values())
        if not lake.response:
            self._kind = "no_answer"
        record = {"try": self._tries, "status": result.status, "seconds": round(result.wall_s, 3)}
        return Reply(done=True, records=[record], seconds=result.wall_s)

    def _after(self, code: str, output: str, error: str, seconds: float) -> Reply:
        record = {"try": self._tries, "status": self._kind, "seconds": round(seconds, 3)}
        failed = Reply(records=[record], errors={self._kind: 1}, seconds=seconds)
        if self._tries >= self._most:
            self._give_up(code, output)
            return replace(failed, done=True)
        whole = self._words.source == "release"  # which tells all of it
        most = 0 if whole else self._lake.settings.feedback // 3
        if most:
            code, output, error = clip(code, 2 * most), clip(output, most), clip(error, most)
        text = self._words.fill("repair", code=code, output=output, error=error)
        return replace(failed, messages=[{"role": "user", "content": text}])

    def _give_up(self, code: str, output: str) -> None:
        if self._variant == "few-shot":
            self._lake.published = {"id": "main-task", "answer": EXHAUSTED.format(self._most)}
        else:
            self._lake.code = [code]  # the release keeps a single try's code, run or not
            self._lake.published = answer_of(self._plan, output, failed=bool(code))[1]

    async def close(self) -> EpisodeEnd:
        return self._lake.close(
            agent=f"ds-guru {self._variant}",
            tries=self._tries,
            ended=self._kind,
            plan_read=isinstance(json_value(self._plan), list),
        )
