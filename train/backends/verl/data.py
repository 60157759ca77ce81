# verl, Ray and DeepSpeed ship partial types, so what is unknown there cannot be known here.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportMissingImports=false, reportMissingTypeStubs=false
"""Tasks as verl's parquet rows, in the order in which the embedded loop sees them; what verl logs
of their rewards."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from assay.console import ALL_TASKS, TaskFilter
from assay.files import atomic_write
from assay.rows import library
from assay.task import Task, TaskError, with_absolute_files
from configs.loader import dump
from configs.schema import GrpoConfig, GrpoRunConfig
from rollouts.environments import EnvironmentFactory, read_prompts
from rollouts.prompts import ChatTokenizer
from train.backends.verl.settings import LOOP, validates
from train.model.order import balanced_batch, fitting, strata
from train.run.data import VALIDATION, asked_for, read_some
from train.run.trained_on import marks_from, trained_before, write_trained

TARGET = "train.backends.verl.loop.AssayLoop"


def row_of(task: Task, index: int, split: str) -> dict[str, Any]:
    """One row. Everything of free form is JSON text: Arrow gives all rows one struct, and would
    fill keys that other rows have with None."""
    return {
        "data_source": f"{task.family}/{task.track}",
        "prompt": [{"role": m["role"], "content": m["content"]} for m in task.prompt],
        "ability": task.family,
        "reward_model": {
            "style": "rule",
            "ground_truth": json.dumps(task.to_json(), ensure_ascii=False),
        },
        "extra_info": {"index": index, "split": split, "task_id": task.id},
        "agent_name": LOOP,
    }


def training_order(tasks: Sequence[Task], config: GrpoConfig, seed: int) -> list[Task]:
    """Every prompt of every step, step after step, as `train.grpo` would take them."""
    groups = strata(tasks, config.balance)
    return [
        tasks[i]
        for step in range(config.steps)
        for i in balanced_batch(step, groups, config.prompts_per_step, seed)
    ]


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    """Raises `TaskError` when pyarrow is missing."""
    parquet = library("pyarrow.parquet", "--backend verl", "cluster")
    with atomic_write(path) as out:
        parquet.write_table(library().Table.from_pylist(rows), out)


def tokenizer_of(config: GrpoRunConfig) -> ChatTokenizer:
    """The model's, with the run's spelling of tool calls and arguments of the chat template."""
    folder = Path(str(config.model.path))
    return ChatTokenizer(folder, config.tools.calls, config.model.chat_template_kwargs)


def prepare(config: GrpoRunConfig, folder: Path) -> dict[str, int]:
    """Write train.parquet, val.parquet, loops.yaml, config.yaml and the record of what the model
    will have been trained on; returns counts of rows.

    Tasks whose prompt leaves no room for an answer are left out, as in the embedded loop. Raises
    `TaskError` for a tool that is not known or a file that is not there: inside a run verl would
    only log it and leave the whole group out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = tokenizer_of(config)
    tasks = list(
        fitting(_read(config, config.data, "data", asked_for(config)), tokenizer, config.rl)
    )
    ordered = training_order(tasks, config.rl, config.seed)
    held: list[Task] = []
    if validates(config):
        held = _read(config, str(config.validation), VALIDATION)[: config.eval.tasks or None]
    drawn = list({task.id: task for task in ordered}.values())
    before = trained_before(Path(str(config.model.path)))
    write_trained(folder, before.after("rl", config.data, marks_from(drawn, Path("/"))))
    rows = [row_of(task, i, "train") for i, task in enumerate(ordered)]
    write_parquet(folder / "train.parquet", rows)
    # verl asks for a validation file even when it never validates
    held_rows = [row_of(task, i, "val") for i, task in enumerate(held)] or rows[:1]
    write_parquet(folder / "val.parquet", held_rows)
    dump(config, folder / "config.yaml")
    loops = [{"name": LOOP, "_target_": TARGET, "run": str((folder / "config.yaml").resolve())}]
    (folder / "loops.yaml").write_text(yaml.safe_dump(loops), encoding="utf-8")
    return {"tasks": len(tasks), "train": len(rows), "val": len(held)}


def _read(config: GrpoRunConfig, path: str, key: str, asked: TaskFilter = ALL_TASKS) -> list[Task]:
    tasks, root = asked.select(read_some(path, key), path), Path(path).parent
    shop = EnvironmentFactory(root, env=config.env)
    tasks = read_prompts(config.prompts).asked(map(shop.equip, tasks))
    try:
        shop.check(tasks)
    except TaskError as error:
        raise TaskError(f"{path}: {error}") from None
    # absolute paths, since training and held-out tasks may lie in two folders
    tasks = [with_absolute_files(task, root) for task in tasks]
    for task in tasks:
        for name, file in task.files.items():
            if not Path(file).exists():
                raise TaskError(
                    f"{path}: task {task.id}: file {name}: {file} is not there; build the tasks "
                    "again or give the folder they were built in"
                )
    return tasks


def reward_metrics(infos: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Means over one step's rollouts, under the names of our own log."""
    values = defaultdict[str, list[float]](list)
    names = {"acc": "outcome/mean", "valid": "outcome/valid"}
    for info in infos:
        for name, value in info.items():
            part = name.removeprefix("part_")
            other = f"rollout/{name}/mean" if part == name else f"reward/{part}/mean"
            values[names.get(name, other)].append(value)
    return {name: sum(found) / len(found) for name, found in values.items()}
