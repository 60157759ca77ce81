"""Reading the tasks a run works on."""

from __future__ import annotations

from pathlib import Path

from configs.loader import ConfigError
from rewards.task import Task, TaskError, read_tasks, refuse_published


def read_some(path: str, key: str) -> list[Task]:
    if not path:
        raise ConfigError(f"{key} is empty; give a tasks.jsonl file, as `assay tasks` writes")
    if not Path(path).is_file():
        raise ConfigError(f"{key}={path}: no such file; give a tasks.jsonl file")
    tasks = read_tasks(path)
    if not tasks:
        raise TaskError(f"{path}: no tasks in it; build some with `assay tasks`")
    return tasks


def training_tasks(path: str) -> list[Task]:
    """Tasks to learn from; traces (parquet) bring their own texts. Published tasks are refused."""
    if path.endswith(".parquet"):
        return []
    tasks = read_some(path, "data")
    refuse_published(tasks, path)
    return tasks
