"""Official databases → tasks. A solver sees the question and the needed files, nothing else.

A training copy is checked against the published evaluation databases by content
(`data_gen/dare/published.py`): what is one of them is left out, whatever its folder is called.
"""

from __future__ import annotations

import csv
import json
import os
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from assay.console import progress
from assay.hub import local_place
from assay.task import Task, TaskError, write_jsonl
from data_gen.dare.domains import domain_of_page
from data_gen.dare.layout import LISTING, SIMULATED, VARIANTS, Absent, Entry, listed_entries
from data_gen.dare.published import evaluation_database
from data_gen.dare.reference_solution import recipe_of, simulate
from data_gen.licences import spdx
from data_gen.tally import REFUSED, SHOWN, Input, Refusal
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


# --- a copy of the release: found where it lies, read as far as it is whole ---

RELEASE = "Snowflake/dare-bench"
FOLDERS = {"eval": {"eval", "test"}, "train": {"train", "training"}}
_DEEP = 4  # folders below a place in which its question list is looked for
INDEX = "index.jsonl"


@dataclass(frozen=True)
class Wanted:
    """What of a copy is imported: `split` is written into the tasks, `ids` bounds them (None: all),
    `again` makes all IF answers, `strict` refuses a copy that lacks parts."""

    split: str = "eval"
    ids: Collection[str] | None = None
    again: bool = False
    strict: bool = False

    @property
    def trains(self) -> bool:
        return self.split == "train"


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


@dataclass(frozen=True)
class Part:
    """A database of a copy: the variants that can be used, and why others cannot."""

    entry: Entry
    variants: Sequence[str]
    why: Sequence[Refusal]


def parts_of(top: Path, wanted: Wanted) -> tuple[list[Part], list[Input]]:
    """(what can be used, databases that cannot). Raises `TaskError` under `strict`."""
    parts: list[Part] = []
    lost: list[Input] = []
    for entry in listed_entries(top):
        if isinstance(entry, Absent):
            lost.append(Input(entry.name, 0, (Refusal("missing_file", entry.why).coded(),)))
            continue
        asked = [v for v in variants_of(entry) if _takes(wanted, entry, v)]
        lacks = {v: entry.missing(v, wanted.again) for v in asked}
        why = [
            Refusal("missing_file", f"{', '.join(files)} not there", entry.task_type(v))
            for v, files in lacks.items()
            if files
        ]
        whole = [v for v in asked if not lacks[v]]
        if whole:
            parts.append(Part(entry, whole, why))
        elif asked:
            lost.append(Input(entry.name, 0, tuple(one.coded() for one in why)))
    short = [_left_out(one) for one in lost]
    short += [
        f"{part.entry.name}: {'; '.join(one.coded() for one in part.why)}"
        for part in parts
        if part.why
    ]
    if wanted.strict and short:
        raise TaskError(f"{top}: {len(short)} of its databases lack files; {short[0]}")
    return parts, lost


def _left_out(one: Input) -> str:
    return f"{one.name}: {'in part' if one.used else 'left out'}: {'; '.join(one.why)}"


def _takes(wanted: Wanted, entry: Entry, variant: str) -> bool:
    return wanted.ids is None or task_id(entry, variant) in wanted.ids


def list_tasks(place: str, out: Path, wanted: Wanted) -> int:
    """Write `out/index.jsonl`: the tasks that an import would give, without their gold. Nothing is
    computed. Returns how many there are."""
    top = find_copy(place, wanted.split)
    parts, lost = parts_of(top, wanted)
    if short := len(lost) + sum(bool(part.why) for part in parts):
        print(f"{top}: {short} databases lack files; what is whole is asked", file=sys.stderr)
    licences = read_licences(top)
    tasks = [
        bare_task(part.entry, variant, out, wanted.split, meta=_meta(part.entry, licences, wanted))
        for part in parts
        for variant in part.variants
    ]
    write_jsonl(out / INDEX, (task.to_json() for task in tasks))
    return len(tasks)


def _meta(entry: Entry, licences: Mapping[str, str], wanted: Wanted) -> dict[str, Any]:
    return {
        **({} if wanted.trains else {"published": True}),
        "benchmark": "DARE-bench",
        "domain": entry.row.get("domain") or domain_of_page(entry),
        "licence": licence_of(entry.folder, licences.get(entry.name, "")),
    }


def import_copy(place: str, out: Path, wanted: Wanted) -> list[Task]:
    """Write `out/tasks.jsonl` from a copy of the release, and `out/refused.jsonl` with a row for
    each database or variant that is left out. Raises `TaskError` where no task is left."""
    top = find_copy(place, wanted.split)
    parts, lost = parts_of(top, wanted)
    licences = read_licences(top)
    tasks: list[Task] = []
    inputs = list(lost)
    for part in progress(parts, "import", "databases"):
        entry, why = part.entry, tuple(refusal.coded() for refusal in part.why)
        if wanted.trains and (known := evaluation_database(entry)):
            inputs.append(Input(entry.name, 0, (Refusal("evaluation", known).coded(),)))
            continue
        meta = _meta(entry, licences, wanted)
        tasks += [
            task_of(entry, v, out, wanted.split, again=wanted.again, meta=meta)
            for v in part.variants
        ]
        licence = meta["licence"] or "unknown"
        inputs.append(Input(entry.name, len(part.variants), why, licence))
    told, used = [one for one in inputs if one.why], {one.name for one in inputs if one.used}
    write_jsonl(out / REFUSED, (one.row() for one in told))
    _say_left_out(told, len(inputs), out)
    if not tasks:
        raise TaskError(f"{top}: no task is left; reasons in {out / REFUSED}")
    write_jsonl(out / "tasks.jsonl", (task.to_json() for task in tasks))
    counts = Counter(task.track for task in tasks)
    listed = ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items()))
    print(f"{out / 'tasks.jsonl'}: {len(tasks)} tasks ({listed})")
    made = sum(_simulated(part, wanted) for part in parts if part.entry.name in used)
    if made:
        print(f"{made} IF answers were made here: the copy lacks them, or --simulate asks for it")
    return tasks


def _simulated(part: Part, wanted: Wanted) -> bool:
    """Whether the IF answer of a database has to be made here."""
    asked = any(part.entry.task_type(v).endswith("-IF") for v in part.variants)
    return asked and (wanted.again or not (part.entry.folder / "verify" / SIMULATED).is_file())


def _say_left_out(told: Sequence[Input], all_: int, out: Path) -> None:
    """A line for each database that is left out, whole or in part."""
    for one in sorted(told, key=lambda i: (i.used, i.name))[:SHOWN]:
        print(_left_out(one), file=sys.stderr)
    if len(told) > SHOWN:
        print(f"… and {len(told) - SHOWN} more; reasons in {out / REFUSED}", file=sys.stderr)
    if told:
        gone = sum(not one.used for one in told)
        print(
            f"databases: {all_ - len(told)} whole, {len(told) - gone} in part, {gone} left out",
            file=sys.stderr,
        )
