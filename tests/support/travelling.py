"""Tasks and answers for tests of what travels: exports, adapters, Harbor directories."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from typing import Any

from demo_splits import demo_splits
from places import ROOT

from assay.family import use_families
from assay.task import Task, write_jsonl
from data_gen.corpora import read_corpus
from data_gen.demo.settings import preset
from data_gen.exports.cli import main as export
from rewards.adapters import said_gold

OWN = str(ROOT / "examples" / "own_family.py")
OWN_TOOLS = str(ROOT / "examples" / "own_tools.py")
FIGS = {"sql": "SELECT boxes FROM stock WHERE fruit = 'fig'"}  # the call of `query` that finds gold


def demo_tasks(count: int) -> list[Task]:
    """Refinement tasks over the corpus that ships."""
    return [*_demo(count)]


@cache
def _demo(count: int) -> tuple[Task, ...]:
    settings = preset("easy", train_sft=1, train_rl=1, heldout=count)
    return tuple(demo_splits(read_corpus(), settings, 3)[2])


def own_tasks(count: int) -> list[Task]:
    """Tasks of the example of an own family."""
    return _built(OWN, count)


def tool_tasks(count: int) -> list[Task]:
    """Tasks of the example of tools of one's own: `query` with `FIGS` finds gold."""
    return _built(OWN_TOOLS, count)


def _built(path: str, count: int) -> list[Task]:
    (family,) = use_families([path])
    assert family.build is not None
    made = family.build(0, count=count)
    return [task for tasks in made.values() for task in tasks]


def tasks_file(folder: Path, tasks: list[Task]) -> Path:
    path = folder / "tasks.jsonl"
    write_jsonl(path, (task.to_json() for task in tasks))
    return path


def exported(form: str, folder: Path, tasks: list[Task], *words: str) -> Path:
    """The folder that `assay export FORM` makes of the tasks."""
    out = folder / form
    path = tasks_file(folder, tasks)
    assert export([form, "--tasks", str(path), "--out", str(out), *words]) == 0
    return out


def adapter(folder: Path, name: str) -> Any:
    """An exported file as a module."""
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def texts(task: Task, other: Task) -> list[str]:
    """Answers of every kind to a task: right, nearly right, another's, broken, none."""
    gold = said_gold(task)
    return [
        gold,
        "",
        f"Sure! {gold}",
        gold[: len(gold) // 2],
        gold.replace("KEEP", "DROP"),
        gold.replace(" ", "  "),
        said_gold(other),
        task.prompt[-1]["content"],
        '{"answer": NaN}',
        "[" * 3000,
        "\x00\ufffd é 0x1F</clean_text>",
        gold * 3,
        "9" * 5000,
    ]
