"""Official databases → tasks. A solver sees the question and the needed files, nothing else."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from assay.task import Task, TaskError
from data_gen.dare.layout import SIMULATED, VARIANTS, Entry
from data_gen.dare.reference_solution import recipe_of, simulate
from data_gen.licences import spdx
from rewards.dare.score import read_gold

TOOL = "python_executor"


_UNSAID = ("unknown", "other", "other (specified in description)")


def read_licences(top: Path) -> dict[str, str]:
    """Database → its licence by SPDX name: what `licences.csv` beside the question list says, where
    a person looked, else the release's own lists (`LICENSE/kaggle_license_*.csv` of its
    checkout)."""
    found: dict[str, str] = {}
    for home in (top, *list(top.resolve().parents)[:2]):
        for path in sorted((home / "LICENSE").glob("kaggle_license_*.csv")):
            rows = _csv_rows(path)
            found |= {r["folder_name"]: spdx(r["license_name"]) for r in rows if r["license_name"]}
    return found | {r["database"]: r["spdx"] for r in _csv_rows(top / "licences.csv") if r["spdx"]}


def _csv_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file; none where there is no such file."""
    if not path.is_file():
        return []
    with open(path, encoding="utf-8", newline="") as lines:
        return [dict(row) for row in csv.DictReader(lines)]


def licence_of(folder: Path, listed: str | None = None) -> str | None:
    """The licence of a database: what is `listed` for it, else what the source's own page said when
    it was crawled (`data_info`, `meta_data` of `all_metadata.json`), by its SPDX name."""
    if listed:
        return listed
    about = _parts(json.loads((folder / "verify" / "all_metadata.json").read_text("utf-8")))
    page, listed = _parts(about.get("data_info")), _parts(about.get("meta_data")).get("licenses")
    named = [_parts(one).get("name") for one in _list(listed)]
    said = next((str(name) for name in (page.get("licenseName"), *named) if name), "")
    return spdx(said) if said and said.lower() not in _UNSAID else None


def _parts(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def variants_of(entry: Entry) -> list[str]:
    """The variants that a database asks."""
    return [v for v in VARIANTS if entry.row.get(f"question_{v}")]


def task_id(entry: Entry, variant: str) -> str:
    return f"{entry.name}:{entry.task_type(variant).partition('-')[2]}"


def task_of(
    entry: Entry,
    variant: str,
    out: Path,
    split: str,
    *,
    again: bool = False,
    meta: Mapping[str, Any] | None = None,
) -> Task:
    """A variant of a database; IF answers that are not there (`again`: all of them) are made.
    Raises `TaskError` for a file that is missing or hidden."""
    gold = _gold(entry, variant, again)
    return replace(bare_task(entry, variant, out, split, meta=meta), gold=gold)


def bare_task(
    entry: Entry, variant: str, out: Path, split: str, *, meta: Mapping[str, Any] | None = None
) -> Task:
    """The same without its gold but for what it asks: nothing is computed."""
    base = os.path.relpath(entry.folder / "source", out)
    return Task(
        id=task_id(entry, variant),
        family="table",
        track=entry.task_type(variant),
        split=split,
        prompt=[{"role": "user", "content": str(entry.row[f"question_{variant}"])}],
        gold={"targets": list(entry.recipe["target"])},
        tools=(TOOL,),
        files={name: f"{base}/{name}" for name in entry.needed(variant)},
        meta={"database": entry.name, "variant": variant, **(meta or {})},
    )


def remade(tasks: Sequence[Task], root: Path, out: Path) -> list[Task]:
    """The tasks with IF answers made again, here, from their databases' clean training files
    (`root` is what their files are relative to, `out` what the new ones' will be)."""
    found: list[Task] = []
    for task in tasks:
        files = {n: os.path.relpath(root / path, out) for n, path in task.files.items()}
        gold = task.gold
        if task.family == "table" and task.track.endswith("-IF"):
            entry = _database_of(task, root)
            text, made = simulate(entry)
            gold = {**gold, "truth_csv": text, "made_with": made}
        found.append(replace(task, files=files, gold=gold))
    return found


def _database_of(task: Task, root: Path) -> Entry:
    """The database that an IF task's files lie in."""
    folder = (root / next(iter(task.files.values()), "")).parent.parent
    about = folder / "verify" / "all_metadata.json"
    try:
        return Entry(folder, {}, json.loads(about.read_text(encoding="utf-8"))["question"])
    except (OSError, ValueError, KeyError) as error:
        raise TaskError(
            f"task {task.id}: {about}: {error}; an answer is made again beside its database"
        ) from None


def _gold(entry: Entry, variant: str, again: bool) -> dict[str, Any]:
    kind = entry.task_type(variant)
    gold: dict[str, Any] = {"task_type": kind}
    if kind.endswith("-IF") and (again or not (entry.folder / "verify" / SIMULATED).is_file()):
        text, made = simulate(entry)
        gold |= {"truth_csv": text, "key_columns": ["row_id"]}
        gold |= {"targets": list(entry.recipe["target"]), "made_with": made}
    else:
        read = read_gold({"task_dir": str(entry.folder), "variant": variant})
        gold |= {"truth_csv": read.truth_csv, "key_columns": list(read.key_columns)}
        gold |= {"targets": list(read.targets)}
        if read.made_with:
            gold["made_with"] = dict(read.made_with)
    return gold | ({"recipe": recipe_of(entry.recipe)} if kind.endswith("-IF") else {})
