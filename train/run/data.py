# Rows here are parsed JSON, whose types are only known when they are looked at.
# pyright: reportMissingTypeStubs=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
"""What a run works on: reading its tasks, or rows of texts to imitate, and auditing tasks before it
learns from their reward."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from assay.console import ALL_TASKS, TaskFilter
from assay.family import require_families
from assay.rows import is_parquet, read_rows
from assay.task import Task, TaskError, read_tasks, with_absolute_files
from configs.loader import ConfigError
from configs.schema import GrpoRunConfig, SftRunConfig
from rewards.audit import SampleReport, audit_sample
from rewards.published import published_database, refuse_published
from rollouts.chats import FIELDS, ROLES, without_nulls
from rollouts.prompts import ChatTokenizer
from rollouts.words.templates import Prompts
from train.model.source import resolve_model
from train.run.record import note_in_record

Row = Mapping[str, Any]
Config = TypeVar("Config", SftRunConfig, GrpoRunConfig)
AUTO, VALIDATION = "auto", "validation"
_NAME = 200  # characters of a name
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


def training_rows(
    path: str, asked: TaskFilter = ALL_TASKS, prompts: str = ""
) -> list[tuple[str, Row]]:
    """(where it stands, row) of a file of texts to imitate that are `asked` for; tasks among them
    are asked in the words of `prompts`.

    Raises `ConfigError` when there is no such file and `TaskError` when it cannot be read, is
    empty, or holds what must not be trained on.
    """
    require_file(path, "data", "tasks (JSONL), chats, or what `assay select` wrote")
    rows = [(where, _plain(row) if is_parquet(path) else row) for where, row in read_rows(path)]
    if not rows:
        raise TaskError(f"{path}: no rows in it")
    rows = [(where, row) for where, row in rows if not asked or asked.accepts_row(row)]
    if not rows:
        raise TaskError(f"{path}: no row is left by {asked.options()}")
    for where, row in rows:
        if row.get("published"):
            raise TaskError(
                f"{where}: a rollout of a published benchmark task; train on generated ones"
            )
        users, tools = _asked_and_told(row)
        if name := published_database(users, tools, (v for v in row.values() if _short(v))):
            raise TaskError(
                f"{where}: the chat is about {name}, a published evaluation database; leave the "
                "row out"
            )
    return _in_words(rows, prompts) if prompts else rows


def _in_words(rows: list[tuple[str, Row]], prompts: str) -> list[tuple[str, Row]]:
    from rollouts.environments import read_prompts  # imports much: only where it is needed

    words = read_prompts(prompts)
    tasks = {
        where: Task.from_json(row, where)
        for where, row in rows
        if "gold" in row and "prompt" in row
    }
    asked = dict(zip(tasks, words.asked(tasks.values()), strict=True))
    return [
        (where, {**row, **asked[where].to_json()} if asked.get(where) != tasks.get(where) else row)
        for where, row in rows
    ]


def _asked_and_told(row: Row) -> tuple[list[str], list[str]]:
    """(what users say in a row's chat, what tools say)."""
    asked: list[str] = []
    told: list[str] = []
    for name in FIELDS:
        listed = row.get(name)
        for message in listed if isinstance(listed, list | tuple) else ():
            if isinstance(message, Mapping):
                role = ROLES.get(str(message.get("role", message.get("from"))))
                if role in ("user", "tool"):
                    (asked if role == "user" else told).extend(_texts(message))
    return asked, told


def _short(value: Any) -> bool:
    return isinstance(value, str) and len(value) < _NAME


def _texts(messages: Any) -> Iterator[str]:
    """The texts of a message, also those in parts."""
    if isinstance(messages, str):
        yield messages
    elif isinstance(messages, Mapping):
        for value in messages.values():
            yield from _texts(value)
    elif isinstance(messages, list | tuple):
        for value in messages:
            yield from _texts(value)


def _plain(row: Row) -> Row:
    """A row of a parquet file, whose messages and tools have no members that are null."""
    return {**row, **{k: without_nulls(row[k]) for k in (*FIELDS, "tools") if row.get(k)}}


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
