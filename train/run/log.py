# The trackers' packages are optional, and their types are not known where they are not installed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportMissingImports=false, reportUnknownArgumentType=false
"""What a run leaves behind: one console line a step, metrics.jsonl, rollouts, and trackers.

Metric names are the field's: `reward/mean`, `reward/<part>/mean`, `outcome/mean`,
`response_length/mean`, `response_length/clip_ratio`, `by_group/frac_mixed`, `entropy`,
`grad_norm`, `time/*`.
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import compress
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from assay.console import Progress
from assay.files import disk_errors_name
from assay.task import MachineError, Score, TaskError, write_jsonl
from configs.machine import LogConfig
from train.run.record import note_in_record, read_run_record

Row = Mapping[str, Any]

LOST = 5  # steps in a row without a number, after which none will come
FIRST = 3  # steps of RL after which it is said while the run goes on


class Column(NamedTuple):
    """One column of the console line: `label value`, the value padded to `width`."""

    label: str
    key: str
    form: str
    width: int


COLUMNS: dict[str, tuple[Column, ...]] = {
    "sft": (
        Column("loss", "loss", "{:.3f}", 6),
        Column("lr", "lr", "{:.1e}", 7),
        Column("grad", "grad_norm", "{:.2f}", 6),
        Column("tok/s", "time/tokens_per_second", "{:.0f}", 5),
        Column("", "time/step", "{:.1f}s", 6),
    ),
    "rl": (
        Column("reward", "reward/mean", "{:.2f}", 5),
        Column("outcome", "outcome/mean", "{:.2f}", 4),
        Column("mixed", "by_group/frac_mixed", "{:.0%}", 4),
        Column("no_answer", "why/no_answer", "{:.0%}", 4),
        Column("tok", "response_length/mean", "{:.0f}", 3),
        Column("cut", "response_length/clip_ratio", "{:.0%}", 4),
        Column("entropy", "entropy", "{:.2f}", 4),
        Column("grad", "grad_norm", "{:.2f}", 5),
        Column("kl", "kl/sampler", "{:.4f}", 7),
        Column("", "time/step", "{:.1f}s", 6),
    ),
}


Show = Callable[[str, int, int, str, Mapping[str, Any]], None]
"""(stage, step, of how many, console line, metrics): puts a step on the screen."""


class RunLog:
    """Writes the log of one run directory; call `resume` before going on with a stage."""

    def __init__(
        self,
        folder: Path,
        settings: LogConfig | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        to = settings or LogConfig()
        self.folder, self.keep_rollouts = folder, to.rollouts
        self._path = folder / "metrics.jsonl"
        folder.mkdir(parents=True, exist_ok=True)
        self._live = LiveLine()
        self.show: Show = self._live.step
        self._wandb: Wandb | None = None
        self._board: TensorBoard | None = None
        if to.wandb != "off":
            self._wandb = Wandb(folder, to.wandb, to.project, config or {})
        if to.tensorboard:
            self._board = TensorBoard(folder / FOLDER)
        self._tables = to.tables if self._wandb else 0
        self._behind = True  # the event files say something else than metrics.jsonl
        self._seen: list[Mapping[str, Any]] = []  # the stage's steps so far
        self._warned: set[str] = set()  # kinds of warnings that hold after the last of them

    def resume(self, stage: str, step: int) -> None:
        """Forget what a killed run logged after `step` of `stage`, so that nothing is repeated."""
        self._behind = True
        if self._path.exists():
            with open(self._path, "r+b") as file:
                data = file.read()
                kept = _keep_bytes(data, stage, step, self._path)
                file.truncate(kept)
            if gone := step - _last_step(data[:kept], stage):
                print(f"{self._path}: cut off; its last {gone} steps are missing", file=sys.stderr)
        self._seen = [*self._rows(stage)]
        self._warned = {*warnings_of(self._seen, stage)}
        if stage == "rl":
            for path in (self.folder / "rollouts").glob("step_*.jsonl"):
                if int(path.stem.removeprefix("step_")) > step:
                    path.unlink()

    def step(
        self,
        stage: str,
        step: int,
        total: int,
        metrics: Mapping[str, Any],
        rollouts: Iterable[Mapping[str, Any]] = (),
    ) -> None:
        """Log step `step` (from 1) of `total`; non-finite numbers are written as null. From `FIRST`
        steps of RL on, a warning is printed when it comes up. Raises `Diverged` when the last
        `LOST` steps, which are logged, had no loss or gradient that is a number."""
        due = self._tables and stage == "rl" and (step % self._tables == 0 or step == total)
        rows = list(rollouts) if self.keep_rollouts or due else []
        if self.keep_rollouts and rows:
            write_jsonl(self.folder / "rollouts" / f"step_{step:06d}.jsonl", rows)
        self.record(stage, step, metrics)
        if self._wandb is not None and due and rows:
            self._wandb.table(step, rows)
        self.show(stage, step, total, console_line(stage, step, total, metrics), metrics)
        self._seen.append(metrics)
        if len(self._seen) >= LOST and all(map(lost, self._seen[-LOST:])):
            raise Diverged(_no_numbers(stage, f"the last {LOST} steps up to step {step}"))
        if stage == "rl" and len(self._seen) >= FIRST:
            found = warnings_of(self._seen, stage)
            for kind in found.keys() - self._warned:
                print(f"warning: step {step}: {found[kind]}", flush=True)
            self._warned = {*found}

    def end(self, stage: str) -> None:
        """Print what is to be known of a finished stage that learned less than its steps say.
        Raises `Diverged` where it learned nothing because every step was skipped."""
        rows = self._rows(stage)
        if rows and all(map(lost, rows)):
            raise Diverged(_no_numbers(stage, f"all {len(rows)} steps", "nothing was learned and "))
        for said in warnings_of(rows, stage).values():
            print(f"warning: {said}", flush=True)

    def _rows(self, stage: str) -> list[dict[str, Any]]:
        return [row for row in read_metrics(self.folder) if row.get("stage") == stage]

    def record(self, stage: str, step: int, metrics: Mapping[str, Any]) -> None:
        """Like `step`, but without a console line."""
        if self._board is not None and self._behind:
            self._board.restart(read_metrics(self.folder))
            self._behind = False
        row = {"stage": stage, "step": step, **{k: _finite(v) for k, v in metrics.items()}}
        with disk_errors_name(self._path), open(self._path, "a", encoding="utf-8") as out:
            out.write(json.dumps(row) + "\n")
        values = named_values(stage, metrics)
        if self._wandb is not None:
            self._wandb.log(stage, step, values)
        if self._board is not None:
            self._board.log(step, values)

    def close(self) -> None:
        self._live.close()
        if self._wandb is not None:
            self._wandb.close()
            self._wandb = None
        if self._board is not None:
            self._board.close()


# --- on the screen

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


# --- whether a stage learned: what its rows say of that, while it runs and at its end


class Diverged(MachineError):
    """The loss or the gradient is no number: there is no model to save. Exit status 1."""


def lost(row: Row) -> bool:
    """Whether a step's loss or gradient was no number (null in a file), or all logits of its
    rollouts: it taught nothing."""
    values = [row[name] for name in ("loss", "grad_norm") if name in row]
    broken = any(value is None or not math.isfinite(value) for value in values)
    return broken or row.get("response/nan") == 1


def _no_numbers(stage: str, steps: str, also: str = "") -> str:
    return (
        f"{stage}: the loss, the gradient or the logits of {steps} are no numbers (NaN or "
        f"infinite): {also}no model was written; lower {stage}.lr, or begin from other weights"
    )


def warnings_of(rows: Sequence[Row], stage: str) -> dict[str, str]:
    """What is to be known of a stage that learned less than its steps say: kind → sentence.

    `rows`: all its steps so far, in order.
    """
    steps = len(rows)
    skipped = sum(map(lost, rows))
    found: dict[str, str] = {}
    if skipped:
        found["skipped"] = (
            f"{skipped} of {steps} steps were skipped: their loss, gradient or logits were no "
            f"numbers; lower {stage}.lr"
        )
    counted = [row for row in rows if not lost(row)]
    if stage != "rl" or not counted:
        return found

    def always(holds: Callable[[Row], bool]) -> bool:
        return all(map(holds, counted))

    if always(lambda row: row.get("by_group/frac_flat") == 1):
        still = always(lambda row: row.get("grad_norm") == 0)
        found["flat"] = (
            f"every group was flat in {len(counted)} of {steps} steps: "
            f"{'the model is as it was' if still else 'no reward taught anything'}; a prompt's "
            "rollouts all had the same reward (too hard, too easy, or never an answer)"
        )
    for kind, name, said in (
        ("empty", "response/empty", "every answer was empty"),
        ("cut", "response_length/clip_ratio", "every answer was cut by a token limit"),
        ("turns", "response/out_of_turns", "every episode stopped at the turn limit"),
    ):
        if always(lambda row, name=name: row.get(name) == 1):
            found[kind] = f"{said} in {len(counted)} of {steps} steps{_REMEDY[kind]}"
    return found


_REMEDY = {
    "empty": ": the model says nothing; look at what it was taught before",
    "cut": "; raise rl.max_new_tokens or rl.max_length",
    "turns": ": the model never says that it is done; raise rl.turns, or teach it to end",
}


# --- rows and metrics


def console_line(stage: str, step: int, total: int, metrics: Mapping[str, Any]) -> str:
    """`step 12/200 | reward  0.41 | ...`; a metric that was not measured shows as `-`."""
    count = f"{step:>{len(str(total))}}/{total}"
    cells = [f"{stage} {count}" if stage != "rl" else f"step {count}"]
    for column in COLUMNS.get(stage, ()):
        value = metrics.get(column.key)
        text = "-" if value is None else column.form.format(value)
        cells.append(f"{column.label} {text:>{column.width}}".strip())
    return " | ".join(cells)


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Rows of metrics.jsonl; a last line that a kill cut short is left out. Raises `LogError` for
    any other line that is no object."""
    path = folder / "metrics.jsonl"
    if not path.exists():
        return []
    whole = path.read_bytes().rpartition(b"\n")[0]
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(whole.splitlines(), 1):
        if not line.strip():
            continue
        row = _parsed(line)
        if row is None:
            raise LogError(f"{path} line {number}: no JSON object; remove the line or the file")
        rows.append(row)
    return rows


def _parsed(line: bytes) -> dict[str, Any] | None:
    """The object of a line; None for anything else."""
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", row) if isinstance(row, dict) else None


def rollout_metrics(
    scores_PG: Sequence[Sequence[Score]],
    lengths_PG: Sequence[Sequence[int]],
    cut_PG: Sequence[Sequence[bool]],
) -> dict[str, float]:
    """Names and means of one step's rollouts: P prompts with G answers each.

    Infrastructure failures (`outcome` None) are counted in `why/*` and kept out of all means.
    `frac_mixed` is the share of groups with both better and worse outcomes, `frac_flat` of those
    in which every reward is the same, so that they teach nothing.
    """
    scores = [s for group in scores_PG for s in group]
    valid = [s for s in scores if s.outcome is not None]
    parts = sorted({name for s in valid for name in s.parts})
    counts = [s.outcome is not None for s in scores]
    lengths = list(compress((n for group in lengths_PG for n in group), counts))
    cut = list(compress((c for group in cut_PG for c in group), counts))
    out = {
        "reward/mean": _mean([s.reward for s in valid]),
        "outcome/mean": _mean([s.outcome for s in valid]),
        "response_length/mean": _mean(lengths),
        "response_length/max": float(max(lengths, default=0)),
        "response_length/clip_ratio": _mean(cut),
        "by_group/frac_mixed": _mean([_varied(g, "outcome") for g in scores_PG]),
        "by_group/frac_flat": _mean([not _varied(g, "reward") for g in scores_PG]),
    }
    for name in parts:
        out[f"reward/{name}/mean"] = _mean([s.parts[name] for s in valid if name in s.parts])
    why = Counter(s.why for s in scores)
    for name in {"no_answer", *why}:
        out[f"why/{name}"] = why[name] / max(len(scores), 1)
    return out


def _varied(group: Sequence[Score], field: Literal["outcome", "reward"]) -> bool:
    values = {getattr(s, field) for s in group if s.outcome is not None}
    return len(values) > 1


def _mean(values: Sequence[float | bool | None]) -> float:
    numbers = [float(v) for v in values if v is not None]
    return sum(numbers) / len(numbers) if numbers else 0.0


def _finite(value: float) -> float | None:
    number = float(value)
    return number if abs(number) < float("inf") else None


def _last_step(data: bytes, stage: str) -> int:
    rows = (_parsed(line) or {} for line in data.splitlines())
    return max((int(row["step"]) for row in rows if row.get("stage") == stage), default=0)


def _keep_bytes(data: bytes, stage: str, step: int, path: Path) -> int:
    """Length of `data` up to the first row of `stage` after `step`, or the last whole line."""
    end = 0
    for number, line in enumerate(data.splitlines(keepends=True), 1):
        if not line.endswith(b"\n"):
            break
        row = _parsed(line)
        if row is None or not isinstance(row.get("step"), int):
            raise LogError(f"{path} line {number}: damaged; remove the line, and run this again")
        # evaluations belong to the stage they were made in
        if row.get("stage") in (stage, "eval") and row["step"] > step:
            break
        end += len(line)
    return end


# --- trackers beside metrics.jsonl: Weights & Biases, and event files for TensorBoard. Both get the
# same names. RL is the run: its names stay plain, those of other stages get a prefix (`sft/loss`,
# `eval/outcome`).

FOLDER = "tensorboard"  # of the event files, in the run's own
TABLE = ("step", "task_id", "sample", "outcome", "reward", "why", "stop", "prompt", "answer")
"""Of a table of rollouts; the parts of the reward follow, as `reward/<part>`."""


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
        self, folder: Path, mode: Literal["offline", "online"], project: str, config: Row
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

    def table(self, step: int, rollouts: Sequence[Row]) -> None:
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

    def restart(self, rows: Iterable[Row]) -> None:
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


def table_of(step: int, rollouts: Sequence[Row]) -> tuple[list[str], list[list[Any]]]:
    """(columns, rows) of a table of rollouts."""
    parts = sorted({name for row in rollouts for name in row.get("parts") or {}})
    rows: list[list[Any]] = []
    for row in rollouts:
        known = {"step": step, "prompt": _prompt(row), "answer": row.get("text")}
        mine = row.get("parts") or {}
        rows.append([known.get(c, row.get(c)) for c in TABLE] + [mine.get(name) for name in parts])
    return [*TABLE, *(f"reward/{name}" for name in parts)], rows


def _prompt(row: Row) -> str:
    """What the user said last before the model spoke."""
    said = ""
    for message in row.get("messages") or ():
        if message.get("role") == "assistant":
            break
        said = str(message.get("content")) if message.get("role") == "user" else said
    return said
