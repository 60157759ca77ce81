"""A short episode over a lake, for small models: one message with one script, which is run once.

The script prints the result of every step on a line of its own; the last line is the answer. Lines
that were printed before an error count as results of steps (sub-task credit), not as an answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.task import Task
from rollouts.environment import EpisodeEnd, EpisodeStart, ModelTurn, Reply
from rollouts.krama.index import CHARS_A_TOKEN, FileNote, LakeIndex
from rollouts.krama.lake import LakeFolder, blocks

if TYPE_CHECKING:
    from rollouts.environments import EnvironmentFactory, ToolSettings

SYSTEM = "You write Python scripts that answer questions about tables."
_TASK = """{question}

{files}

Write one script in a block that starts with ```python. Print the result of every step on its own \
line, the answer last."""
ROWS = 2  # sample rows of a table, at most
_LINE = 160  # characters of a row that are shown
_MARKS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", "": "blanks"}


def printed(stdout: str) -> list[str]:
    """The lines of an output that are not blank, without the blanks around them."""
    return [line.strip() for line in stdout.splitlines() if line.strip()]


def task_text(question: str, index: LakeIndex, settings: ToolSettings) -> str:
    """The question, the files that it names with their first rows, and what to write. Where it
    names no file, the names of the lake's files, within `settings.snippet_tokens`."""
    named = [name for name in index if name in question]
    if named:
        rows = min(ROWS, settings.snippet_rows)
        files = "\n".join(_described(name, index[name], rows) for name in named)
    else:
        room = int(settings.snippet_tokens * CHARS_A_TOKEN)
        files = "Files: " + ", ".join(f"data/{name}" for name in index)[: room or None]
    return _TASK.format(question=question, files=files)


def _described(name: str, note: FileNote, rows: int) -> str:
    """How a file is laid out, its columns and its first rows. Nothing says how many rows it has,
    which is a result of the first step."""
    head = [line[:_LINE] for line in note.head[:rows]]
    if note.kind == "table":
        table = note.tables[0]
        how = f"fields between {_MARKS.get(table.delimiter, table.delimiter)}"
        how += f", names in line {table.header}" if table.header > 1 else ""
        how += f", encoding {note.encoding}" if note.encoding not in ("", "utf-8") else ""
        names = (table.delimiter or " ").join(c.name for c in table.columns)
        return "\n".join([f"data/{name}: {how}", names[: 2 * _LINE], *head])
    if note.kind == "records":
        how = "one JSON object a line" if name.endswith(".jsonl") else "a JSON list of objects"
        return "\n".join([f"data/{name}: {how}", *head[:1]])  # every row repeats the names
    columns = [f"columns {', '.join(c.name for c in note.columns)}"] if note.columns else []
    return "\n".join([f"data/{name}: {note.kind}", *columns, *head])


class LakeScript:
    """An `Environment` of one turn: it runs the script in the answer, in the lake's folder."""

    def __init__(self, task: Task, seed: int, shop: EnvironmentFactory) -> None:
        self._task = task
        self._lake = LakeFolder(task, seed, shop)
        self._kind = "no_reply"

    async def open(self) -> EpisodeStart:
        await self._lake.open()
        question = str(self._task.prompt[-1]["content"])
        text = task_text(question, self._lake.index, self._lake.settings)
        return EpisodeStart(
            [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}]
        )

    async def reply(self, said: ModelTurn) -> Reply:
        """Run the script of this message; the episode ends with it."""
        found = blocks(said.text)
        if not found.code:
            self._kind = found.missing
            return Reply(done=True, errors={self._kind: 1})
        result = await self._lake.run(found.code, max(said.seconds, 0.1))
        self._kind = "ran" if result.status == "ok" else result.status
        self._lake.code, self._lake.values = [found.code], list(printed(result.stdout))
        if self._kind == "ran" and self._lake.values:
            self._lake.response = {"answer": self._lake.values[-1]}
        elif self._kind == "ran":
            self._kind = "no_answer"
        record = {"try": 1, "status": result.status, "seconds": round(result.wall_s, 3)}
        errors = {} if self._lake.response else {self._kind: 1}
        return Reply(done=True, records=[record], errors=errors, seconds=result.wall_s)

    async def close(self) -> EpisodeEnd:
        tries = int(self._kind != "no_reply")
        return self._lake.close(agent="lake script", tries=tries, ended=self._kind)
