"""`assay tasks check FILE… --against DIR`: what a set of tasks shares with any other set."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from data_gen.cdr.out import read_tasks_or_rows
from data_gen.corpora import CorpusError
from data_gen.overlap import Fingerprint, fingerprint, overlaps


def main(argv: Sequence[str]) -> int:
    """Exit status 0 when nothing is shared, 1 when inputs or references are, exactly or nearly."""
    parser = argparse.ArgumentParser(
        prog="assay tasks check",
        description="Exact and near (MinHash) overlap of inputs, recipes and references. Reads "
        "task files and CDR-Bench's own row files.",
    )
    parser.add_argument("tasks", nargs="+", type=Path, help="JSONL files or folders of them")
    parser.add_argument(
        "--against",
        required=True,
        type=Path,
        action="append",
        help="file or folder of the other set; may be repeated",
    )
    parser.add_argument("--out", type=Path, help="certificate to write (JSON)")
    args = parser.parse_args(argv)
    ours, theirs = _prints(args.tasks), _prints(args.against)
    found = overlaps(ours, theirs)
    documents = {p.document for p in ours if p.document} & {p.document for p in theirs}
    shared = sum(found[p][how] for p in ("inputs", "references") for how in ("exact", "near"))
    report: dict[str, Any] = {
        "ok": not shared and not documents,
        "tasks": len(ours),
        "against": len(theirs),
        "shared_documents": len(documents - {"", "None"}),
        **found,
    }
    for part in ("inputs", "references"):
        counts = found[part]
        print(f"{part}: {counts['exact']} of {len(ours)} exact, {counts['near']} near")
    recipes = found["recipes"]
    print(f"recipes: {recipes['distinct_shared']} of {recipes['distinct']} distinct ones shared")
    print(f"documents: {report['shared_documents']} shared")
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        print(f"certificate: {args.out}")
    return 0 if report["ok"] else 1


def _prints(paths: Sequence[Path]) -> list[Fingerprint]:
    from tqdm import tqdm

    tasks = (task for file in _files(paths) for task in read_tasks_or_rows(file))
    found = [fingerprint(t) for t in tqdm(tasks, "fingerprints", disable=None, delay=2)]
    if not found:
        raise CorpusError(f"{', '.join(map(str, paths))}: no task in it")
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
