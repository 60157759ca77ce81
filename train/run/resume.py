"""Where a loop's checkpoints live, and how an optimiser comes back from the newest one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train.model.optim import MasterAdamW
from train.run.checkpoint import CheckpointError, load_latest, restore_random, save, tidy
from train.run.stop import Stopped


def never() -> bool:
    """Nobody asks to stop."""
    return False


@dataclass(frozen=True)
class Checkpoints:
    """One loop's checkpoint folder. The locked fields of `config`, as resolved, bind a resume.

    `stop` is asked after every step whether the run is to save and end.
    """

    folder: Path
    config: Any
    keep: int = 2
    stop: Callable[[], bool] = never

    def restore(self, optimiser: MasterAdamW, last: int) -> int:
        """Load the newest whole checkpoint into `optimiser`; returns its step, 0 if none.

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
        return found.step

    def save(self, step: int, optimiser: MasterAdamW) -> None:
        """Everything a restart needs: masters, moments and random states. The place in the data
        follows from the step."""
        tensors = {"optimiser": optimiser.state()}
        save(self.folder, step, tensors, {}, config=self.config, keep=self.keep)

    def after_step(self, step: int, last: int, every: int, optimiser: MasterAdamW) -> None:
        """Save when `step` is due, the last, or when a stop was asked for: then raises `Stopped`.

        What is saved when does not change the numbers, so an interrupted run ends like a whole one.
        """
        asked = self.stop() and step < last
        if asked or step % every == 0 or step == last:
            self.save(step, optimiser)
        if asked:
            raise Stopped(step, getattr(self.stop, "asked", None))
