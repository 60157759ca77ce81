"""`assay tasks krama`: workload files and lakes into a folder that `assay eval` reads.

The folder holds `tasks.jsonl` and `subtasks.jsonl` (with `doubted.jsonl` and
`doubted_subtasks.jsonl` beside them), the lakes unpacked once, a view of hard links per task for
the smaller input modes, and `manifest.json`. Lakes are never copied per task or rollout; those that
lie there as folders stay where they are. Of an incomplete copy, what is there is used.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay import console
from assay.task import Task, TaskError
from data_gen.krama.importer import (
    Entry,
    absent_files,
    end_to_end,
    find_copy,
    find_lake,
    gathered,
    lake_files,
    link_view,
    resolve,
    sub_task,
    view_files,
    write_tasks,
)
from rewards.krama.answer import score_response
from rewards.krama.release import MODES, Mode

PARTS = ("tasks", "subtasks", "doubted", "doubted_subtasks")  # files of tasks
FOLDERS = {"oracle*": "oracle-star"}  # of views; a star in a path is a pattern to every shell


def gold_of(entry: Entry, files: Sequence[str]) -> list[str]:
    """The files the reference pipeline opens, as far as they are in the lake."""
    known = [f for f in entry.gold_files if f in set(files)]
    return known or resolve(entry.sources, files)


@dataclass(frozen=True)
class View:
    """What an input mode shows of a task: the task (its names may be exchanged), a folder, the gold
    files in it, and how many gold files are not shown."""

    entry: Entry
    folder: Path
    gold: Sequence[str]
    hidden: int = 0


def view_of(entry: Entry, lake: Path, out: Path, mode: Mode) -> View:
    """Lay out what a mode shows, below `out/views`."""
    files = lake_files(lake)
    gold = gold_of(entry, files)
    if mode == "obscured":
        from data_gen.queries.obscured import obscure

        chosen = view_files("trimmed", entry.id, gold, files)
        return View(*obscure(entry, lake, chosen, gold, out / "views" / mode / entry.id))
    if mode == "full" or not gold:
        return View(entry, lake, gold)
    chosen = view_files(mode, entry.id, gold, files)
    shown = link_view(lake, chosen, out / "views" / FOLDERS.get(mode, mode) / entry.id)
    left = [name for name in gold if name in set(chosen)]
    return View(entry, shown, left, len(gold) - len(left))


def tasks_of(entry: Entry, lake: Path, out: Path, mode: Mode, parts: Mode) -> list[Task]:
    """The end-to-end task, then its sub-tasks, whose files the mode `parts` says. Every task's gold
    scores 1.0, or it is refused."""
    whole = view_of(entry, lake, out, mode)
    part = whole if parts == mode else view_of(entry, lake, out, parts)
    made = [_hiding(end_to_end(whole.entry, str(whole.folder), mode, whole.gold), whole)]
    for step in part.entry.steps:
        own = resolve(step.sources, part.gold) or part.gold
        made.append(_hiding(sub_task(part.entry, step, str(part.folder), parts, own), part))
    for task in made:
        gold = task.gold
        score = score_response(gold["answer_type"], gold["answer"], {"answer": gold["answer"]})
        if score.outcome != 1.0:
            raise TaskError(f"task {task.id}: its own gold scores {score.outcome}, not 1")
    return made


def _hiding(task: Task, view: View) -> Task:
    """What is asked with a part of its files can be told apart in any table."""
    return replace(
        task, meta={**task.meta, "gold_files_hidden": view.hidden} if view.hidden else task.meta
    )


def find_lakes(
    entries: Sequence[Entry], lakes: Path, out: Path
) -> tuple[dict[str, Path], list[str], dict[str, str]]:
    """(the folder of each lake that is there, what to say of the others, why a task cannot be
    asked)."""
    folders: dict[str, Path] = {}
    said: list[str] = []
    left_out: dict[str, str] = {}
    domains: dict[str, list[Entry]] = {}
    for entry in entries:
        domains.setdefault(entry.domain, []).append(entry)
    for domain, mine in domains.items():
        folder = find_lake(lakes, domain, out)
        files = lake_files(folder) if folder else []
        if folder is None or not files:
            steps = sum(len(e.steps) for e in mine)
            said.append(
                f"{domain}: {len(mine)} tasks and {steps} sub-tasks are left out: there is no lake "
                f"({lakes}/{domain}/input or {domain}.tar.gz)"
            )
            left_out |= {e.id: f"no lake {domain}" for e in mine}
            continue
        folders[domain] = folder
        absent = {e.id: names for e in mine if (names := absent_files(e, files))}
        left_out |= {name: f"not in the lake: {', '.join(ns)}" for name, ns in absent.items()}
        if absent:
            listed = "; ".join(f"{name} ({', '.join(names)})" for name, names in absent.items())
            said.append(
                f"{domain}: {len(absent)} of {len(mine)} tasks are left out, since their files are "
                f"not in {folder}: {listed}"
            )
    return folders, said, left_out


def build(
    workloads: Sequence[Path],
    lakes: Path,
    out: Path,
    mode: Mode,
    parts: Mode | None = None,
    strict: bool = False,
) -> dict[str, Any]:
    """Write the folder; returns its manifest. `parts`: the input mode of sub-tasks, else `mode`.
    What the lakes have no files for is left out, and `said` in the manifest; `strict` refuses it.
    Raises `TaskError`."""
    entries, said = gathered(workloads)
    folders, lacks, left_out = find_lakes(entries, lakes, out)
    entries = [entry for entry in entries if entry.id not in left_out]
    if not entries:
        raise TaskError(f"{lakes}: no task can be asked of what is there. {' '.join(lacks)}")
    if strict and lacks:
        raise TaskError(f"--strict: {lacks[0]}; fetch what is missing, or leave --strict out")
    out.mkdir(parents=True, exist_ok=True)
    made: dict[str, list[Task]] = {name: [] for name in PARTS}
    for entry in entries:
        first, *rest = tasks_of(entry, folders[entry.domain], out, mode, parts or mode)
        made["doubted" if entry.doubt else "tasks"].append(first)
        made["doubted_subtasks" if entry.doubt else "subtasks"] += rest
    for name, tasks in made.items():
        write_tasks(out / f"{name}.jsonl", tasks)
    manifest = {
        "benchmark": "krama",
        "mode": mode,
        "subtask_mode": parts or mode,
        "counts": {name: len(tasks) for name, tasks in made.items()},
        "by_domain": dict(Counter(t.meta["domain"] for t in made["tasks"])),
        "doubted": {e.id: e.doubt for e in entries if e.doubt},
        "left_out": left_out,
        "gold_files_hidden": {
            t.id: t.meta["gold_files_hidden"]
            for t in (*made["tasks"], *made["doubted"])
            if "gold_files_hidden" in t.meta
        },
        "said": [*said, *lacks],
        "sha256": {
            str(p.name): hashlib.sha256(p.read_bytes()).hexdigest()
            for p in [*workloads, *(out / f"{n}.jsonl" for n in made)]
        },
    }
    text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    (out / "manifest.json").write_text(text, encoding="utf-8")
    return manifest


def main(argv: Sequence[str]) -> int:
    parser = console.parser("tasks krama", __doc__)
    parser.add_argument(
        "--import",
        dest="place",
        type=Path,
        metavar="PLACE",
        help="the release's checkout (workload/, data/DOMAIN/input), or one workload file of it",
    )
    parser.add_argument("--workload", nargs="+", type=Path, default=[], help="workload JSON")
    parser.add_argument(
        "--lakes", type=Path, help="folder of DOMAIN.tar.gz, DOMAIN/input or DOMAIN"
    )
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument(
        "--mode",
        choices=MODES,
        default="full",
        help="which files the model is shown (%(default)s); in quotes: 'oracle*'",
    )
    parser.add_argument(
        "--subtask-mode",
        choices=MODES,
        help="the same of sub-tasks (default: as --mode, as in the release; the paper: oracle)",
    )
    parser.add_argument(
        "--strict", action="store_true", help="refuse a copy that lacks lakes or files"
    )
    parser.add_argument("--split", default="test", help="anything but test is refused")
    args = parser.parse_args(argv)
    if args.split != "test":
        raise TaskError(
            f"--split {args.split}: published tasks are for testing only; generate "
            "training tasks with `assay tasks lake`"
        )
    workloads, lakes = _sources(args)
    try:
        manifest = build(workloads, lakes, args.out, args.mode, args.subtask_mode, args.strict)
    except tarfile.TarError as error:
        raise TaskError(f"{lakes}: an archive cannot be unpacked: {error}") from None
    for line in manifest["said"]:
        print(line)
    for name, count in manifest["counts"].items():
        print(f"{args.out / name}.jsonl: {count} tasks")
    modes = dict.fromkeys((manifest["mode"], manifest["subtask_mode"]))
    print(f"{args.out / 'manifest.json'}: input mode {', of sub-tasks '.join(modes)}")
    return 0


def _sources(args: Any) -> tuple[Sequence[Path], Path]:
    """(workload files, folder of lakes) that the options name. Raises `TaskError`."""
    if args.place is not None:
        if args.workload:
            raise TaskError("give --import PLACE, or --workload and --lakes")
        workloads, lakes = find_copy(args.place)
        return workloads, args.lakes or lakes
    if not args.workload or args.lakes is None:
        raise TaskError("give --import PLACE, or --workload FILES and --lakes DIR")
    return args.workload, args.lakes
