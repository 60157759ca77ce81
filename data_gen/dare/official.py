"""A copy of the release: found where it lies, read as far as it is whole, and made into tasks.

A training copy is checked against the published evaluation databases by content
(`data_gen/dare/published.py`): what is one of them is left out, whatever its folder is called.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.console import progress
from assay.hub import local_place
from assay.task import Task, TaskError, write_jsonl
from data_gen.dare.domains import domain_of_page
from data_gen.dare.importer import (
    bare_task,
    licence_of,
    read_licences,
    task_id,
    task_of,
    variants_of,
)
from data_gen.dare.layout import LISTING, SIMULATED, Absent, Entry, listed_entries
from data_gen.dare.published import evaluation_database
from data_gen.tally import REFUSED, SHOWN, Input, Refusal

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
