"""What a tool of one's own may ask for: its task, a seed, the sandbox, files to leave."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from assay.seeds import derive_seed
from assay.task import Task, TaskError
from rollouts.environment import EnvironmentFailure

if TYPE_CHECKING:  # the sandbox is loaded by whoever runs something in it
    from rollouts.sandbox.model import Limits, Result
    from rollouts.sandbox.pool import Pool


@dataclass
class Context:
    """One episode as its tools see it.

    `task` with its gold, `sample` and `seed` of the episode; `root` is the folder of the tasks
    file. `files` is what the episode leaves to be scored, name to text or bytes (`Answer.files`).
    """

    task: Task
    sample: int
    seed: int
    root: Path
    pool: Callable[[], Pool]
    run_s: float = 200.0
    files: dict[str, bytes | str] = field(default_factory=dict[str, bytes | str])
    finished: bool = False
    level: str = ""  # of the sandbox, once it ran
    _runs: int = 0
    _scratch: tempfile.TemporaryDirectory[str] | None = None

    @property
    def folder(self) -> Path:
        """A scratch folder of this episode, made when first asked for, gone at its end."""
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(
                prefix="assay-tools-", ignore_cleanup_errors=True
            )
        return Path(self._scratch.name)

    def path(self, name: str) -> Path:
        """Where the task's file of that name lies. Raises `TaskError` if the task has none."""
        if name not in self.task.files:
            known = ", ".join(self.task.files) or "none"
            raise TaskError(f"task {self.task.id} has no file {name!r}; it has {known}")
        return self.root / self.task.files[name]

    def finish(self) -> None:
        """End the episode after this call: the model has handed its answer in."""
        self.finished = True

    async def run_python(
        self,
        code: str,
        files: Mapping[str, bytes | str] | None = None,
        fetch: Sequence[str] = (),
        limits: Limits | None = None,
    ) -> Result:
        """Run Python in the sandbox: `files` lie beside the script, `fetch` names what comes back
        in `Result.files`. Without `limits` it has the run's seconds (`tools.run_s`).

        Raises `EnvironmentFailure` when the sandbox broke, and ValueError for names of files that
        could never work; what the code does wrong is in the result's status.
        """
        from rollouts.sandbox.model import Limits

        self._runs += 1
        result = await self.pool().run(
            code,
            files,
            fetch=list(fetch),
            limits=limits or Limits(wall_s=self.run_s),
            seed=derive_seed(self.seed, "run_python", self._runs) % (1 << 32),
        )
        self.level = str(result.layers.get("level") or self.level)
        if result.status == "sandbox_error":
            raise EnvironmentFailure(f"sandbox: {result.why}")
        return result

    def close(self) -> dict[str, bytes]:
        """Remove the scratch folder; returns the files that were left, as bytes."""
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None
        return {
            str(name): body if isinstance(body, bytes) else str(body).encode("utf-8", "replace")
            for name, body in self.files.items()
        }
