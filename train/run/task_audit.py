"""`rl.audit`: what a run asks of its own tasks before it learns from their reward.

A sample of every family in the mix is audited under the run's own reward settings
(`rewards.audit.report`): gold has to score 1, and nothing without the work may earn more than its
floor.
A fault refuses the run, or is a warning; what was found stands in run.json under `audit`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from assay.task import Task, TaskError, with_absolute_files
from rewards.audit.report import SampleReport, audit_sample
from train.run.record import note_in_record

Mode = Literal["refuse", "warn", "off"]
KEY = "audit"  # in run.json


def audit_tasks(
    mode: Mode,
    tasks: Sequence[Task],
    root: Path,
    seed: int,
    weights: Mapping[str, Any],
    out: Path,
) -> None:
    """Audit a sample of `tasks`, print one line, and note what was found in `out`.

    `root` is the folder that the tasks' files are named from. A run that has begun, which has
    checkpoints, is not audited again. Raises `TaskError` in one sentence for a fault under
    `refuse`, after it was noted.
    """
    if begun(out):
        return
    if mode == "off":
        note_in_record(out, **{KEY: {"mode": mode}})
        return
    began = time.perf_counter()
    found = audit_sample([with_absolute_files(t, root) for t in tasks], seed, weights=weights)
    seconds = time.perf_counter() - began
    note_in_record(out, **{KEY: noted(mode, found, seconds)})
    print(line(found, seconds), flush=True)
    if found.ok:
        return
    if mode == "refuse":
        raise TaskError(f"{found.refusal} (rl.audit=warn trains all the same)")
    print(f"warning: {found.refusal}", flush=True)


def begun(out: Path) -> bool:
    """Whether a run in this folder has learned something: here, or by verl."""
    return any(out.glob("checkpoints/*/step_*")) or any(out.glob("global_step_*"))


def noted(mode: Mode, found: SampleReport, seconds: float) -> dict[str, Any]:
    """What run.json says of an audit."""
    return {
        "mode": mode,
        "seconds": round(seconds, 2),
        "tasks": found.tasks,
        "broken": [
            {"family": name, "law": b.law, "where": b.where, "why": b.why}
            for name, b in found.broken
        ],
        "refusal": found.refusal,
        "best": found.best,
        "cut": list(found.cut),
    }


def line(found: SampleReport, seconds: float) -> str:
    """What was looked at, what the best answer without the work earns, and how long it took."""
    looked = ", ".join(f"{count} of {name}" for name, count in found.tasks.items())
    said = f"audit of tasks ({looked}): "
    said += f"{len(found.broken)} laws broken" if found.broken else "every law holds"
    if found.best:
        name, best = max(found.best.items(), key=lambda pair: pair[1]["reward"])
        said += (
            f"; best without the work: {best['policy']} ({name} {best['kind']}) earns "
            f"{best['reward']:.2f}, floor {best['floor']['reward']:g}"
        )
    if found.cut:
        said += f"; not looked at in whole, too slow: {', '.join(found.cut)}"
    return f"{said}; {seconds:.1f} s"
