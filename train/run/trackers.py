# The packages are optional, and their types are not known where they are not installed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportMissingImports=false, reportUnknownArgumentType=false
"""Trackers beside metrics.jsonl: Weights & Biases, and event files for TensorBoard.

Both get the same names. RL is the run: its names stay plain, those of other stages get a prefix
(`sft/loss`, `eval/outcome`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from assay.task import TaskError
from train.run.record import note_in_record, read_run_record

FOLDER = "tensorboard"  # of the event files, in the run's own
COLUMNS = ("step", "task_id", "sample", "outcome", "reward", "why", "stop", "prompt", "answer")
"""Of a table of rollouts; the parts of the reward follow, as `reward/<part>`."""
Values = Mapping[str, Any]


class LogError(TaskError):
    """Logging that was asked for and cannot be had; the message says what to do."""


def named_values(stage: str, metrics: Mapping[str, Any]) -> dict[str, float]:
    """A step's numbers under the names that trackers get, without what was not measured."""
    prefix = "" if stage == "rl" else f"{stage}/"
    return {
        f"{prefix}{name}": float(value)
        for name, value in metrics.items()
        if value is not None and not isinstance(value, Mapping | str)
    }


class Wandb:
    """A run at Weights & Biases, the same one for every start of a run folder: its id is in
    run.json. Raises `LogError` when the package is not installed or the service
    lets nobody in."""

    def __init__(
        self, folder: Path, mode: Literal["offline", "online"], project: str, config: Values
    ) -> None:
        try:
            import wandb
        except ModuleNotFoundError:
            raise LogError(
                f"log.wandb={mode}: the package wandb is not installed; "
                "install it with `pip install wandb`, or set log.wandb=off"
            ) from None
        try:
            self._run: Any = wandb.init(
                project=project,
                dir=str(folder),
                mode=mode,
                config=dict(config),
                name=folder.name,
                id=(read_run_record(folder).get("wandb") or {}).get("id"),
                resume="allow",
                settings=wandb.Settings(silent=True),
            )
        except Exception as error:  # its errors differ by version; all mean that it is not to be
            raise LogError(
                f"log.wandb={mode}: it did not start ({type(error).__name__}: {error}); "
                "log in with `wandb login`, or set log.wandb=offline"
            ) from error
        note_in_record(folder, wandb={"id": self._run.id, "project": project})
        self._table: Any = wandb.Table
        self._run.define_metric("*", step_metric="step")
        self._run.define_metric("sft/*", step_metric="sft/step")
        self._run.define_metric("eval/*", step_metric="eval/step")

    def log(self, stage: str, step: int, values: Mapping[str, float]) -> None:
        name = "step" if stage == "rl" else f"{stage}/step"
        self._run.log({name: step, **values})

    def table(self, step: int, rollouts: Sequence[Values]) -> None:
        """The rollouts of an RL step as the table `rollouts`."""
        columns, rows = table_of(step, rollouts)
        self._run.log({"step": step, "rollouts": self._table(columns=columns, data=rows)})

    def close(self) -> None:
        self._run.finish()


class TensorBoard:
    """Event files in `folder`. Raises `LogError` when the package is not installed.

    They hold what metrics.jsonl holds: `restart` writes its rows again, and TensorBoard then drops
    what older files of the folder say. Steps that a resumed run makes again are there once.
    """

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise LogError(
                "log.tensorboard=true: the package tensorboard is not installed; "
                "install it with `pip install tensorboard`, or set log.tensorboard=false"
            ) from None
        self._folder, self._open = str(folder), SummaryWriter
        self._writer: Any = None

    def restart(self, rows: Iterable[Values]) -> None:
        """Begin a new file with the rows of metrics.jsonl."""
        self.close()
        self._writer = self._open(self._folder, purge_step=0)
        for row in rows:
            stage, step = str(row["stage"]), int(row["step"])
            metrics = {k: v for k, v in row.items() if k not in ("stage", "step")}
            self._add(step, named_values(stage, metrics))
        self._writer.flush()

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._add(step, values)
        self._writer.flush()

    def _add(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def table_of(step: int, rollouts: Sequence[Values]) -> tuple[list[str], list[list[Any]]]:
    """(columns, rows) of a table of rollouts."""
    parts = sorted({name for row in rollouts for name in row.get("parts") or {}})
    rows: list[list[Any]] = []
    for row in rollouts:
        known = {"step": step, "prompt": _prompt(row), "answer": row.get("text")}
        mine = row.get("parts") or {}
        rows.append(
            [known.get(c, row.get(c)) for c in COLUMNS] + [mine.get(name) for name in parts]
        )
    return [*COLUMNS, *(f"reward/{name}" for name in parts)], rows


def _prompt(row: Values) -> str:
    """What the user said last before the model spoke."""
    said = ""
    for message in row.get("messages") or ():
        if message.get("role") == "assistant":
            break
        said = str(message.get("content")) if message.get("role") == "user" else said
    return said
