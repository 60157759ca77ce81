# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportMissingTypeStubs=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""What a run works on: reading its tasks, and auditing them before it learns from their reward.
Rows of texts to imitate are train/examples.py's."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from assay.console import ALL_TASKS, TaskFilter
from assay.family import require_families
from assay.task import Task, TaskError, read_tasks, with_absolute_files
from configs.loader import ConfigError
from configs.schema import GrpoRunConfig, SftRunConfig
from rewards.audit import SampleReport, audit_sample
from rewards.published import refuse_published
from rollouts.prompts import ChatTokenizer
from rollouts.words.templates import Prompts
from train.model.source import resolve_model
from train.run.record import note_in_record

Config = TypeVar("Config", SftRunConfig, GrpoRunConfig)
AUTO, VALIDATION = "auto", "validation"
FEW = 32  # tasks of a validation file that nobody named


def read_some(path: str, key: str) -> list[Task]:
    """The tasks of a JSONL file. Raises `ConfigError` naming `key` when there is no such file."""
    require_file(path, key, "a tasks.jsonl file, as `assay tasks` writes")
    tasks = read_tasks(path)
    if not tasks:
        raise TaskError(f"{path}: no tasks in it; build some with `assay tasks`")
    return tasks


def require_file(path: str, key: str, wanted: str) -> None:
    """Raise `ConfigError` unless `path` is a file."""
    if not path:
        raise ConfigError(f"{key} is empty; give {wanted}")
    if not Path(path).is_file():
        raise ConfigError(f"{key}={path}: no such file; give {wanted}")


def asked_for(config: SftRunConfig | GrpoRunConfig) -> TaskFilter:
    """Which rows of its data a run learns from."""
    return TaskFilter(config.tracks, config.licences)


def training_tasks(path: str, key: str = "data", asked: TaskFilter = ALL_TASKS) -> list[Task]:
    """Tasks to learn from that are `asked` for, of known families. Published ones are refused."""
    tasks = asked.select(read_some(path, key), path)
    require_families(tasks)
    refuse_published(tasks, path)
    return tasks


def with_validation(config: Config) -> tuple[Config, str]:
    """`config` with `validation=auto` decided, and the sentence to print: `validation.jsonl` beside
    the data, where it is there."""
    if config.validation != AUTO:
        return config, ""
    beside = Path(config.data).parent / f"{VALIDATION}.jsonl"
    if not config.data or not beside.is_file() or not beside.stat().st_size:
        return replace(config, validation=None), ""
    most = config.eval.tasks or FEW
    said = f"validation: {beside}, {most} tasks at most (validation=null: none, eval.tasks=N: more)"
    eval_ = replace(config.eval, tasks=most)
    return replace(config, validation=str(beside), eval=eval_), said


def with_folder(config: Config) -> Config:
    """With the model's folder in place of a hub name: the other processes look for nothing."""
    folder = str(resolve_model(config.model.path))
    return replace(config, model=replace(config.model, path=folder))


def inputs_of(
    config: SftRunConfig | GrpoRunConfig, model: Path, tokenizer: ChatTokenizer, prompts: Prompts
) -> dict[str, Path | str]:
    """What a run works on, for its record: paths, and texts that stand for what they are of."""
    found: dict[str, Path | str] = {
        "data": Path(config.data),
        "model": model,
        "tokenizer": tokenizer.fingerprint,
        **prompts.inputs(),
    }
    return found | ({"validation": Path(config.validation)} if config.validation else {})


def validation_tasks(config: SftRunConfig | GrpoRunConfig) -> list[Task]:
    """The tasks to evaluate on while training, as many as `eval.tasks` says."""
    if not config.validation:
        return []
    return training_tasks(config.validation, VALIDATION)[: config.eval.tasks or None]


# --- rl.audit

AUDIT = "audit"  # in run.json


def audit_tasks(
    mode: Literal["refuse", "warn", "off"],
    tasks: Sequence[Task],
    root: Path,
    seed: int,
    weights: Mapping[str, Any],
    out: Path,
) -> None:
    """Audit a sample of every family in `tasks` under the run's own reward settings `weights`
    (`rewards.audit`), print one line, and note what was found in run.json of `out`: gold has
    to score 1, and nothing without the work may earn more than its floor.

    `root` is the folder that the tasks' files are named from. A run that has begun, which has
    checkpoints, is not audited again. Raises `TaskError` in one sentence for a fault under
    `refuse`, after it was noted.
    """
    if any(out.glob("checkpoints/*/step_*")) or any(out.glob("global_step_*")):  # by verl
        return
    if mode == "off":
        note_in_record(out, **{AUDIT: {"mode": mode}})
        return
    began = time.perf_counter()
    found = audit_sample([with_absolute_files(t, root) for t in tasks], seed, weights=weights)
    seconds = time.perf_counter() - began
    note_in_record(out, **{AUDIT: _audit_record(mode, found, seconds)})
    print(audit_line(found, seconds), flush=True)
    if found.ok:
        return
    if mode == "refuse":
        raise TaskError(f"{found.refusal} (rl.audit=warn trains all the same)")
    print(f"warning: {found.refusal}", flush=True)


def _audit_record(mode: str, found: SampleReport, seconds: float) -> dict[str, Any]:
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


def audit_line(found: SampleReport, seconds: float) -> str:
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
