"""DSBench's data-modelling tasks in the official format, MM variants only.

Layout read: `data_resplit/<task>/{train,test,sample_submission}.csv`, the description in
`task/<task>.txt`, the answers in `answers/<task>/test_answer.csv` (as its release unpacks them;
github.com/LiqiangJing/DSBench, data_modeling/readme.md). The submission's first column is the key;
its others are the targets. A task that cannot be read so, or whose answers are free text, is
listed in `refused.jsonl` with the reason.

What is scored is DARE-bench's metric for class and reg tasks. DSBench's own number, the share of
the way from its baseline's metric to the best one (`data_modeling/show_results.py`), needs a
script for each competition: `assay eval dare.dsbench=DIR` runs those of the user's copy.
"""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay.console import progress
from assay.seeds import derive_seed
from assay.task import TaskError, write_jsonl
from data_gen.dare.importer import task_of, variants_of
from data_gen.dare.layout import (
    KIND,
    Frame,
    csv_bytes,
    json_bytes,
    read_entries,
    write_database,
    write_question_list,
)
from data_gen.dare.wording import mm_question
from data_gen.tally import Input, say_inputs

MOST_CLASSES = 20
MOST_LABELS = 200  # texts; more are written, not chosen among


def read_task(top: Path, name: str) -> dict[str, Any]:
    """Tables and text of one task. Raises `TaskError` naming the file that is not there."""
    import pandas as pd

    home = top / "data_resplit" / name
    paths = {
        "train": home / "train.csv",
        "test": home / "test.csv",
        "sample": home / "sample_submission.csv",
        "answer": top / "answers" / name / "test_answer.csv",
    }
    found: dict[str, Any] = {"text": ""}
    for part, path in paths.items():
        if not path.is_file():
            raise TaskError(
                f"{name}: {path} is not there; give DSBench's data_modeling/data folder"
            )
        found[part] = pd.read_csv(path)
    text = top / "task" / f"{name}.txt"
    if text.is_file():
        found["text"] = text.read_text(encoding="utf-8", errors="replace")
    return found


def family_of(train: Frame, targets: list[str]) -> str:
    """`class` for labels, `reg` for numbers of many values."""
    for target in targets:
        values = train[target].dropna()
        whole = values.dtype.kind not in "f" or bool((values == values.round()).all())
        if not whole or (values.dtype.kind in "iuf" and values.nunique() > MOST_CLASSES):
            return "reg"
    return "class"


def free_text(train: Frame, target: str) -> bool:
    """Whether a target's values are texts that are written and not labels to choose among."""
    values = train[target].dropna()
    return values.dtype.kind not in "biuf" and values.nunique() > MOST_LABELS


def convert(top: Path, name: str, out: Path) -> dict[str, Any]:
    """Write one database; returns its row of the question list."""
    parts = read_task(top, name)
    key, *targets = [str(c) for c in parts["sample"].columns]
    answer, test, train = parts["answer"], parts["test"], parts["train"]
    lost = [t for t in targets if t not in train.columns or t not in answer.columns]
    if key not in test.columns or key not in answer.columns or lost or not targets:
        raise TaskError(
            f"{name}: key {key!r} or targets {targets} of the sample submission are not in "
            "train.csv, test.csv and test_answer.csv"
        )
    family = family_of(train, targets)
    if written := [t for t in targets if free_text(train, t)]:
        raise TaskError(
            f"{name}: the answers in {written[0]!r} are free text, which a metric for classes "
            "cannot score"
        )
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    database = f"dsbench_{slug}_{family}"
    test = test.drop(columns=[t for t in targets if t in test.columns])
    truth = test[[key]].merge(answer[[key, *targets]], on=key, how="left", validate="one_to_one")
    if truth[targets].isna().any().any():
        raise TaskError(f"{name}: test_answer.csv lacks answers for some rows of test.csv")
    number = range(1, len(test) + 1)
    test.insert(0, "row_id", number)
    truth = truth[targets].copy()
    truth.insert(0, "row_id", number)
    recipe: dict[str, Any] = {
        "target": targets,
        "problem_type": KIND[family],
        "save_file_type": "csv",
        "competition": name,
        "key": key,
    }
    files = ["train_v2.csv", "val_v2.csv", "metadata.txt"]
    write_database(
        out,
        database,
        {
            "source/train_v2.csv": csv_bytes(train),
            "source/val_v2.csv": csv_bytes(test),
            "source/metadata.txt": parts["text"].encode(),
            "verify/ground_truth.csv": csv_bytes(truth),
            "verify/all_metadata.json": json_bytes(
                {"question": recipe, "data_info": {"source": name}}
            ),
        },
    )
    rng = random.Random(derive_seed(0, database))
    return {
        "file_path": database,
        "task": KIND[family],
        "question_v1": "",
        "question_v2": mm_question(recipe, rng),
        "available_tools": ["python_executor"],
        "needed_files_v1": [],
        "needed_files_v2": files,
        "usability_rating": None,
        "lastUpdated": None,
    }


def converted(
    top: Path, names: Sequence[str], out: Path
) -> tuple[list[dict[str, Any]], list[Input]]:
    """Rows of the question list, and what became of every task."""
    rows: list[dict[str, Any]] = []
    inputs: list[Input] = []
    for name in progress(names, "import", "tasks"):
        try:
            rows.append(convert(top, name, out))
            inputs.append(Input(name, 1))
        except (
            ValueError
        ) as error:  # of pandas too: a file that is no table, a key that occurs twice
            why = str(error) if isinstance(error, TaskError) else f"{name}: {error}"
            inputs.append(Input(name, 0, (why,)))
    return rows, inputs


def import_dsbench(top: Path, out: Path) -> None:
    """All tasks of the folder → databases, question list and `tasks.jsonl` (split eval)."""
    names = sorted(p.name for p in (top / "data_resplit").glob("*") if p.is_dir())
    if not names:
        raise TaskError(f"{top}: no data_resplit/<task> folders; give data_modeling/data")
    out.mkdir(parents=True, exist_ok=True)
    rows, inputs = converted(top, names, out)
    say_inputs(inputs, out)
    if not rows:
        raise TaskError(inputs[0].why[0])
    write_question_list(out, rows)
    about = {"published": True, "benchmark": "DSBench"}
    tasks = [
        task_of(
            entry,
            variant,
            out,
            "eval",
            meta={**about, **{name: entry.recipe[name] for name in ("competition", "key")}},
        )
        for entry in read_entries(out)
        for variant in variants_of(entry)
    ]
    write_jsonl(out / "tasks.jsonl", (task.to_json() for task in tasks))
    print(f"{out / 'tasks.jsonl'}: {len(tasks)} tasks")
