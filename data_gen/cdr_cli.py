"""`assay tasks cdr`: CDR-Bench tasks from raw corpora, by the benchmark's own construction."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from configs.cdr import CdrConfig
from configs.loader import dump, load
from data_gen.cdr_out import write_tracks
from data_gen.cdr_rows import drafts
from data_gen.construct import Construction, construct, pipeline_rows, usable_records
from data_gen.corpora import CorpusError
from data_gen.records import Replays
from data_gen.sources import read_sources, scan
from rewards.task import write_jsonl


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="assay tasks cdr",
        description="Build CDR-Bench tracks from corpora. Settings are those of configs/cdr.py as "
        "key=value words; configs/cdr_reference.yaml, cdr_paper.yaml and cdr_train.yaml are sets.",
    )
    parser.add_argument("settings", nargs="*", metavar="key=value")
    parser.add_argument("--config", help="YAML of settings")
    parser.add_argument("--out", required=True, type=Path, help="folder to write into")
    parser.add_argument(
        "--corpus", action="append", default=[], metavar="PATH",
        help="file or folder of documents, instead of `corpora`; may be repeated",
    )  # fmt: skip
    args = parser.parse_args(argv)
    config = load(CdrConfig, args.config, args.settings)
    build(config, args.corpus or list(config.corpora), args.out)
    return 0


def _tracks(done: Construction, config: CdrConfig, out: Path, workers: int) -> None:
    units = list(drafts(done, config.select.filter_variants))
    manifest = write_tracks(units, config, out, workers)
    for track, count in manifest["counts"].get("track", {}).items():
        print(f"{out / 'tracks' / track}.jsonl: {count} verified tasks")
    refused = ", ".join(f"{n} {why}" for why, n in manifest["units_refused"].items())
    if refused:
        print(f"left out: {refused}")
    split = manifest["counts"].get("split", {})
    print(
        f"{manifest['tasks']} tasks, {manifest['operators']} operators; "
        + ", ".join(f"{name} {count}" for name, count in split.items())
    )


def build(config: CdrConfig, corpora: Sequence[str], out: Path) -> None:
    """Everything `assay tasks cdr` writes."""
    if not corpora:
        raise CorpusError("no corpus; give --corpus PATH or set corpora in the config")
    sources = read_sources(corpora)
    for problem in sources.problems[:5]:
        print(f"assay tasks: {problem}", file=sys.stderr)
    if sources.problems:
        print(f"assay tasks: {len(sources.problems)} corpus rows left out", file=sys.stderr)
    workers = config.workers or os.cpu_count() or 1
    records = scan(sources.rows, workers, config.scan_profile, config.domains)
    done = construct(records, config, Replays())
    out.mkdir(parents=True, exist_ok=True)
    dump(config, out / "config.yaml")
    write_jsonl(out / "pipeline.jsonl", pipeline_rows(done))
    if config.tracks:
        _tracks(done, config, out, workers)
    recipes = sum(len(mined.recipes) for mined in done.mined)
    print(
        f"{out / 'pipeline.jsonl'}: {len(records)} documents, "
        f"{len(usable_records(records, config))} of them usable; {recipes} mined recipes; "
        f"{len(done.atomic)} atomic, {len(done.main)} main, {len(done.order)} order instances, "
        f"{len(done.swaps)} swap pairs"
    )
