"""The live line of a training loop: how far it is, below the lines of its steps."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from assay.console import Progress

STAGES = {"sft": "SFT", "rl": "Dr.GRPO"}
# name on the line, metric, form
SHOWN = (
    ("reward", "reward/mean", "{:.2f}"),
    ("outcome", "outcome/mean", "{:.2f}"),
    ("DROP", "reward/said_drop/mean", "{:.0%}"),
    ("loss", "loss", "{:.3f}"),
    ("tok/s", "time/tokens_per_second", "{:.0f}"),
)


class LiveLine:
    """One bar a stage on a terminal; elsewhere only the lines of the steps."""

    def __init__(self) -> None:
        self._bar: Progress | None = None
        self._steps = 0  # that were printed without a terminal
        self._stage = ""

    def step(
        self, stage: str, step: int, total: int, line: str, metrics: Mapping[str, Any]
    ) -> None:
        """Print `line`, and below it how far the stage is after step `step` of `total`."""
        if not sys.stderr.isatty():
            print(line, flush=True)
            self._steps += 1
            seconds = metrics.get("time/step")
            if self._steps == 2 and seconds and step < total:  # the first one compiles
                left = duration((total - step) * seconds)
                print(f"{total - step} more steps: about {left} at this rate", flush=True)
            return
        if self._bar is None or self._stage != stage:
            self.close()
            self._bar = Progress(STAGES.get(stage, stage), "steps", total, done=step - 1)
            self._stage = stage
        self._bar.note(live_note(metrics))
        self._bar.above(line)
        self._bar.add()
        if step == total:
            self.close()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def duration(seconds: float) -> str:
    """In words, such as `12 minutes`."""
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def live_note(metrics: Mapping[str, Any]) -> str:
    """What the last step came to, as far as it was measured. The loss of RL tells a reader
    nothing, so it stands there for SFT alone."""
    there = [shown for shown in SHOWN if metrics.get(shown[1]) is not None]
    if any(name == "reward" for name, _, _ in there):
        there = [shown for shown in there if shown[0] != "loss"]
    return ", ".join(f"{name} {form.format(metrics[key])}" for name, key, form in there)
