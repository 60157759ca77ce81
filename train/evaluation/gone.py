"""When an endpoint or a server counts as gone."""

from __future__ import annotations

import sys

from rewards.task import TaskError
from rollouts.trajectory import Trajectory

GIVE_UP = 8  # failed episodes in a row


class Gone:
    """Counts failures in a row: the first is said at once, `GIVE_UP` of them end the run."""

    def __init__(self, model: str) -> None:
        self._model, self._row, self._said = model, 0, False

    def see(self, run: Trajectory) -> None:
        """Raises `TaskError` when the endpoint counts as gone."""
        self._row = 0 if run.failure is None else self._row + 1
        if self._row and not self._said:
            self._said = True
            print(
                f"assay eval: {run.failure}; it counts nowhere, and {GIVE_UP} failures in a row "
                "end the run",
                file=sys.stderr,
                flush=True,
            )
        if self._row >= GIVE_UP:
            raise TaskError(
                f"--model {self._model}: {self._row} requests in a row failed, the last with "
                f"{run.failure}; what was answered is kept, the same command goes on"
            )
