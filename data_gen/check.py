"""`assay tasks check FILE… --against DIR`: what a set of tasks shares with any other set."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from data_gen.cdr.out import read_tasks_or_rows
from data_gen.corpora import CorpusError
from data_gen.overlap import fingerprint, overlaps, shared_contents
from rewards.console import DONE, FAILED, Parser, add_family, add_json, add_out, parser
from rewards.families import require_families, use_families
from rewards.files import write_bytes
from rewards.task import Task, json_text

PARTS = ("contents", "inputs", "references")


def main(argv: Sequence[str]) -> int:
    """Exit status 0 when nothing is shared, 1 when contents, inputs, references or documents are,
    exactly or nearly. Raises `TaskError` for files that cannot be used."""
    args = options().parse_args(argv)
    use_families(args.family)
    report = compared(_tasks(args.tasks), _tasks(args.against))
    if args.out:
        write_bytes(args.out, json_text(report, indent=2))
    if args.json:
        print(json.dumps(report, indent=2))
    else:
        print("\n".join(lines(report)))
        if args.out:
            print(f"certificate: {args.out}")
    return DONE if report["ok"] else FAILED


def options() -> Parser:
    made = parser(
        "tasks check",
        "Exact and near (MinHash) overlap of two sets of tasks of any families: of what each "
        "family\nsays two splits must not share (`Family.content`), and of inputs, recipes and "
        "references of\nrefinement. Reads task files and CDR-Bench's own row files. Exit status "
        "1 when something is shared.",
    )
    made.add_argument("tasks", nargs="+", type=Path, help="JSONL files or folders of them")
    made.add_argument(
        "--against",
        required=True,
        type=Path,
        action="append",
        help="file or folder of the other set; may be repeated",
    )
    add_family(made)
    add_json(made)
    add_out(made, "certificate to write (JSON)")
    return made


def compared(ours: Sequence[Task], theirs: Sequence[Task]) -> dict[str, Any]:
    """The certificate: counts of what is shared, and `ok` when nothing is."""
    prints, others = (
        [fingerprint(task) for task in side if "input_text" in task.gold] for side in (ours, theirs)
    )
    found = {"contents": shared_contents(ours, theirs), **overlaps(prints, others)}
    documents = {str(t.meta.get("document")) for t in ours} & {
        str(t.meta.get("document")) for t in theirs
    }
    shared = sum(found[part][how] for part in PARTS for how in ("exact", "near"))
    count = len(documents - {"", "None"})
    return {
        "ok": not shared and not count,
        "tasks": len(ours),
        "against": len(theirs),
        "shared_documents": count,
        **found,
    }


def lines(report: dict[str, Any]) -> list[str]:
    """The certificate in words."""
    said = [
        f"{part}: {report[part]['exact']} of {report['tasks']} exact, {report[part]['near']} near"
        for part in PARTS
    ]
    recipes = report["recipes"]
    said.append(
        f"recipes: {recipes['distinct_shared']} of {recipes['distinct']} distinct ones shared"
    )
    return [*said, f"documents: {report['shared_documents']} shared"]


def _tasks(paths: Sequence[Path]) -> list[Task]:
    found = [task for file in _files(paths) for task in read_tasks_or_rows(file)]
    if not found:
        raise CorpusError(f"{', '.join(map(str, paths))}: no task in it")
    require_families(found)
    return found


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            found = sorted(path.rglob("*.jsonl"))
            # the construction's own record holds no texts, and all prompts repeat the tracks
            skip = ("pipeline.jsonl", "benchmark_v3_all.jsonl", "benchmark_v3_all_prompts.jsonl")
            yield from (
                f for f in found if f.name not in skip and "tracks_all_prompts" not in f.parts
            )
        elif path.is_file():
            yield path
        else:
            raise CorpusError(f"{path}: no such file or folder")
