"""Gold of IF tasks: the reference solution run in the sandbox, with the versions it ran under."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.task import TaskError
from data_gen.dare.layout import Entry
from rollouts.sandbox.model import Limits, SandboxError
from rollouts.sandbox.pool import Pool

CODE = Path(__file__).with_name("reference_solution.py")


@dataclass(frozen=True)
class Ran:
    """What a job gave: an answer a run (CSV text, or {"error": …}), the versions it ran under, and
    what the first run learnt before its model (`reference_solution.learnt`)."""

    answers: list[str | dict[str, str]]
    versions: dict[str, str]
    fitted: dict[str, Any]


async def run_jobs(
    pool: Pool, files: Mapping[str, bytes], job: Mapping[str, Any], seconds: float = 200.0
) -> Ran:
    """Run a job in the sandbox. Raises `TaskError` when the call itself fails, and `SandboxError`
    when the sandbox does: that says nothing of the job."""
    inputs = {**files, "job.json": json.dumps(job).encode()}
    limits = Limits(wall_s=seconds, file_mb=400, work_mb=2048)
    result = await pool.run(CODE.read_text(encoding="utf-8"), inputs, ["answers.json"], limits, 0)
    if result.status == "sandbox_error":
        raise SandboxError(result.why)
    if result.status != "ok" or "answers.json" not in result.files:
        last = result.stderr.strip().rpartition("\n")[2]
        raise TaskError(f"the reference did not run: {result.status}, {result.why}; {last}"[:400])
    found = json.loads(result.files["answers.json"])
    return Ran(found["answers"], found["versions"], found["fitted"])


async def simulate(pool: Pool, entry: Entry) -> tuple[str, dict[str, str]]:
    """The IF answer of an official database, from its clean training file (the harness's
    `force_simulate`), and the versions it was made with."""
    kind = str(entry.recipe["save_file_type"])
    names = (f"train_v1_no_err.{kind}", f"val_v1.{kind}")
    files = {name: (entry.folder / "source" / name).read_bytes() for name in names}
    job = {"recipe": recipe_of(entry.recipe), "test": names[1], "runs": [{"train": names[0]}]}
    ran = await run_jobs(pool, files, job)
    (answer,) = ran.answers
    if not isinstance(answer, str):
        raise TaskError(f"{entry.name}: the reference failed: {answer['error']}")
    return answer, ran.versions


_RECIPE = (
    "selected_features",
    "column_type_inference",
    "target",
    "imputer_type",
    "model_type",
    "random_state",
    "problem_type",
    "save_file_type",
    "expected_ranges",
    "stated",
    "not_filtered_related_features",
    "numerical_features",
    "categorical_features",
)


def recipe_of(question: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that decide the answer."""
    return {name: question[name] for name in _RECIPE if name in question}
