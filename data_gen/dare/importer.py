# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
"""Official databases → tasks. A solver sees the question and the needed files, nothing else.

A training copy is checked against the published evaluation databases by content
(`data_gen/dare/sources.py`): what is one of them is left out, whatever its folder is called.

DSBench's data-modelling tasks become the same format, MM variants only. Layout read:
`data_resplit/<task>/{train,test,sample_submission}.csv`, the description in `task/<task>.txt`, the
answers in `answers/<task>/test_answer.csv` (as its release unpacks them; github.com/LiqiangJing/
DSBench, data_modeling/readme.md). The submission's first column is the key; its others are the
targets. A task that cannot be read so, or whose answers are free text, is listed in
`refused.jsonl` with the reason. What is scored is DARE-bench's metric for class and reg tasks.
DSBench's own number needs a script for each competition: `assay eval dare.dsbench=DIR`.
"""

from __future__ import annotations

import csv
import json
import os
import random
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from assay.console import progress
from assay.errors import pandas as pd
from assay.hub import local_place
from assay.task import Task, TaskError, derive_seed, write_jsonl
from data_gen.certificate import REFUSED, Input, Refusal, say_inputs
from data_gen.dare.layout import (
    KIND,
    LISTING,
    SIMULATED,
    VARIANTS,
    Absent,
    Entry,
    Frame,
    csv_bytes,
    domain_of_page,
    json_bytes,
    listed_entries,
    parts_in,
    read_entries,
    write_database,
    write_question_list,
)
from data_gen.dare.models import simulate
from data_gen.dare.sources import evaluation_database
from data_gen.dare.wording import mm_question
from data_gen.describe import spdx
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


def licence_of(entry: Entry, listed: str | None = None) -> str | None:
    """The licence of a database: what is `listed` for it, else what the source's own page said when
    it was crawled (`data_info`, `meta_data` of `all_metadata.json`), by its SPDX name."""
    if listed:
        return listed
    named = parts_in(entry.about.get("meta_data")).get("licenses")
    listed_ = cast("list[Any]", named) if isinstance(named, list) else []
    page = parts_in(entry.about.get("data_info")).get("licenseName")
    said = next((str(n) for n in (page, *(parts_in(one).get("name") for one in listed_)) if n), "")
    return spdx(said) if said and said.lower() not in _UNSAID else None


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
    bare: bool = False,
    meta: Mapping[str, Any] | None = None,
) -> Task:
    """A variant of a database; IF answers that are not there (`again`: all of them) are made. A
    `bare` one holds no gold but what it asks for: nothing is computed. Raises `TaskError` for a
    file that is missing or hidden."""
    base = os.path.relpath(entry.folder / "source", out)
    return Task(
        id=task_id(entry, variant),
        family="table",
        track=entry.task_type(variant),
        split=split,
        prompt=[{"role": "user", "content": str(entry.row[f"question_{variant}"])}],
        gold={"targets": [*entry.recipe["target"]]} if bare else _gold(entry, variant, again),
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
    if _is_made(entry, variant, again):
        text, made = simulate(entry)
        gold |= {"truth_csv": text, "key_columns": ["row_id"]}
        gold |= {"targets": list(entry.recipe["target"]), "made_with": made}
    else:
        read = read_gold({"task_dir": str(entry.folder), "variant": variant})
        gold |= {"truth_csv": read.truth_csv, "key_columns": list(read.key_columns)}
        gold |= {"targets": list(read.targets)}
        if read.made_with:
            gold["made_with"] = dict(read.made_with)
    return gold | ({"recipe": entry.solution} if kind.endswith("-IF") else {})


# --- a copy of the release: found where it lies, read as far as it is whole ---

RELEASE = "Snowflake/dare-bench"
FOLDERS = {"eval": {"eval", "test"}, "train": {"train", "training"}}
_DEEP = 4  # folders below a place in which its question list is looked for
INDEX = "index.jsonl"


@dataclass(frozen=True)
class Wanted:
    """What of a copy is imported: `split` is written into the tasks, `ids` bounds them (None: all),
    `again` makes all IF answers, `strict` refuses a copy that lacks parts, `bare` tasks have no
    gold and nothing is computed."""

    split: str = "eval"
    ids: Collection[str] | None = None
    again: bool = False
    strict: bool = False
    bare: bool = False


def find_copy(place: str, split: str) -> Path:
    """The folder with the question list of a split: of a checkout's root, of `data/eval`, of the
    list itself, of a folder as the hub lays it out, or of the hub's data set by name. Raises
    `TaskError` where there is none, or several that the split does not tell apart."""
    path = local_place(place, RELEASE)
    if path.is_file():
        if path.name != LISTING:
            raise TaskError(f"{path}: wanted {LISTING}, or a folder that holds it")
        return path.parent
    found = [top for top in _below(path, _DEEP) if (top / LISTING).is_file()]
    if len(found) > 1:
        found = [p for p in found if FOLDERS[split] & set(p.relative_to(path).parts)] or found
    if len(found) == 1:
        return found[0]
    if found:
        listed = ", ".join(str(p) for p in found)
        raise TaskError(f"{place}: {LISTING} lies in {listed}; name one of these folders")
    packed = [p.name for p in sorted(path.rglob("*.*")) if p.suffix in (".zip", ".tar", ".gz")]
    hint = f"; unpack {packed[0]} first" if packed else ""
    raise TaskError(
        f"{place}: no {LISTING} in it{hint}; give the release's checkout or data folder"
    )


def _below(folder: Path, deep: int) -> Iterator[Path]:
    """A folder and those in it, but for those of databases."""
    yield folder
    if deep and folder.name != "databases":
        for inner in sorted(p for p in folder.iterdir() if p.is_dir() and p.name != ".git"):
            yield from _below(inner, deep - 1)


def import_copy(place: str, out: Path, wanted: Wanted) -> list[Task]:
    """Write `out/tasks.jsonl` from a copy of the release (`out/index.jsonl` where tasks are bare),
    and `out/refused.jsonl` with a row for each database or variant that is left out. Raises
    `TaskError` where no task is left, or, where that is strict, a file is missing."""
    top = find_copy(place, wanted.split)
    usable, inputs = _usable(top, wanted)
    if wanted.strict and (short := [*inputs, *(one for _, _, one in usable if one.why)]):
        raise TaskError(f"{top}: {len(short)} of its databases lack files; {short[0].line()}")
    licences, tasks, made = read_licences(top), list[Task](), 0
    for entry, variants, one in progress(usable, "import", "databases"):
        train = wanted.split == "train"
        if train and not wanted.bare and (known := evaluation_database(entry)):
            inputs.append(Input(entry.name, 0, (Refusal("evaluation", known).coded(),)))
            continue
        licence = licence_of(entry, licences.get(entry.name))
        meta = {
            **({} if train else {"published": True}),
            "benchmark": "DARE-bench",
            "domain": entry.row.get("domain") or domain_of_page(entry),
            "licence": licence,
        }
        how: dict[str, Any] = {"again": wanted.again, "bare": wanted.bare, "meta": meta}
        tasks += [task_of(entry, v, out, wanted.split, **how) for v in variants]
        made += any(_is_made(entry, v, wanted.again) for v in variants)
        inputs.append(replace(one, licence=licence or "unknown"))
    say_inputs([one for one in inputs if one.why or not wanted.bare], out)
    if not tasks:
        raise TaskError(f"{top}: no task is left; reasons in {out / REFUSED}")
    path = out / (INDEX if wanted.bare else "tasks.jsonl")
    write_jsonl(path, (task.to_json() for task in tasks))
    counts = Counter(task.track for task in tasks)
    listed = ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items()))
    print(f"{path}: {len(tasks)} tasks ({listed})")
    if made and not wanted.bare:
        print(f"{made} IF answers were made here: the copy lacks them, or --simulate asks for it")
    return tasks


def _usable(top: Path, wanted: Wanted) -> tuple[list[tuple[Entry, list[str], Input]], list[Input]]:
    """(databases with the variants that can be used, and why others cannot; databases that cannot
    be used at all)."""
    usable: list[tuple[Entry, list[str], Input]] = []
    lost: list[Input] = []
    for entry in listed_entries(top):
        if isinstance(entry, Absent):
            lost.append(Input(entry.name, 0, (Refusal("missing_file", entry.why).coded(),)))
            continue
        ids = wanted.ids
        asked = [v for v in variants_of(entry) if ids is None or task_id(entry, v) in ids]
        lacks = {v: files for v in asked if (files := entry.missing(v, wanted.again))}
        why = tuple(
            Refusal("missing_file", f"{', '.join(files)} not there", entry.task_type(v)).coded()
            for v, files in lacks.items()
        )
        if whole := [v for v in asked if v not in lacks]:
            usable.append((entry, whole, Input(entry.name, len(whole), why)))
        elif asked:
            lost.append(Input(entry.name, 0, why))
    return usable, lost


def _is_made(entry: Entry, variant: str, again: bool) -> bool:
    """Whether an answer is of IF and has to be made here."""
    there = (entry.folder / "verify" / SIMULATED).is_file()
    return entry.task_type(variant).endswith("-IF") and (again or not there)


# --- DSBench

MOST_CLASSES = 20
MOST_LABELS = 200  # texts; more are written, not chosen among
_FILES = (  # training rows, rows to predict, the form of an answer, the answers
    *(f"data_resplit/{{}}/{name}.csv" for name in ("train", "test", "sample_submission")),
    "answers/{}/test_answer.csv",
)


def family_of(train: Frame, targets: list[str]) -> str:
    """`class` for labels, `reg` for numbers of many values."""
    for target in targets:
        values = train[target].dropna()
        whole = values.dtype.kind not in "f" or bool((values == values.round()).all())
        if not whole or (values.dtype.kind in "iuf" and values.nunique() > MOST_CLASSES):
            return "reg"
    return "class"


def convert(top: Path, name: str, out: Path) -> dict[str, Any]:
    """Write one database; returns its row of the question list. Raises `TaskError` for a task that
    lacks a file or cannot be scored."""
    paths = [top / place.format(name) for place in _FILES]
    if lost := [path for path in paths if not path.is_file()]:
        raise TaskError(f"{name}: {lost[0]} is not there; give DSBench's data_modeling/data folder")
    train, test, sample, answer = (pd.read_csv(path) for path in paths)
    key, *targets = [str(c) for c in sample.columns]
    lost = [t for t in targets if t not in train.columns or t not in answer.columns]
    if key not in test.columns or key not in answer.columns or lost or not targets:
        raise TaskError(
            f"{name}: key {key!r} or targets {targets} of the sample submission are not in "
            "train.csv, test.csv and test_answer.csv"
        )
    family = family_of(train, targets)
    for target in targets:
        if train[target].dtype.kind not in "biuf" and train[target].nunique() > MOST_LABELS:
            raise TaskError(
                f"{name}: the answers in {target!r} are free text, which a metric for classes "
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
    page, about = top / "task" / f"{name}.txt", {"question": recipe, "data_info": {"source": name}}
    text = page.read_text(encoding="utf-8", errors="replace") if page.is_file() else ""
    files = {
        "source/train_v2.csv": csv_bytes(train),
        "source/val_v2.csv": csv_bytes(test),
        "source/metadata.txt": text.encode(),
        "verify/ground_truth.csv": csv_bytes(truth),
        "verify/all_metadata.json": json_bytes(about),
    }
    write_database(out, database, files)
    rng = random.Random(derive_seed(0, database))
    return {
        "file_path": database,
        "task": KIND[family],
        "question_v1": "",
        "question_v2": mm_question(recipe, rng),
        "available_tools": ["python_executor"],
        "needed_files_v1": [],
        "needed_files_v2": ["train_v2.csv", "val_v2.csv", "metadata.txt"],
        "usability_rating": None,
        "lastUpdated": None,
    }


def import_dsbench(top: Path, out: Path) -> None:
    """All tasks of the folder → databases, question list and `tasks.jsonl` (split eval)."""
    names = sorted(p.name for p in (top / "data_resplit").glob("*") if p.is_dir())
    if not names:
        raise TaskError(f"{top}: no data_resplit/<task> folders; give data_modeling/data")
    out.mkdir(parents=True, exist_ok=True)
    rows, inputs = list[dict[str, Any]](), list[Input]()
    for name in progress(names, "import", "tasks"):
        try:
            rows.append(convert(top, name, out))
            inputs.append(Input(name, 1))
        except ValueError as error:  # of pandas too: no table, a key that occurs twice
            why = str(error) if isinstance(error, TaskError) else f"{name}: {error}"
            inputs.append(Input(name, 0, (why,)))
    say_inputs(inputs, out)
    if not rows:
        raise TaskError(inputs[0].why[0])
    write_question_list(out, rows)
    tasks = list[Task]()
    for entry in read_entries(out):
        own = {name: entry.recipe[name] for name in ("competition", "key")}
        meta = {"published": True, "benchmark": "DSBench", **own}
        tasks += [task_of(entry, v, out, "eval", meta=meta) for v in variants_of(entry)]
    write_jsonl(out / "tasks.jsonl", (task.to_json() for task in tasks))
    print(f"{out / 'tasks.jsonl'}: {len(tasks)} tasks")
