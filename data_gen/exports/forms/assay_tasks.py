"""A taskset of verifiers (v1) over the tasks beside this file.

    PYTHONPATH=FOLDER vf-validate assay-tasks --runtime.type subprocess
    PYTHONPATH=FOLDER vf-eval assay-tasks -m MODEL

`reward` is Assay's reward, the metric `outcome` the benchmark's own number. Gold is checked by
`validate`.
"""

# The library is not installed where this project is checked.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import verifiers.v1 as vf

from assay.task import RIGHT, Score, Task
from rewards.adapters import Words, load, score_text

HERE = Path(__file__).resolve().parent
__all__ = ["AssayTaskset"]


class AssayData(vf.TaskData):
    """What goes over the wire; gold stays in this process."""

    track: str = ""


class AssayTask(vf.Task[AssayData]):
    """One task in words."""

    words: Words

    @property
    def key(self) -> str:
        return str(self.data.id)

    def _score(self, trace: vf.Trace) -> Score:
        cut = bool(trace.is_truncated)
        made = score_text(self.words.task, trace.last_reply, cut)
        if made.outcome is None:  # an error is kept out of the means; a zero is not
            raise RuntimeError(f"no outcome: {made.why}")
        return made

    @vf.reward
    async def reward(self, trace: vf.Trace) -> float:
        return float(self._score(trace).reward or 0.0)

    @vf.metric
    async def outcome(self, trace: vf.Trace) -> float:
        return float(self._score(trace).outcome or 0.0)

    async def validate(self, runtime: vf.Runtime) -> bool:
        made = score_text(self.words.task, self.words.gold)
        return made.outcome is not None and made.outcome >= RIGHT


class AssayTaskset(vf.Taskset[AssayTask, vf.TasksetConfig]):
    """The tasks of the folder, in order."""

    def load(self) -> Iterable[AssayTask]:
        for words in load(HERE):
            yield self._made(words)

    def _made(self, words: Words) -> AssayTask:
        task: Task = words.task
        system = [m["content"] for m in words.messages if m["role"] == "system"]
        rest = [m["content"] for m in words.messages if m["role"] != "system"]
        data = AssayData(
            id=task.id,
            name=task.id,
            track=task.track,
            prompt="\n\n".join(rest),
            system_prompt="\n\n".join(system) or None,
        )
        made = AssayTask(data, self.config.task)
        made.words = words
        return made
