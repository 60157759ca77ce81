"""DatawiseAgent's loop as an environment: a notebook that a state machine has its model write.

After You et al., "DatawiseAgent: a notebook-centric LLM agent framework" (arXiv 2503.07044), which
DARE-bench's Table 10 compares with. Of the paper and its public code are: the four stages and what
each may choose, the transitions, their bounds (7 plans, 6 executions of a step, 8 messages of one
repair, 2 failed repairs of a step, 15 plans and executions in all), that cells before a failing one
stay while the repair's own cells are replaced by its result, and that the notebook runs anew after
a repair and after a step that is replaced. The words are ours, and so are: the notebook is one
message, a file is listed by name and size, and an answer is handed in between <answer> tags.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from assay.task import Task
from assay.thoughts import answer_after_thoughts
from configs.loader import read_yaml
from rewards.krama.episode import read_text
from rollouts.environment import EpisodeEnd, EpisodeStart, ModelTurn, Reply
from rollouts.krama.notebook import Notebook, output_of
from rollouts.tools import clip

if TYPE_CHECKING:
    from rollouts.environments import EnvironmentFactory

Stage = Literal["begin", "execute", "plan", "debug", "filter"]
PLANS, EXECUTIONS, REPAIRS, FAILED_REPAIRS, STEPS = 7, 6, 8, 2, 15
_FILES_MOST = 200

_WORDS = read_yaml(Path(__file__).with_name("words.yaml"))["datawise"]
# what each stage may choose; where a message names none, the first one holds
SIGNALS: dict[Stage, tuple[str, ...]] = {
    "begin": ("await",),
    "execute": ("await", "end_step"),
    "plan": ("replace_step", "next_step", "fulfilled"),
    "debug": ("await", "end_debug"),
    "filter": ("debug_success", "debug_failure"),
}
_SIGNAL = re.compile("<(?:" + "|".join({s for some in SIGNALS.values() for s in some}) + ")>")
_GOAL = "[STEP GOAL]:"


@dataclass(frozen=True)
class Cell:
    """A cell of the notebook; `step` counts from 1, `repair`: one that failed, what came after it
    in its message, and what was written while debugging."""

    code: bool
    text: str
    step: int = 0
    output: str = ""
    failed: bool = False
    repair: bool = False


def parts_of(text: str) -> list[tuple[str | None, str]]:
    """A message as (language of a fenced block, its body) in order; None for words outside of
    fences. A block that is not closed ends with the message."""
    found: list[tuple[str | None, str]] = []
    kind: str | None = None
    lines: list[str] = []
    for line in text.splitlines():
        mark = line.rstrip()
        opens = kind is None and mark.startswith("```")
        if opens or (kind is not None and mark == "```"):
            found.append((kind, "\n".join(lines)))
            kind, lines = (mark.removeprefix("```").strip().lower() if opens else None), []
        else:
            lines.append(line)
    return [part for part in (*found, (kind, "\n".join(lines))) if part[1].strip()]


def cells_of(text: str) -> list[Cell]:
    """The cells of a message. One without fenced blocks is a cell of words, if there are any
    beside signals."""
    parts = parts_of(text)
    fenced = [
        Cell(kind not in ("markdown", "md", "text"), body.strip("\n"))
        for kind, body in parts
        if kind is not None
    ]
    words = _SIGNAL.sub("", "\n".join(body for kind, body in parts if kind is None)).strip()
    return fenced or ([Cell(False, words)] if words else [])


def signal_of(stage: Stage, text: str) -> str:
    """The signal of a message: the first of its stage's that it names outside of its cells, in any
    brackets; the stage's default where it names none."""
    outside = "\n".join(body for kind, body in parts_of(text) if kind is None).lower()
    return next((s for s in SIGNALS[stage] if s in outside), SIGNALS[stage][0])


class Datawise:
    """An `Environment`."""

    def __init__(self, task: Task, seed: int, shop: EnvironmentFactory) -> None:
        self._notebook = Notebook(task, seed, shop)
        self._cells: list[Cell] = []
        self._new: list[Cell] = []  # of the last message
        self._stage: Stage = "begin"
        self._back: str = "await"  # the signal that the stage before debugging gave
        self._step = self._executions = self._repairs = self._failed_repairs = 0
        self._plans, self._steps, self._messages = 1, 0, 0
        self._seconds = 0.0
        self._errors: Counter[str] = Counter()
        self._records: list[dict[str, Any]] = []

    async def open(self) -> EpisodeStart:
        await self._notebook.open()
        return EpisodeStart(self._context())

    async def reply(self, said: ModelTurn) -> Reply:
        """Run the cells of a message, and ask for the next one in the stage that follows."""
        self._messages += 1
        self._seconds, self._records, self._errors = 0.0, [], Counter()
        text = answer_after_thoughts(said.text)
        stage, signal = self._stage, signal_of(self._stage, text)
        self._new = []
        done = await self._take(signal, cells_of(text), said.seconds)
        if response := (read_text(text) if self._notebook.lake is not None else {}):
            self._notebook.answer(response["answer"])
        self._records = [{"stage": stage, "signal": signal}, *self._records]
        counted = Reply(records=self._records, errors=self._errors, seconds=self._seconds)
        if done or self._over():
            return replace(counted, done=True)
        context = self._context()
        outputs = [_shown(c, self._notebook.settings.feedback) for c in self._new]
        told = "\n\n".join([*(s for s in outputs if s), self._wanted()])
        return replace(counted, messages=[{"role": "user", "content": told}], context=context)

    async def close(self) -> EpisodeEnd:
        return self._notebook.close("datawise", self._messages)

    # --- the state machine ------------------------------------------------------------------

    def _over(self) -> bool:
        spent = self._plans >= PLANS or self._steps >= STEPS
        return spent and self._stage not in ("debug", "filter")

    async def _take(self, signal: str, cells: Sequence[Cell], left: float) -> bool:
        """Change the notebook as the stage and its signal say, and go on to the next stage; whether
        the task is done."""
        if self._stage == "debug":
            self._repairs += 1
            await self._run(cells, left, repair=True)
            if signal == "end_debug" or self._repairs >= REPAIRS:
                self._stage = "filter"
            return False
        if self._stage == "filter":
            # what the repair comes to takes the place of its own cells and of those it was made for
            self._cells = [c for c in self._cells if not c.repair]
            await self._anew(left)
            good = signal == "debug_success"
            await self._run([c for c in cells if good or not c.code], left)
            self._failed_repairs += not good
            signal = self._back
        else:
            self._steps += 1
            if signal == "fulfilled":
                self._cells += [replace(c, step=self._step) for c in cells if not c.code]
                return True
            if self._stage == "execute":
                self._executions += 1
            else:
                await self._new_step(signal, left)
            if await self._run(cells, left) and self._failed_repairs <= FAILED_REPAIRS:
                self._back, self._repairs, self._stage = signal, 0, "debug"
                return False
        # the cells ran, or are beyond repair
        ended = signal == "end_step" or self._executions >= EXECUTIONS
        self._stage = "plan" if ended else "execute"
        return False

    async def _new_step(self, signal: str, left: float) -> None:
        if signal == "replace_step":
            self._cells = [c for c in self._cells if c.step < self._step]
            await self._anew(left)
        else:
            self._step += 1
        self._plans += signal != "await"
        self._executions = self._failed_repairs = 0

    async def _run(self, cells: Sequence[Cell], left: float, repair: bool = False) -> bool:
        """Append cells and run those of code; whether one failed. Those behind one that failed are
        not run, as a notebook stops there."""
        failed = False
        for cell in cells:
            made = replace(cell, step=self._step, repair=repair)
            if failed and cell.code:
                made = replace(made, failed=True, output="not run: a cell before it failed")
            elif cell.code:
                made = await self._executed(made, left)
                failed = made.failed
            self._new.append(replace(made, repair=repair or failed))
            self._cells.append(self._new[-1])
        return failed

    async def _executed(self, cell: Cell, left: float) -> Cell:
        if self._seconds >= left:
            self._errors["time_up"] += 1
            return replace(cell, failed=True, output="the time for code is used up")
        result = await self._notebook.run(cell.text)
        self._seconds += result.wall_s
        self._records.append({"kind": result.status, "seconds": round(result.wall_s, 3)})
        if result.status != "ok":
            self._errors[result.status] += 1
        return replace(cell, output=output_of(result), failed=result.status != "ok")

    async def _anew(self, left: float) -> None:
        """Run the notebook from its beginning, in a new interpreter."""
        self._notebook.restart()
        self._cells = [
            await self._executed(c, left) if c.code and not c.failed else c for c in self._cells
        ]

    # --- what the model reads -----------------------------------------------------------------

    def _context(self) -> list[dict[str, Any]]:
        lake, most = self._notebook.lake is not None, self._notebook.settings.feedback
        files = self._notebook.files()
        listed = [f"{name} ({size} bytes)" for name, size in files[:_FILES_MOST]]
        if len(files) > _FILES_MOST:
            listed.append(f"and {len(files) - _FILES_MOST} more")
        task = str(self._notebook.task.prompt[-1]["content"])
        about = f"[TASK]: {task}\n\n{_WORDS['lake' if lake else 'table']}"
        cells = [f"{_fenced(c)}\n{_shown(c, most)}".rstrip() for c in self._cells]
        text = "\n\n".join([about, "\n".join(["Files:", *listed]), *cells, self._wanted()])
        return [{"role": "system", "content": _WORDS["system"]}, {"role": "user", "content": text}]

    def _wanted(self) -> str:
        """What the next message is to be."""
        lake = self._notebook.lake is not None
        now = _WORDS[self._stage] + (_WORDS["answer"] if lake and self._stage == "plan" else "")
        goals = [c.text for c in self._cells if c.text.startswith(_GOAL)]
        goal = goals[-1].removeprefix(_GOAL).strip() if goals else ""
        return f"The current goal is: {goal}\n\n{now}" if goal else now


def _fenced(cell: Cell) -> str:
    return f"```{'python' if cell.code else 'markdown'}\n{cell.text}\n```"


def _shown(cell: Cell, most: int) -> str:
    """What a cell printed, "" of words."""
    if not cell.code:
        return ""
    return f"{'Failed' if cell.failed else 'Output'}:\n{clip(cell.output, most // 2)}".rstrip()
