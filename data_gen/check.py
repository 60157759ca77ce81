"""`assay tasks check FILE… --against DIR`: what a set of tasks shares with any other set.

Both sides are streamed. The other side is held in memory as far as `--memory` allows, in several
passes over ours where it does not fit; nothing is compared by the names of files or tables.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from assay.console import DONE, FAILED, Parser, add_family, add_json, add_out, parser
from assay.family import use_families
from assay.files import write_bytes
from assay.machine import usable_cores
from assay.task import TaskError, json_text
from assay.workers import WorkerPool
from data_gen.overlap import PARTS, Prints, Side, chunks_of, prints_of

SHOWN = 20  # example pairs of a part
LARGE = 4 << 20  # bytes of input from which processes are started
GB = 1 << 30


def main(argv: Sequence[str]) -> int:
    """Exit status 0 when nothing is shared, 1 when contents, tables, inputs, references or
    documents are, exactly or nearly. Raises `TaskError` for files that cannot be used."""
    args = options().parse_args(argv)
    use_families(args.family)
    if args.workers < 0 or args.memory <= 0:
        raise TaskError("--workers and --memory: give numbers above 0 (--workers 0: all cores)")
    report = compared(args.tasks, args.against, args.workers, int(args.memory * GB))
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
        "Exact and near overlap of two sets of tasks of any families: of what each family says\n"
        "two splits must not share (texts and questions by MinHash, tables by marks of their\n"
        "columns and rows), and of inputs, recipes and references of refinement. Reads task files\n"
        "and CDR-Bench's own row files. Exit status 1 when something is shared.",
    )
    made.add_argument("tasks", nargs="+", type=Path, help="JSONL files or folders of them")
    made.add_argument(
        "--against",
        required=True,
        type=Path,
        nargs="+",
        action="extend",
        help="files or folders of the other set",
    )
    made.add_argument("--workers", type=int, default=0, help="processes; 0: all cores")
    made.add_argument(
        "--memory",
        type=float,
        default=2.0,
        metavar="GB",
        help="of the other side at a time; about 600 bytes a row of text",
    )
    add_family(made)
    add_json(made)
    add_out(made, "certificate to write (JSON)")
    return made


def compared(
    ours: Sequence[Path], theirs: Sequence[Path], workers: int = 0, memory: int = 2 * GB
) -> dict[str, Any]:
    """The certificate: counts of what is shared, and `ok` when nothing is."""
    mine, other = list(_files(ours)), list(_files(theirs))
    workers = workers or usable_cores()
    if sum(path.stat().st_size for path in (*mine, *other)) < LARGE:
        workers = 1
    found = _Found()
    with WorkerPool(workers) as crew:

        def prints(files: Sequence[Path]) -> Iterator[Prints]:
            return crew.map(prints_of, (chunk for path in files for chunk in chunks_of(path)))

        side = Side()
        for chunk in prints(other):
            side.add(chunk)
            if side.bytes > memory:
                found.over(prints(mine), side)
                side = Side()
        if side.ids:
            found.over(prints(mine), side)
    for side_name, count in ((ours, found.tasks), (theirs, found.against)):
        if not count:
            raise TaskError(f"{', '.join(map(str, side_name))}: no task in it")
    return found.report()


class _Found:
    """What the passes have found: by kind, rows of ours with a pair to show."""

    def __init__(self) -> None:
        self.tasks = self.against = 0
        self._hits: defaultdict[str, dict[int, list[Any]]] = defaultdict(dict)
        self._documents, self._others = set[str](), set[str]()
        self._own, self._known = set[str](), set[str]()

    def over(self, ours: Iterator[Prints], side: Side) -> None:
        """One pass of ours over a piece of the other side."""
        side.close()
        self.tasks = 0
        for prints in ours:
            ids, others = prints.ids, side.ids
            for name, part in side.parts.items():
                exact, near = part.find(prints.parts[name])
                for row, other in sorted(exact.items()):
                    self._hit(f"{name} exact", row, ids[row], others[other])
                for row, (other, like) in sorted(near.items()):
                    self._hit(f"{name} near", row, ids[row], others[other], like)
            for row, table in prints.has:
                if (other := side.tables.find(prints.tables[table])) is not None:
                    self._hit("tables", row, ids[row], others[other])
            for row, recipe in enumerate(prints.recipes):
                if recipe in side.recipes:
                    self._hit("recipes", row, ids[row], recipe)
            self._documents.update(d for d in prints.documents if d)
            self._own.update(prints.recipes)
            self.tasks += len(ids)
        self.against += len(side.ids)
        self._others |= side.documents
        self._known |= side.recipes

    def _hit(self, kind: str, row: int, ours: str, theirs: str, like: float = 1.0) -> None:
        self._hits[kind].setdefault(self.tasks + row, [ours, theirs, round(like, 3)])

    def report(self) -> dict[str, Any]:
        parts: dict[str, Any] = {}
        for part in PARTS:
            exact, near = self._hits[f"{part} exact"], self._hits[f"{part} near"]
            shown = [*(exact or near).values()][:SHOWN]
            parts[part] = {"exact": len(exact), "near": len(near), "examples": shown}
        documents, tables = len(self._documents & self._others), self._hits["tables"]
        shared = sum(one["exact"] + one["near"] for one in parts.values())
        return {
            "ok": not (shared or documents or tables),
            "tasks": self.tasks,
            "against": self.against,
            "shared_documents": documents,
            "tables": {"shared": len(tables), "examples": [*tables.values()][:SHOWN]},
            **parts,
            "recipes": {
                "exact": len(self._hits["recipes"]),
                "distinct_shared": len(self._own & self._known),
                "distinct": len(self._own),
            },
        }


def lines(report: dict[str, Any]) -> list[str]:
    """The certificate in words."""
    said = [
        f"{part}: {report[part]['exact']} of {report['tasks']} exact, {report[part]['near']} near"
        for part in PARTS
    ]
    tables, recipes = report["tables"], report["recipes"]
    said.insert(1, f"tables: {tables['shared']} of {report['tasks']} tasks over a copy")
    for ours, theirs, _ in tables["examples"][:3]:
        said.insert(2, f"  as {ours} and {theirs}")
    said.append(
        f"recipes: {recipes['distinct_shared']} of {recipes['distinct']} distinct ones shared"
    )
    return [*said, f"documents: {report['shared_documents']} shared"]


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
            raise TaskError(f"{path}: no such file or folder")
