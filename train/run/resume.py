"""Where a loop's checkpoints live, and how an optimiser comes back from the newest one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train.model.optim import MasterAdamW
from train.run.checkpoint import CheckpointError, load_latest, restore_random, save, tidy
from train.run.stop import Stopped

State = Mapping[str, Any]
STATE = "loop"  # its name in a checkpoint's meta.json


def never() -> bool:
    """Nobody asks to stop."""
    return False


def forget(state: State) -> None:
    """A loop without a state of its own."""


@dataclass(frozen=True)
class Checkpoints:
    """One loop's checkpoint folder. The locked fields of `config`, as resolved, bind a resume.

    `stop` is asked after every step whether the run is to save and end.
    """

    folder: Path
    config: Any
    keep: int = 2
    stop: Callable[[], bool] = never

    def restore(
        self, optimiser: MasterAdamW, last: int, take: Callable[[State], None] = forget
    ) -> int:
        """Load the newest whole checkpoint into `optimiser`; returns its step, 0 if none. `take` is
        given what the loop had saved beside it.

        Raises `CheckpointError` naming a locked field that has changed since, and when the
        checkpoint is of a step after `last`: its model is not the one that was asked for.
        """
        found = load_latest(self.folder, self.config)
        if found is None:
            return 0
        if found.step > last:
            raise CheckpointError(
                f"{found.path}: the run is at step {found.step} already and now ends after {last}; "
                f"ask for {found.step} steps or more, or set another out="
            )
        tidy(self.folder, found, self.keep)
        optimiser.load(found.tensors["optimiser"])
        restore_random(found)
        take(found.meta.get(STATE) or {})
        return found.step

    def save(self, step: int, optimiser: MasterAdamW, state: State | None = None) -> None:
        """Everything a restart needs: masters, moments, random states, and the loop's own `state`
        (JSON data). The place in the data follows from the step."""
        tensors = {"optimiser": optimiser.state()}
        meta = {STATE: dict(state)} if state else {}
        save(self.folder, step, tensors, meta, config=self.config, keep=self.keep)

    def after_step(
        self,
        step: int,
        last: int,
        every: int,
        optimiser: MasterAdamW,
        state: State | None = None,
    ) -> None:
        """Save when `step` is due, the last, or when a stop was asked for: then raises `Stopped`.

        What is saved when does not change the numbers, so an interrupted run ends like a whole one.
        """
        asked = self.stop() and step < last
        if asked or step % every == 0 or step == last:
            self.save(step, optimiser, state)
        if asked:
            raise Stopped(step, getattr(self.stop, "asked", None))
