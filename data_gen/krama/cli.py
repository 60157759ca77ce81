"""`assay tasks krama`: workload files and lakes into a folder that `assay eval` reads.

The folder holds `tasks.jsonl` and `subtasks.jsonl` (with `doubted.jsonl` and
`doubted_subtasks.jsonl` beside them), the lakes unpacked once, a view of hard links per task for
the smaller input modes, and `manifest.json`. Lakes are never copied per task or rollout.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from data_gen.krama.folders import find_lake, link_view, write_tasks
from data_gen.krama.importer import (
    MODES,
    Entry,
    Mode,
    end_to_end,
    lake_files,
    read_workload,
    resolve,
    sub_task,
    view_files,
)
from data_gen.krama.obscure.published import obscure
from rewards import console
from rewards.krama.answer import score_response
from rewards.task import Task, TaskError

FOLDERS = {"oracle*": "oracle-star"}  # of views; a star in a path is a pattern to every shell


def gold_of(entry: Entry, files: Sequence[str]) -> list[str]:
    """The files the reference pipeline opens, as far as they are in the lake."""
    known = [f for f in entry.gold_files if f in set(files)]
    return known or resolve(entry.sources, files)


def missing_sources(entry: Entry, files: Sequence[str]) -> list[str]:
    """Named sources that match nothing in the lake."""
    named = [s for s in entry.sources if s.strip("./ ")]
    return [s for s in named if not resolve([s], files)]


def tasks_of(entry: Entry, lake: Path, out: Path, mode: Mode) -> list[Task]:
    """The end-to-end task, then its sub-tasks. Every task's gold scores 1.0, or it is refused."""
    files = lake_files(lake)
    gold = gold_of(entry, files)
    shown, hidden = lake, 0
    if mode == "obscured":
        chosen = view_files("trimmed", entry.id, gold, files)
        entry, shown, gold = obscure(entry, lake, chosen, gold, out / "views" / mode / entry.id)
    elif mode != "full" and gold:
        chosen = view_files(mode, entry.id, gold, files)
        shown = link_view(lake, chosen, out / "views" / FOLDERS.get(mode, mode) / entry.id)
        hidden = len(set(gold) - set(chosen))
        gold = [name for name in gold if name in set(chosen)]
    made = [end_to_end(entry, str(shown), mode, gold)]
    for step in entry.steps:
        own = resolve(step.sources, gold) or gold
        made.append(sub_task(entry, step, str(shown), mode, own))
    if hidden:  # what was asked with a part of its files can be told apart in any table
        made = [replace(task, meta={**task.meta, "gold_files_hidden": hidden}) for task in made]
    for task in made:
        score = score_response(
            task.gold["answer_type"], task.gold["answer"], {"answer": task.gold["answer"]}
        )
        if score.outcome != 1.0:
            raise TaskError(f"task {task.id}: its own gold scores {score.outcome}, not 1")
    return made


def build(workloads: Sequence[Path], lakes: Path, out: Path, mode: Mode) -> dict[str, Any]:
    """Write the folder; returns its manifest. Raises `TaskError`."""
    entries = [entry for path in workloads for entry in read_workload(path)]
    seen = Counter(e.id for e in entries)
    if twice := [name for name, n in seen.items() if n > 1]:
        raise TaskError(f"task {twice[0]} is in more than one workload file; give each once")
    out.mkdir(parents=True, exist_ok=True)
    parts: dict[str, list[Task]] = {
        "tasks": [],
        "subtasks": [],
        "doubted": [],
        "doubted_subtasks": [],
    }
    absent: dict[str, list[str]] = {}
    for entry in entries:
        lake = find_lake(lakes, entry.domain, out)
        missing = missing_sources(entry, lake_files(lake))
        if missing:
            absent[entry.id] = missing
        first, *rest = tasks_of(entry, lake, out, mode)
        parts["doubted" if entry.doubt else "tasks"].append(first)
        parts["doubted_subtasks" if entry.doubt else "subtasks"] += rest
    for name, tasks in parts.items():
        write_tasks(out / f"{name}.jsonl", tasks)
    manifest = {
        "benchmark": "krama",
        "mode": mode,
        "counts": {name: len(tasks) for name, tasks in parts.items()},
        "by_domain": dict(Counter(t.meta["domain"] for t in parts["tasks"])),
        "doubted": {e.id: e.doubt for e in entries if e.doubt},
        "sources_not_in_the_lake": absent,
        "gold_files_hidden": {
            t.id: t.meta["gold_files_hidden"]
            for t in (*parts["tasks"], *parts["doubted"])
            if "gold_files_hidden" in t.meta
        },
        "sha256": {
            str(p.name): hashlib.sha256(p.read_bytes()).hexdigest()
            for p in [*workloads, *(out / f"{n}.jsonl" for n in parts)]
        },
    }
    text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    (out / "manifest.json").write_text(text, encoding="utf-8")
    return manifest


def main(argv: Sequence[str]) -> int:
    parser = console.parser("tasks krama", __doc__)
    parser.add_argument("--workload", nargs="+", required=True, type=Path, help="workload JSON")
    parser.add_argument(
        "--lakes", required=True, type=Path, help="folder of DOMAIN.tar.gz, DOMAIN/input or DOMAIN"
    )
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument(
        "--mode",
        choices=MODES,
        default="full",
        help="which files the model is shown (%(default)s); in quotes: 'oracle*'",
    )
    parser.add_argument("--split", default="test", help="anything but test is refused")
    args = parser.parse_args(argv)
    if args.split != "test":
        raise TaskError(
            f"--split {args.split}: published tasks are for testing only; generate "
            "training tasks with `assay tasks lake`"
        )
    try:
        manifest = build(args.workload, args.lakes, args.out, args.mode)
    except tarfile.TarError as error:
        raise TaskError(f"{args.lakes}: an archive cannot be unpacked: {error}") from None
    for name, count in manifest["counts"].items():
        print(f"{args.out / name}.jsonl: {count} tasks")
    print(f"{args.out / 'manifest.json'}: input mode {args.mode}")
    return 0
