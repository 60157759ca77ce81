"""Whether a stage of a run learned: what its log says of that, while it runs and at its end.

Pure functions of the rows of metrics.jsonl. The log says what they find, the end of the run prints
it, and the report lists it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from assay.task import MachineError

Row = Mapping[str, Any]

LOST = 5  # steps in a row without a number, after which none will come
FIRST = 3  # steps of RL after which it is said while the run goes on


class Diverged(MachineError):
    """The loss or the gradient is no number: there is no model to save. Exit status 1."""


def lost(row: Row) -> bool:
    """Whether a step's loss or gradient was no number (null in a file), or all logits of its
    rollouts: it taught nothing."""
    values = [row[name] for name in ("loss", "grad_norm") if name in row]
    broken = any(value is None or not math.isfinite(value) for value in values)
    return broken or row.get("response/nan") == 1


def ran_away(stage: str, step: int) -> Diverged:
    """The error of a stage that has met `LOST` such steps in a row."""
    return Diverged(
        f"{stage}: the loss, the gradient or the logits of the last {LOST} steps up to step {step} "
        f"are no numbers (NaN or infinite): no model was written; lower {stage}.lr, or begin from "
        "other weights"
    )


def require_learned(rows: Sequence[Row], stage: str) -> None:
    """Raise `Diverged` where every step of a finished stage was skipped."""
    if rows and all(map(lost, rows)):
        raise Diverged(
            f"{stage}: the loss, the gradient or the logits of all {len(rows)} steps are no "
            "numbers (NaN or infinite): nothing was learned and no model was written; lower "
            f"{stage}.lr, or begin from other weights"
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
